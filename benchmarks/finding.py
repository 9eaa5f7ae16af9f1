"""What importing accel_core and finding plugins cost, each in fresh interpreters."""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import COMPILED, Row, child_seconds, in_turns, ratio_row

_PLUGIN = """
from accel_core import Backend, hookimpl

@hookimpl
def accel_backends():
    return Backend(
        name="{name}", priority={priority}, device_type="{name}", vendor_import="vendor_{name}"
    )
"""

_TIMED = """
import json, sys, time
sys.path.insert(0, {root!r})
{before}
start = time.perf_counter()
{body}
print(json.dumps(time.perf_counter() - start))
"""

_IMPORTED = """
import pluggy, importlib.metadata
import accel_core.detection.discovery, accel_core.hookspecs
"""

_OURS = """
from accel_core import discover
found = discover()
assert len([c for c in found if not c.builtin]) == {plugins}, found
"""

_PEER = """
from importlib.metadata import entry_points
found = [e.load() for e in entry_points(group='accel.backends')]
assert len(found) == {plugins}, found
"""

_IMPORT = """
import json, sys, time
start = time.perf_counter()
import accel_core
seconds = time.perf_counter() - start
heavy = sorted({'torch', 'pluggy', 'importlib.metadata'} & set(sys.modules))
assert not heavy, heavy
print(json.dumps(seconds))
"""


def import_row(rounds: int = 21) -> Row:
    """What `import accel_core` adds to a bare interpreter, in milliseconds."""
    seconds = statistics.median(child_seconds(_IMPORT) for _ in range(rounds))
    return Row(
        "import accel_core", "bare Python", seconds, 0.0, seconds * 1e3, 15.0, "ms"
    )


def discovery_row(
    distributions: int, plugins: int, bound: float, *, warm: bool, rounds: int = 9
) -> Row:
    """Find and load all plugins, against `entry_points(group=…)` and loading each.

    `warm`: what each side imports of pluggy, importlib.metadata and its own modules is imported before the
    clock starts, also what we import only once a plugin is found; else each side pays for its own imports.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for index in range(distributions):
            distribution(root, index, plugin=index < plugins)
        before = _IMPORTED if warm else ""
        ours, peer = (
            _TIMED.format(root=folder, before=before, body=body.format(plugins=plugins))
            for body in (_OURS, _PEER)
        )
        for code in (ours, peer):
            child_seconds(
                code, COMPILED
            )  # compiles the plugins' modules, as pip does at installation
        pairs = in_turns(
            lambda: child_seconds(ours), lambda: child_seconds(peer), rounds
        )
    state = "imports done" if warm else "fresh process"
    return ratio_row(
        f"find {plugins} plugins among {distributions} ({state})",
        "entry_points() + load()",
        pairs,
        bound,
    )


def distribution(root: Path, index: int, *, plugin: bool) -> None:
    """A synthetic installed distribution; of those that are no plugins a quarter has entry points."""
    name = f"plug{index}" if plugin else f"dist{index}"
    info = root / f"{name}-1.0.dist-info"
    info.mkdir()
    headers = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nSummary: synthetic\n\ntext\n"
    (info / "METADATA").write_text(headers)
    if plugin:
        (info / "entry_points.txt").write_text(
            f"[accel.backends]\n{name} = {name}_module\n"
        )
        (root / f"{name}_module.py").write_text(
            _PLUGIN.format(name=name, priority=index)
        )
    elif index % 4 == 0:
        (info / "entry_points.txt").write_text(
            f"[console_scripts]\n{name} = {name}:main\n"
        )


def rows() -> list[Row]:
    """All rows of this module."""
    if sys.flags.dont_write_bytecode:
        print(
            "note: PYTHONDONTWRITEBYTECODE is set; sources without byte code are compiled at every import"
        )
    return [
        import_row(),
        discovery_row(1000, 20, 0.5, warm=True),
        discovery_row(1000, 20, 0.45, warm=False),
        # For information: with so few distributions both sides take milliseconds.
        discovery_row(20, 20, math.inf, warm=True),
        discovery_row(20, 20, math.inf, warm=False),
        discovery_row(20, 1, math.inf, warm=True),
        discovery_row(20, 1, math.inf, warm=False),
    ]
