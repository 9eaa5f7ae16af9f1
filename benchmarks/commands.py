"""The whole command as a user waits for it: `accel list` and `accel why`, from start to exit."""

from __future__ import annotations

import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks import finding
from benchmarks.harness import COMPILED, Row, in_turns, ratio_row

#: `accel list` where torch is not installed: `None` in `sys.modules` is how an import is forbidden.
_LIST = """
import sys
sys.path.insert(0, {root!r})
sys.modules["torch"] = None
sys.argv = ["accel", "list"]
from accel_core.cli import main
main()
"""


def list_row(distributions: int, plugins: int, bound: float, rounds: int = 21) -> Row:
    """`accel list` without torch and without the plugins' vendors, so that no process is started to probe.

    The distributions of this environment come on top of the synthetic ones.
    """
    with tempfile.TemporaryDirectory() as folder:
        for index in range(distributions):
            finding.distribution(Path(folder), index, plugin=index < plugins)
        code = _LIST.format(root=folder)
        page = _output(
            "-c", code, environ=COMPILED
        )  # leaves byte code, as pip does at installation
        assert len(re.findall(r"\bplug\d+\b", page)) == plugins, page
        assert "torch is not installed" in page, page
        pairs = in_turns(
            partial(_seconds, "-c", code), partial(_seconds, "-c", "pass"), rounds
        )
    seconds, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    label = f"accel list, no torch, {plugins} plugins among {distributions}"
    return Row(label, "bare Python", seconds, bare, seconds * 1e3, bound, "ms")


def torch_row(command: str, rounds: int = 9) -> Row:
    """A command beside a torch that it does not import, against importing torch; for information."""
    arguments = ("-m", "accel_core", command)
    _output(*arguments, environ=COMPILED)
    pairs = in_turns(
        partial(_seconds, *arguments), partial(_seconds, "-c", "import torch"), rounds
    )
    return ratio_row(
        f"accel {command}, for information", 'python -c "import torch"', pairs, math.inf
    )


def _output(*arguments: str, environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **(environ or {})},
    )
    return done.stdout


def _seconds(*arguments: str) -> float:
    """Wall time of one process, its start and its exit included."""
    start = perf_counter()
    _output(*arguments)
    return perf_counter() - start


def rows() -> list[Row]:
    """All rows of this module."""
    return [list_row(500, 20, 200.0), torch_row("list"), torch_row("why")]
