"""Record arguments of torch functions that name a vendor, and calls to functions that few devices support.

Device strings are recorded by `device_strings`, which intercepts them in every function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from accel_simulated.detector import advice
from accel_simulated.detector.log import Log
from accel_simulated.detector.names import VendorNames
from accel_simulated.detector.wrapping import (
    Use,
    call_when_imported,
    replace_function,
    wrap_to_record_calls,
    wrap_to_record_matching_calls,
)

__all__ = ["Arguments"]

_FindUse: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], "Use | None"]

#: The functions that DataParallel uses to copy tensors between devices. Only CUDA builds of torch have them.
_DATA_PARALLEL_FUNCTIONS = {
    "torch.nn.parallel.data_parallel": ("data_parallel",),
    "torch.nn.parallel.scatter_gather": ("scatter", "gather"),
    "torch.nn.parallel.replicate": ("replicate",),
    "torch.nn.parallel.comm": (
        "broadcast",
        "broadcast_coalesced",
        "reduce_add",
        "reduce_add_coalesced",
        "scatter",
        "gather",
    ),
}
#: The device types other than CUDA that `flex_attention` supports in torch 2.13 (`_validate_device`).
_FLEX_ATTENTION_TYPES = ("xpu", "hpu", "mps")
#: The CPU's collective backend, which comes last in many mappings of device types to backends.
_GLOO = "gloo"


class _Parameter(NamedTuple):
    """A parameter of a torch function that takes a device type or a collective backend."""

    name: str
    #: The parameter's position, or `None` for a keyword-only parameter.
    position: int | None
    #: A key of `advice.KINDS`.
    kind: str
    #: The template of the call in the report, with `{}` for the argument: `"DeviceMesh({})"`.
    call_template: str
    #: The value that the function uses if the argument is omitted.
    default: str = ""

    def find_argument(
        self, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> str | None:
        """Return the argument for this parameter in a call, or `None` if the call omits it."""
        if self.position is not None and len(arguments) > self.position:
            argument = arguments[self.position]
        else:
            argument = named.get(self.name)
        if argument is None:
            return None
        return str(argument)


class Arguments:
    """A recorder that wraps torch functions whose arguments can name a vendor."""

    def __init__(
        self,
        log: Log,
        names: Mapping[str, VendorNames],
        simulated_type: str,
        simulated_collective: str,
    ) -> None:
        """Create a recorder for calls whose arguments contain one of these names.

        `simulated_type` is the torch device type of the simulated device. `simulated_collective` is the
        collective backend of that device, or an empty string.
        """
        self._log = log
        self._names = names
        self._simulated_type = simulated_type
        self._simulated_collective = simulated_collective
        #: The device type of each collective backend.
        self._collective_types: dict[str, str] = {}
        for device_type, vendor_names in names.items():
            for collective in vendor_names.collectives:
                self._collective_types[collective] = device_type

    def watch(self) -> None:
        """Start recording calls to torch functions whose arguments can name a vendor.

        Functions in modules that are already imported are wrapped at once, and the others when torch imports
        them.
        """
        import torch

        # In a constructor, position 0 is `self`.
        device = _Parameter(
            name="device",
            position=1,
            kind="precision",
            call_template="GradScaler({})",
            default="cuda",
        )
        self._record_instances(torch.amp.grad_scaler.GradScaler, device)
        self._watch_custom_functions()
        device_type = _Parameter(
            name="device_type",
            position=2,
            kind="device",
            call_template="save_on_cpu({})",
        )
        self._record_instances(torch.autograd.graph.save_on_cpu, device_type)
        self._watch_data_parallel()
        call_when_imported("torch.utils.data.dataloader", self._watch_data_loader)
        call_when_imported(
            "torch.distributed.distributed_c10d", self._watch_process_groups
        )
        call_when_imported("torch.distributed.device_mesh", self._watch_device_mesh)
        call_when_imported("torch.profiler.profiler", self._watch_profiler)
        if self._simulated_type not in _FLEX_ATTENTION_TYPES:
            flex_attention = "torch.nn.attention.flex_attention"
            call_when_imported(flex_attention, self._watch_flex_attention)

    def _watch_custom_functions(self) -> None:
        """Record calls to `custom_fwd` and `custom_bwd`, such as `custom_fwd(f, device_type="cuda")`."""
        from torch.amp import autocast_mode

        for name in ("custom_fwd", "custom_bwd"):
            self._record_calls_of(
                autocast_mode, name, self._make_custom_function_finder(name)
            )

    def _make_custom_function_finder(self, name: str) -> _FindUse:
        """Return a function that looks for a recorded device type in calls to the function `name`.

        `name` is `"custom_fwd"` or `"custom_bwd"`.
        """
        parameter = _Parameter(
            name="device_type",
            position=None,
            kind="precision",
            call_template=f"{name}({{}})",
        )
        find_use_in_any_call = self._make_device_type_finder(parameter)

        def find_use(arguments: tuple[Any, ...], named: dict[str, Any]) -> Use | None:
            # Without a positional argument, torch returns a decorator, which calls the function again.
            if not arguments:
                return None
            return find_use_in_any_call(arguments, named)

        return find_use

    def _watch_profiler(self, module: Any) -> None:
        """Record `profile(activities=[ProfilerActivity.CUDA])`."""

        def find_use(_arguments: tuple[Any, ...], named: dict[str, Any]) -> Use | None:
            for activity in named.get("activities") or ():
                device_type = activity.name.lower()
                if device_type in self._names:
                    what = f"ProfilerActivity.{activity.name}"
                    return Use(kind="device", what=what, device_type=device_type)
            return None

        cls = module.profile
        cls.__init__ = wrap_to_record_matching_calls(self._log, cls.__init__, find_use)

    def _watch_data_loader(self, module: Any) -> None:
        """Record `DataLoader(pin_memory_device="cuda")`."""
        parameter = _Parameter(
            name="pin_memory_device",
            position=None,
            kind="pinning",
            call_template="pin_memory_device={}",
        )
        self._record_instances(module.DataLoader, parameter)

    def _watch_device_mesh(self, module: Any) -> None:
        """Record `DeviceMesh("cuda", …)` and `init_device_mesh("cuda", …)`."""
        parameter = _Parameter(
            name="device_type",
            position=1,
            kind="device",
            call_template="DeviceMesh({})",
        )
        self._record_instances(module.DeviceMesh, parameter)
        parameter = _Parameter(
            name="device_type",
            position=0,
            kind="device",
            call_template="init_device_mesh({})",
        )
        find_use = self._make_device_type_finder(parameter)
        self._record_calls_of(module, "init_device_mesh", find_use)

    def _watch_process_groups(self, module: Any) -> None:
        """Record the backend names of process groups, and queries such as `is_nccl_available()`."""
        for function, position in (("init_process_group", 0), ("new_group", 2)):
            parameter = _Parameter(
                name="backend",
                position=position,
                kind="collective",
                call_template=f"{function}({{}})",
            )
            find_use = self._make_collective_finder(parameter)
            self._record_calls_of(module, function, find_use)
        for collective, device_type in self._collective_types.items():
            check = getattr(module, f"is_{collective}_available", None)
            if check is not None:
                use = Use(
                    kind=advice.DEVICE_CHECK,
                    what=f"{check.__name__}()",
                    device_type=device_type,
                )
                replace_function(
                    module, check, wrap_to_record_calls(self._log, check, use)
                )

    def _watch_data_parallel(self) -> None:
        """Record uses of `DataParallel` and of the functions that copy tensors between devices."""
        import torch

        cls: Any = torch.nn.DataParallel
        use = Use(kind="limited", what="torch.nn.DataParallel()", device_type="cuda")
        cls.__init__ = wrap_to_record_calls(self._log, cls.__init__, use)
        for module_name, names in _DATA_PARALLEL_FUNCTIONS.items():
            module = sys.modules[module_name]
            for name in names:
                function = getattr(module, name)
                use = Use(
                    kind="limited",
                    what=f"torch.nn.parallel.{name}()",
                    device_type="cuda",
                )
                replace_function(
                    module, function, wrap_to_record_calls(self._log, function, use)
                )

    def _watch_flex_attention(self, module: ModuleType) -> None:
        """Record calls to `flex_attention` with tensors on the simulated device."""
        import torch

        def find_use(arguments: tuple[Any, ...], named: dict[str, Any]) -> Use | None:
            # torch.compile traces this function too, and cannot trace the code that records.
            if torch.compiler.is_dynamo_compiling():
                return None
            query = arguments[0] if arguments else named.get("query")
            if not isinstance(query, torch.Tensor):
                return None
            if query.device.type != self._simulated_type:
                return None
            return Use(kind="limited", what="flex_attention()", device_type="cuda")

        self._record_calls_of(module, "flex_attention", find_use)

    def _make_device_type_finder(self, parameter: _Parameter) -> _FindUse:
        """Return a function that looks for a recorded device type in the arguments of a call."""

        def find_use(arguments: tuple[Any, ...], named: dict[str, Any]) -> Use | None:
            argument = parameter.find_argument(arguments, named)
            device = argument or parameter.default
            device_type, _, _ = device.partition(":")
            if device_type not in self._names:
                return None
            what = parameter.call_template.format(f'"{device}"')
            # torch supplies the default, so no string in the program contains it.
            name_in_string = device_type if argument else ""
            return Use(
                kind=parameter.kind,
                what=what,
                device_type=device_type,
                name_in_string=name_in_string,
            )

        return find_use

    def _make_collective_finder(self, parameter: _Parameter) -> _FindUse:
        """Return a function that looks for a vendor's or the CPU's backend in the arguments of a call."""

        def find_use(arguments: tuple[Any, ...], named: dict[str, Any]) -> Use | None:
            argument = parameter.find_argument(arguments, named) or ""
            what = parameter.call_template.format(f'"{argument}"')
            # An argument such as "cpu:gloo,cuda:nccl" contains several device types and backends.
            for name in argument.lower().replace(":", ",").split(","):
                device_type = self._collective_types.get(name)
                if device_type is not None:
                    return Use(
                        kind=parameter.kind,
                        what=what,
                        device_type=device_type,
                        name_in_string=name,
                    )
            # A default group with gloo leaves the device's own backend unused, and is recorded. Another group
            # with gloo is for tensors on the CPU, and is not recorded.
            is_default_group = parameter.call_template.startswith("init_process_group")
            is_gloo = argument.lower() == _GLOO
            if is_default_group and is_gloo and self._simulated_collective:
                return Use(kind=parameter.kind, what=what, device_type="cpu")
            return None

        return find_use

    def _record_instances(self, cls: Any, parameter: _Parameter) -> None:
        """Record code that creates instances of a class for a recorded device type."""
        find_use = self._make_device_type_finder(parameter)
        cls.__init__ = wrap_to_record_matching_calls(self._log, cls.__init__, find_use)

    def _record_calls_of(
        self, module: ModuleType, name: str, find_use: _FindUse
    ) -> None:
        """Wrap a module's function so that calls in which `find_use` finds a use are recorded."""
        function = getattr(module, name)
        replace_function(
            module,
            function,
            wrap_to_record_matching_calls(self._log, function, find_use),
        )
