"""The first `get_accelerator()` against DeepSpeed's, and what activating adds to the import of DeepSpeed.

Torch is imported before, and no vendor is installed. `./dev bench-deepspeed` runs it, and benchmarks/adam.py,
in an environment of its own. Of the first `get_accelerator()` only DeepSpeed's module
`deepspeed.accelerator.real_accelerator` is measured, not the import of the whole of DeepSpeed; its parent
package is entered into `sys.modules` as a bare namespace so that its `__init__` does not run.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import COMPILED, Row, child_seconds, in_turns, ratio_row, show

_PARENT = """
import importlib.util, sys, types
package = types.ModuleType("deepspeed")
package.__path__ = list(importlib.util.find_spec("deepspeed").submodule_search_locations)
sys.modules["deepspeed"] = package
"""
_PREPARE = "import json, sys, time, warnings, torch\nwarnings.simplefilter('ignore')\n"
_OURS = (
    _PREPARE
    + """
start = time.perf_counter()
import accel_core
found = accel_core.get_accelerator()
seconds = time.perf_counter() - start
assert found.name == "cpu", found
print(json.dumps(seconds))
"""
)
_PEER = (
    _PREPARE
    + _PARENT
    + """
start = time.perf_counter()
from deepspeed.accelerator.real_accelerator import get_accelerator
found = get_accelerator()
seconds = time.perf_counter() - start
assert found._name == "cpu", found
print(json.dumps(seconds))
"""
)

_IMPORT = (
    _PREPARE
    + """
start = time.perf_counter()
{first}
import deepspeed
seconds = time.perf_counter() - start
found = deepspeed.get_accelerator()
assert type(found).__module__.startswith({expected!r}), found
print(json.dumps(seconds))
"""
)
_ACTIVATED = _IMPORT.format(
    first="from accel_train.deepspeed import activate; activate()",
    expected="accel_core.",
)
_ALONE = _IMPORT.format(first="", expected="deepspeed.")

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"


def _with_plugins(folder: str, *names: str) -> str:
    """Program text that sees these plugins installed in `folder`: metadata, and links to their modules."""
    for name in names:
        info = Path(folder, f"accel_{name}-0.1.0.dist-info")
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: accel-{name}\nVersion: 0.1.0\n"
        )
        more = "xpu.external = accel_xpu.external\n" if name == "xpu" else ""
        (info / "entry_points.txt").write_text(
            f"[accel.backends]\n{name} = accel_{name}\n{more}"
        )
        Path(folder, f"accel_{name}").symlink_to(
            PLUGINS / f"accel_{name}" / "src" / f"accel_{name}"
        )
    return f"import sys; sys.path.insert(0, {folder!r})\n{_OURS}"


def rows(rounds: int = 11) -> list[Row]:
    """The first call with the core alone, with one plugin that finds no device, and with all of them.

    For information: they differ by milliseconds, beside an import of torch that takes a second.
    """
    every = tuple(
        path.name.removeprefix("accel_") for path in sorted(PLUGINS.glob("accel_*"))
    )
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as all_of_them,
    ):
        found = []
        for label, code in (
            ("first get_accelerator(), core alone", _OURS),
            (
                "first get_accelerator(), accel-cuda beside it",
                _with_plugins(one, "cuda"),
            ),
            (
                f"first get_accelerator(), {len(every)} plugins",
                _with_plugins(all_of_them, *every),
            ),
        ):
            child_seconds(
                code, COMPILED
            )  # leaves byte code, as pip does at installation
            pairs = in_turns(
                lambda code=code: child_seconds(code),
                lambda: child_seconds(_PEER),
                rounds,
            )
            found.append(ratio_row(label, "DeepSpeed's own", pairs, math.inf))
    return [*found, import_row(rounds)]


def import_row(rounds: int = 11) -> Row:
    """Activating and importing DeepSpeed, against importing it alone."""
    for code in (_ACTIVATED, _ALONE):
        child_seconds(code, COMPILED)
    pairs = in_turns(
        lambda: child_seconds(_ACTIVATED), lambda: child_seconds(_ALONE), rounds
    )
    return ratio_row(
        "activate() and import deepspeed", "import deepspeed alone", pairs, 1.1
    )


if __name__ == "__main__":
    from benchmarks import adam

    sys.exit(show("deepspeed", "Against DeepSpeed", [*rows(), *adam.rows()]))
