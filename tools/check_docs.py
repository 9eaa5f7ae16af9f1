"""Check the documents: Python blocks parse, and each variable and public name is told of.

That what they name exists is the part of `tests/truth`.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DECLARED = re.compile(r"\bVariable\(\s*\"(\w+)\"")
TOLD = re.compile(r"^\| (`[A-Z][A-Z0-9_]+`(?:, `[A-Z][A-Z0-9_]+`)*) \|", re.MULTILINE)
VARIABLES = "docs/reference/command.md"
REFERENCE = "docs/reference"
PUBLIC = (
    *("accel_core", "accel_testing.conformance", "accel_train", "accel_testing"),
    "accel_train.accelerate",
    *("accel_train.deepspeed", "accel_train.lightning"),
    "accel_train.transformers",
)
#: `Backend` has a page of its own; the others are plain values.
TOLD_ELSEWHERE = {
    *("accel_core.Backend", "accel_core.__version__", "accel_testing.AcceleratorTests"),
    # Parts of a declaration: reference/plugin.md is made from their docstrings.
    *(
        f"accel_core.{name}"
        for name in (
            "Environment",
            "ResourceRequest",
            "Hardware",
            "TorchIntegration",
            "Visibility",
        )
    ),
    *(
        f"accel_train.lightning.{name}"
        for name in ("STRATEGY", "STRATEGY_DDP", "STRATEGY_FSDP")
    ),
}
SKIPPED = {"dist", "changelog.d", "site"}


def documents() -> list[Path]:
    found = list(ROOT.glob("*.md"))
    for folder in ROOT.iterdir():  # not .nox: thousands of files of others
        if (
            folder.is_dir()
            and not folder.name.startswith(".")
            and folder.name not in SKIPPED
        ):
            found += folder.rglob("*.md")
    return sorted(found)


def broken_code(text: str) -> Iterator[str]:
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        try:
            ast.parse(code)
        except SyntaxError as error:
            yield f"a python block does not parse: {error}"


def variables() -> Iterator[str]:
    """Compare the table of variables with the settings that are read."""
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("p*/*/src/**/*.py")]
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    read = set(DECLARED.findall(source))
    rows = TOLD.findall((ROOT / VARIABLES).read_text(encoding="utf-8"))
    told = {name.strip("`") for row in rows for name in row.split(", ")}
    for name in sorted(read - told):
        yield f"{name} is read and not in a table"
    for name in sorted(told - read):
        if f'"{name}"' not in source:
            yield f"{name} is in a table and nothing reads it"


def untold_names() -> Iterator[str]:
    """Compare the reference with the names that `accel_core` and its public packages offer."""
    pages = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / REFERENCE).glob("*.md")
    )
    told = set(re.findall(r"\.\. (?:auto\w+|data):: (accel_\w[\w.]+)", pages))
    for package in PUBLIC:
        for name in importlib.import_module(package).__all__:
            if f"{package}.{name}" not in {*told, *TOLD_ELSEWHERE}:
                yield f"{package}.{name} is public and on no page"


def members() -> Iterator[str]:
    """Compare the reference's groups with the members of `Accelerator`: each on one page, with an example."""
    shown = []
    for path in (ROOT / REFERENCE).glob("*.md"):
        text = path.read_text(encoding="utf-8")
        here = re.findall(r"\.\. auto\w+:: accel_core\.Accelerator\.(\w+)", text)
        if here and "```python" not in text:
            yield f"{path.name} has members of Accelerator and no example"
        shown += here
    for name in dir(importlib.import_module("accel_core").Accelerator):
        if name[0] != "_" and shown.count(name) != 1:
            yield f"Accelerator.{name} is on {shown.count(name)} pages, not on one"


def main() -> int:
    faults = [f"{VARIABLES}: {fault}" for fault in variables()]
    faults += [f"{REFERENCE}: {fault}" for fault in (*untold_names(), *members())]
    checked = documents()
    for path in checked:
        text = path.read_text(encoding="utf-8")
        faults += [
            f"{path.relative_to(ROOT).as_posix()}: {fault}"
            for fault in broken_code(text)
        ]
    print("\n".join(faults) or f"{len(checked)} documents checked")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
