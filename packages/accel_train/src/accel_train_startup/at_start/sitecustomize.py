"""Startup code on the `PYTHONPATH` of ranks whose torch must not load the packages registered with it.

The entry point that imports the chosen vendor's package and activates integrations is one of those packages,
so torch skips it with the others. Therefore Python imports this module at startup. It calls that entry point
when torch has been imported, as torch's autoload would, and runs the `sitecustomize` that it shadows.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - before every program: as little as can be


class _AfterTorch:
    """A finder that has torch's loader call the entry point at the end of the import."""

    @staticmethod
    def find_spec(
        name: str, _path: object = None, _target: object = None
    ) -> ModuleSpec | None:
        if name != "torch" or _AfterTorch not in sys.meta_path:
            return None
        sys.meta_path.remove(_AfterTorch)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            _call_at_the_end(spec.loader)
        return spec


def _call_at_the_end(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        import accel_train_startup as startup

        startup.autoload()

    loader.exec_module = exec_module


def _run_the_next() -> None:
    """Python has room for one module of this name; it is the environment's, where that has one."""
    others = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if (
    os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1"
):  # else torch calls it itself
    sys.meta_path.insert(0, _AfterTorch)
_run_the_next()
