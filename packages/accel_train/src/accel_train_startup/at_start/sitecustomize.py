"""Startup code on the `PYTHONPATH` of ranks whose torch must not load the packages registered with it.

The entry point that activates integrations in a child process is one of those packages, so torch skips it
with the others. Therefore Python imports this module at startup. It makes torch's first import call that
entry point, and runs the `sitecustomize` that it shadows.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - before every program: as little as can be


class _BeforeTorch:
    """A finder that finds nothing; it sees that torch is about to be imported."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "torch" and _BeforeTorch in sys.meta_path:
            sys.meta_path.remove(_BeforeTorch)
            import accel_train_startup as startup

            startup.autoload()


def _run_the_next() -> None:
    """Python has room for one module of this name; it is the environment's, where that has one."""
    others = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":  # else torch calls it itself
    sys.meta_path.insert(0, _BeforeTorch)
_run_the_next()
