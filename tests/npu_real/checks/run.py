"""Runs one module of checks on the accelerator and prints what came of it: `python -m checks.run devices`.

A check is a function `check_…(acc)`. They share a process and run in the order of the file, so that the first
ones see the device not initialised. Every member that they use is noted.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

__all__ = ["Recorder", "names"]


class Recorder:
    """The accelerator, with a note of every member that somebody uses."""

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        return getattr(self.accelerator, name)


def names(module: str) -> list[str]:
    """The checks of a module, read from its source: importing it would import torch."""
    text = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    return [
        line.split("(")[0].removeprefix("def ") for line in text.splitlines() if line.startswith("def check_")
    ]


def main(module: str) -> None:
    import accel_core

    acc = Recorder(accel_core.get_accelerator())
    import torch

    torch.npu.config.allow_internal_format = False  # else torch_npu warns of it at the first tensor
    checks = importlib.import_module(f"checks.{module}")
    # A member of ours must not call what torch or torch_npu calls deprecated.
    warnings.simplefilter("error", FutureWarning)
    warnings.simplefilter("error", DeprecationWarning)
    results = {}
    for name, check in inspect.getmembers(checks, inspect.isfunction):
        if name.startswith("check_"):
            results[name] = check
    order = sorted(results, key=lambda name: results[name].__code__.co_firstlineno)
    failures = {}
    for name in order:
        try:
            results[name](acc)
        except Exception:
            failures[name] = traceback.format_exc()
    print(json.dumps({"ran": order, "failures": failures, "used": sorted(acc.used)}))
    sys.stdout.flush()
    os._exit(0)  # the vendor's shutdown is not what is checked here


if __name__ == "__main__":
    main(sys.argv[1])
