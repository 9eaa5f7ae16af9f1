"""Choose the tests that a diff against main touches, the nearest first: `./dev affected`, `./dev check`.

A test module is near a source file if its name has the file's name, then if its text has the module's dotted
name, then if it lies in the folder of the file's package. As a pytest plugin (`-p affected`) it ends a run in
time: from `DEV_TESTS_UNTIL` on, in seconds of the epoch, it skips the rest.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

UNTIL = "DEV_TESTS_UNTIL"
BUDGETS = "tests/test_budgets.py"
FAR = 9


def near_tests(root: Path, differing: Iterable[str], apart: Iterable[str]) -> list[str]:
    """Return the test modules that these changed files touch, without those in the folders of `apart`."""
    texts = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for pattern in ("tests/**/test_*.py", "p*/*/tests/**/test_*.py")
        for path in sorted(root.glob(pattern))
    }
    near: dict[str, int] = {}
    for name in differing:
        if name in texts:
            near[name] = 0
            continue
        changed = PurePosixPath(name)
        away = (
            _from_a_module
            if "src" in changed.parts and changed.suffix == ".py"
            else _from_another_file
        )
        for test, text in texts.items():
            near[test] = min(away(changed, test, text), near.get(test, FAR))
    left_out = tuple(f"{folder}/" for folder in apart)
    chosen = [
        test for test in near if near[test] < FAR and not test.startswith(left_out)
    ]
    return sorted(chosen, key=lambda test: (near[test], test))


def _from_a_module(changed: PurePosixPath, test: str, text: str) -> int:
    """Return how far a test module is from a module of ours."""
    first, parts = changed.parts[0], changed.with_suffix("").parts
    home = "tests/" if first == "src" else "/".join((*parts[:2], "tests/"))
    inside = [part for part in parts[parts.index("src") + 1 :] if part != "__init__"]
    of_same_distribution = test.startswith(home)
    if of_same_distribution and _is_named(test, inside[-1]):
        return 1
    if re.search(rf"\b{re.escape('.'.join(inside))}\b", text) or (first, test) == (
        "src",
        BUDGETS,
    ):
        return 2
    if first == "plugins" and test.startswith((home, "tests/contracts/")):
        return 2 if of_same_distribution else 4
    if test.startswith("tests/truth/"):
        return 3
    return (
        4
        if of_same_distribution and {*inside[1:-1]} & {*PurePosixPath(test).parts}
        else FAR
    )


def _from_another_file(changed: PurePosixPath, test: str, text: str) -> int:
    """Return how far a test module is from a document, a tool or a setting."""
    if changed.suffix == ".md":
        return (
            3
            if test.startswith("tests/truth/") and changed.parts[0] != "changelog.d"
            else FAR
        )
    if changed.parts[0] in ("tools", "lab") and f'load("{changed.stem}"' in text:
        return 1
    return 3 if f'"{changed.name}"' in text else FAR


def _is_named(test: str, word: str) -> bool:
    """Say whether the word stands in the test module's name: `list` in test_list.py."""
    return (
        re.search(rf"_{re.escape(word.lstrip('_'))}(_|\.py$)", PurePosixPath(test).name)
        is not None
    )


def pytest_runtest_setup() -> None:
    """Skip a test for which no time is left."""
    import pytest  # here, as noxfile.py imports this module without it

    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip("no time is left: ./dev test runs it")
