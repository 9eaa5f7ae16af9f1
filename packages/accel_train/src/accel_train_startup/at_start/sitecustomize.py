"""Call `accel_train_startup.autoload` after `import torch`, in ranks in which torch's autoload is off.

`accel_train_startup` is one of the packages that torch's autoload loads, so torch does not load it in these
ranks. Python imports this module at startup instead, because its folder is on `PYTHONPATH`. This module
shadows the environment's own `sitecustomize`, and therefore runs that module too.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - runs before every program, so imports little


class _TorchFinder:
    """A finder that finds torch once, with a loader that calls `autoload` after the import."""

    @staticmethod
    def find_spec(
        name: str, _path: object = None, _target: object = None
    ) -> ModuleSpec | None:
        if name != "torch" or _TorchFinder not in sys.meta_path:
            return None
        # This finder is removed, so that the call below finds torch as usual.
        sys.meta_path.remove(_TorchFinder)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            _make_loader_call_autoload(spec.loader)
        return spec


def _make_loader_call_autoload(loader: Any) -> None:
    """Make `loader` call `accel_train_startup.autoload` after it has executed its module."""
    original_exec_module = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        original_exec_module(module)
        import accel_train_startup as startup

        startup.autoload()

    loader.exec_module = exec_module


def _run_shadowed_sitecustomize() -> None:
    """Import the environment's own `sitecustomize` module, if there is one, in place of this module."""
    other_folders = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", other_folders)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


# With its autoload on, torch calls the entry point itself.
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
    sys.meta_path.insert(0, _TorchFinder)
_run_shadowed_sitecustomize()
