"""Record arguments of torch's functions that name a vendor, and calls of functions that few devices support.

Device strings are recorded by `device_strings`, which intercepts them in every function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from accel_simulated.detector.log import Log
from accel_simulated.detector.names import VendorNames
from accel_simulated.detector.wrapping import (
    Use,
    recorded,
    recorded_if,
    replace,
    when_imported,
)

__all__ = ["Arguments"]

_FindUse: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], "Use | None"]

#: The functions with which DataParallel copies among devices; only CUDA builds of torch have them.
_DATA_PARALLEL = {
    "torch.nn.parallel.data_parallel": ("data_parallel",),
    "torch.nn.parallel.scatter_gather": ("scatter", "gather"),
    "torch.nn.parallel.replicate": ("replicate",),
}
#: Devices other than CUDA that flex_attention of torch 2.13 supports (`_validate_device`).
_FLEX_ATTENTION = ("xpu", "hpu", "mps")
#: The CPU's backend, with which many tables of backends end.
_GLOO = "gloo"


class _Parameter(NamedTuple):
    """A parameter of one of torch's functions that takes a device type."""

    name: str
    #: The parameter's position; `None` for a keyword-only parameter.
    position: int | None
    #: A key of `advice.KINDS`.
    kind: str
    #: The call in the report's words, with `{}` for the argument: `"DeviceMesh({})"`.
    call: str
    #: The value that the function uses if the argument is missing.
    default: str = ""

    def value(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str | None:
        """Return the argument of a call; `None` if the call does not pass the argument."""
        if self.position is not None and len(arguments) > self.position:
            given = arguments[self.position]
        else:
            given = named.get(self.name)
        return None if given is None else str(given)


class Arguments:
    """The wrappers of functions whose arguments name a vendor."""

    def __init__(
        self, log: Log, names: Mapping[str, VendorNames], own: str, own_collective: str
    ) -> None:
        """Record `names`; `own` is the simulated device's torch type, `own_collective` its backend's name."""
        self._log = log
        self._names = names
        self._own = own
        self._own_collective = own_collective
        self._collectives = {
            collective: device_type
            for device_type, of_type in names.items()
            for collective in of_type.collectives
        }

    def watch(self) -> None:
        """Wrap the functions that torch has already imported; wrap other functions when they are imported."""
        import torch

        device = _Parameter("device", 1, "precision", "GradScaler({})", default="cuda")
        self._watch_init(torch.amp.grad_scaler.GradScaler, device)
        self._watch_custom_functions()
        device_type = _Parameter("device_type", 2, "device", "save_on_cpu({})")
        self._watch_init(torch.autograd.graph.save_on_cpu, device_type)
        self._watch_data_parallel()
        when_imported("torch.utils.data.dataloader", self._watch_data_loader)
        when_imported("torch.distributed.distributed_c10d", self._watch_process_groups)
        when_imported("torch.distributed.device_mesh", self._watch_device_mesh)
        when_imported("torch.profiler.profiler", self._watch_profiler)
        if self._own not in _FLEX_ATTENTION:
            flex_attention = "torch.nn.attention.flex_attention"
            when_imported(flex_attention, self._watch_flex_attention)

    def _watch_custom_functions(self) -> None:
        """Record `custom_fwd(function, device_type="cuda")` and `custom_bwd` of autograd functions."""
        from torch.amp import autocast_mode

        for name in ("custom_fwd", "custom_bwd"):
            parameter = _Parameter("device_type", None, "precision", f"{name}({{}})")
            find_use = self._type_finder(parameter)

            def find_use_of_function(
                arguments: tuple[Any, ...],
                named: dict[str, Any],
                find_use: _FindUse = find_use,
            ) -> Use | None:
                # Without a function, torch returns a decorator, which calls this again.
                return find_use(arguments, named) if arguments else None

            self._replace(autocast_mode, name, find_use_of_function)

    def _watch_profiler(self, module: Any) -> None:
        """Record `profile(activities=[ProfilerActivity.CUDA])`."""

        def find_use(_arguments: tuple[Any, ...], named: dict[str, Any]) -> Use | None:
            for activity in named.get("activities") or ():
                device_type = activity.name.lower()
                if device_type in self._names:
                    what = f"ProfilerActivity.{activity.name}"
                    return Use("device", what, device_type)
            return None

        cls = module.profile
        cls.__init__ = recorded_if(self._log, cls.__init__, find_use)

    def _watch_data_loader(self, module: Any) -> None:
        """Record `DataLoader(pin_memory_device="cuda")`."""
        name = "pin_memory_device"
        parameter = _Parameter(name, None, "pinning", f"{name}={{}}")
        self._watch_init(module.DataLoader, parameter)

    def _watch_device_mesh(self, module: Any) -> None:
        """Record `DeviceMesh("cuda", …)` and `init_device_mesh("cuda", …)`."""
        parameter = _Parameter("device_type", 1, "device", "DeviceMesh({})")
        self._watch_init(module.DeviceMesh, parameter)
        parameter = _Parameter("device_type", 0, "device", "init_device_mesh({})")
        self._replace(module, "init_device_mesh", self._type_finder(parameter))

    def _watch_process_groups(self, module: Any) -> None:
        """Record the backends of process groups, and queries such as `is_nccl_available()`."""
        for function, position in (("init_process_group", 0), ("new_group", 2)):
            call = f"{function}({{}})"
            parameter = _Parameter("backend", position, "collective", call)
            self._replace(module, function, self._collective_finder(parameter))
        for collective, device_type in self._collectives.items():
            question = getattr(module, f"is_{collective}_available", None)
            if question is not None:
                use = Use("ask", f"{question.__name__}()", device_type)
                replace(module, question, recorded(self._log, question, use))

    def _watch_data_parallel(self) -> None:
        """Record `DataParallel`, and the functions that copy among devices."""
        import torch

        cls: Any = torch.nn.DataParallel
        use = Use("limited", "torch.nn.DataParallel()", "cuda")
        cls.__init__ = recorded(self._log, cls.__init__, use)
        for module_name, names in _DATA_PARALLEL.items():
            module = sys.modules[module_name]
            for name in names:
                function = getattr(module, name)
                use = Use("limited", f"torch.nn.parallel.{name}()", "cuda")
                replace(module, function, recorded(self._log, function, use))

    def _watch_flex_attention(self, module: ModuleType) -> None:
        """Record `flex_attention` of tensors on the simulated device."""
        import torch

        def find_use(arguments: tuple[Any, ...], named: dict[str, Any]) -> Use | None:
            # torch.compile traces this function too, and cannot trace the code that records.
            if torch.compiler.is_dynamo_compiling():
                return None
            query = arguments[0] if arguments else named.get("query")
            if not isinstance(query, torch.Tensor) or query.device.type != self._own:
                return None
            return Use("limited", "flex_attention()", "cuda")

        self._replace(module, "flex_attention", find_use)

    def _type_finder(self, parameter: _Parameter) -> _FindUse:
        """Return a function that finds a recorded device type in the arguments of a call."""

        def find_use(arguments: tuple[Any, ...], named: dict[str, Any]) -> Use | None:
            given = parameter.value(arguments, named)
            text = given or parameter.default
            device_type = text.partition(":")[0]
            if device_type not in self._names:
                return None
            what = parameter.call.format(f'"{text}"')
            # torch chose the default, so no string in the program contains it.
            return Use(parameter.kind, what, device_type, device_type if given else "")

        return find_use

    def _collective_finder(self, parameter: _Parameter) -> _FindUse:
        """Return a function that finds a backend of one vendor, or of the CPU, in the arguments of a call."""

        def find_use(arguments: tuple[Any, ...], named: dict[str, Any]) -> Use | None:
            given = parameter.value(arguments, named) or ""
            what = parameter.call.format(f'"{given}"')
            for part in given.lower().replace(":", ",").split(","):
                if part in self._collectives:
                    return Use(parameter.kind, what, self._collectives[part], part)
            # A second group with gloo is for tensors on the CPU.
            is_default_group = parameter.call.startswith("init_process_group")
            if is_default_group and given.lower() == _GLOO and self._own_collective:
                return Use(parameter.kind, what, "cpu")
            return None

        return find_use

    def _watch_init(self, cls: Any, parameter: _Parameter) -> None:
        """Record code that creates an instance of a class for a recorded device type."""
        find_use = self._type_finder(parameter)
        cls.__init__ = recorded_if(self._log, cls.__init__, find_use)

    def _replace(self, module: ModuleType, name: str, find_use: _FindUse) -> None:
        """Wrap a module's function, to record calls in which `find_use` finds a use."""
        function = getattr(module, name)
        replace(module, function, recorded_if(self._log, function, find_use))
