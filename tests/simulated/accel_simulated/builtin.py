"""Device types that torch ships a module for: loading the device, and stand-ins for torch's C functions.

`runtimes/<name>/sitecustomize.py` calls `install`. From then on `import torch` gives a torch whose
`torch.xpu`, `torch.cuda` or `torch.mps` is torch's own, unchanged Python, over the simulated device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from accel_simulated import device
from accel_simulated.vendors import VENDORS

__all__ = ["install"]

_Change = Callable[[ModuleType], None]


def install(name: str) -> None:
    """Arrange that the device is there when torch looks for it, which it does once."""

    def change_c(module: ModuleType) -> None:
        setattr(module, f"_has_{name}", True)
        device.library.sim_named()
        if name == "mps":  # the CPU wheel has most of torch.mps's C part, which asks the device's hooks
            module._mps_get_name = device.name
            module._mps_get_core_count = lambda: 1
        else:
            from accel_simulated import stand_ins

            stand_ins.put_into(module, name)

    def change_version(module: ModuleType) -> None:
        setattr(module, name, "0.0 (simulated)")  # what a build for the vendor has there

    def change_platform(module: ModuleType) -> None:
        module.platform_matches = lambda platforms: True

    def change_distributed(module: ModuleType) -> None:
        from accel_simulated import collective

        title = VENDORS[name].collective.upper()
        setattr(module, f"_{title}_AVAILABLE", True)
        setattr(module, f"ProcessGroup{title}", collective.stand_in_for(title.lower()))

    # torch._C comes first of all: torch's Python is built on it.
    _change("torch._C", before=lambda: device.load(name), after=change_c)
    if name == "mps":  # of which accel_core knows that it is on Macs only
        _change("accel_core.machine.host", before=lambda: None, after=change_platform)
    else:
        _change("torch.version", before=lambda: None, after=change_version)
    if VENDORS[name].collective:
        _change("torch.distributed.distributed_c10d", before=lambda: None, after=change_distributed)


def _change(module: str, *, before: Callable[[], None], after: _Change) -> None:
    sys.meta_path.insert(0, _Finder(module, before, after))


class _Finder(MetaPathFinder):
    """Finds one module, once, and has it changed when it is loaded."""

    def __init__(self, module: str, before: Callable[[], None], after: _Change) -> None:
        self._module, self._before, self._after = module, before, after

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._before, self._after)
        return spec


class _Loader(Loader):
    """The module's own loader, and what happens before and after."""

    def __init__(self, theirs: Loader, before: Callable[[], None], after: _Change) -> None:
        self._theirs, self._before, self._after = theirs, before, after

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        self._before()
        return self._theirs.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._theirs.exec_module(module)
        self._after(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)
