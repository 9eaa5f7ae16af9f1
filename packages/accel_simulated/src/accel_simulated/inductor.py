"""Make `torch.compile` work on a simulated device, by running inductor's C++ kernels on the device's memory.

This module supports torch 2.13. Inductor needs three classes, which are registered under the device's name: a
scheduling, a wrapper (the code generator for a graph), and a device interface. This module does not import
inductor's modules before torch imports them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from accel_simulated import imports

if TYPE_CHECKING:
    from torch._dynamo.device_interface import DeviceInterface

__all__ = ["begin_kernel", "register"]


def register(name: str) -> None:
    """Make inductor support the device type `name`; the registration happens when inductor is imported."""
    imports.on_import(
        "torch._dynamo.device_interface",
        after=lambda module: _register_device_interface(module, name),
    )
    imports.on_import(
        "torch._inductor.codegen.cpp",
        after=lambda module: _register_code_generators(module, name),
    )


def begin_kernel(index: int) -> None:
    """Wait for the current stream of the device with this index, and trigger the injected faults.

    Code that inductor generates calls this function before each compiled kernel. Raises `RuntimeError` while
    the stream captures a graph, because a graph can record torch's operators but not compiled kernels.
    """
    torch.ops.accel_simulated.begin_kernel(index)


def _register_device_interface(module: ModuleType, name: str) -> None:
    """Register the device interface for the device type `name` and for each device, such as `"npu:0"`."""
    interface = _make_device_interface(module.DeviceInterface, name)
    module.register_interface_for_device(name, interface)
    for index in range(interface.device_count()):
        module.register_interface_for_device(f"{name}:{index}", interface)


def _make_device_interface(
    base: type[DeviceInterface], name: str
) -> type[DeviceInterface]:
    """Return the device interface for dynamo and inductor, a subclass of `base`."""
    from accel_simulated.parts import devices

    accelerator, device_module = torch.accelerator, torch.get_device_module(name)

    def properties(device: Any = None) -> Any:
        # With one processor, inductor does not split a sum over processors. It does not split sums on the CPU
        # either, so results are equal.
        return SimpleNamespace(multi_processor_count=1)

    class Interface(base):  # type: ignore[misc, valid-type]
        """A device interface that calls the functions of `torch.accelerator`."""

        device = getattr(device_module, "device", devices.device)
        Event, Stream = torch.Event, torch.Stream
        Worker = SimpleNamespace(get_device_properties=properties)
        get_device_properties = staticmethod(properties)
        current_device = staticmethod(accelerator.current_device_index)
        set_device = staticmethod(accelerator.set_device_index)
        device_count = staticmethod(accelerator.device_count)
        is_available = staticmethod(accelerator.is_available)
        stream = staticmethod(device_module.stream)
        current_stream = staticmethod(accelerator.current_stream)
        set_stream = staticmethod(accelerator.set_stream)
        synchronize = staticmethod(accelerator.synchronize)
        memory_allocated = staticmethod(accelerator.memory_allocated)
        exchange_device = staticmethod(torch._C._accelerator_exchangeDevice)
        maybe_exchange_device = staticmethod(torch._C._accelerator_maybeExchangeDevice)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return int(accelerator.current_stream(device_idx).stream_id)

        @staticmethod
        def get_compute_capability(*_: Any) -> str:
            return ""

        @staticmethod
        def is_bf16_supported(*_: Any) -> bool:
            return True

    return Interface


def _register_code_generators(cpp: ModuleType, name: str) -> None:
    """Register the scheduling and the wrappers for the device type `name`.

    `cpp` is inductor's module for C++ kernels.
    """
    from torch._inductor import config
    from torch._inductor.codegen import common, wrapper
    from torch.compiler import config as compiler_config

    # Inductor caches generated code on disk. The cache key must change when this file changes.
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    tag = f"{compiler_config.cache_key_tag}accel-simulated-{digest}"
    compiler_config.cache_key_tag = tag

    # Inductor uses these features for every device except the CPU, but its C++ kernels lack them.
    config.loop_ordering_after_fusion = False
    if hasattr(config, "loop_reindexing_after_fusion"):  # since torch 2.13
        config.loop_reindexing_after_fusion = False
    # Inductor uses this class for every device type that is not built in.
    config.cuda_backend = "cpp"  # type: ignore[assignment]

    class Scheduling(cpp.CppScheduling):  # type: ignore[misc, name-defined]
        """A scheduling of C++ kernels that generates each kernel's call at once.

        A later line of the generated code may wait for an event or change the stream.
        """

        def codegen_node(self, node: Any) -> None:
            super().codegen_node(node)
            self.flush()

    class Subgraph(_make_device_wrapper(wrapper.SubgraphPythonWrapperCodegen, name)):  # type: ignore[misc]
        """The code generator for a subgraph, which becomes a function."""

    class Wrapper(_make_device_wrapper(wrapper.PythonWrapperCodegen, name)):  # type: ignore[misc]
        """The code generator for a graph, which becomes a module."""

        @staticmethod
        def create(is_subgraph: bool, *arguments: Any) -> Any:
            if is_subgraph:
                return Subgraph(*arguments)
            return Wrapper()

    common.register_backend_for_device(name, Scheduling, Wrapper)
    common.register_device_op_overrides(name, _make_op_overrides(common))


def _make_op_overrides(common: Any) -> Any:
    """Return a generator of code that controls the device; `common` is inductor's module `common`."""

    class Overrides(common.DeviceOpOverrides):  # type: ignore[misc]
        """A generator of code that controls the device with functions of `torch.accelerator`."""

        def import_get_raw_stream_as(self, name: str) -> str:
            return f"def {name}(index):\n    return torch.accelerator.current_stream(index).stream_id\n"

        def set_device(self, device_idx: int) -> str:
            return f"torch.accelerator.set_device_index({device_idx})"

        def synchronize(self) -> str:
            return "torch.accelerator.synchronize()"

        def device_guard(self, device_idx: int) -> str:
            return f"torch.accelerator.device_index({device_idx})"

    return Overrides()


def _make_device_wrapper(base: type, name: str) -> type:
    """Return a subclass of inductor's wrapper `base` that generates code for the device type `name`."""

    class DeviceWrapper(base):  # type: ignore[misc]
        """A code generator that calls C++ kernels as on the CPU, and `begin_kernel` before each kernel."""

        def _generate_kernel_call_helper(
            self, kernel_name: str, call_args: Any, **options: Any
        ) -> None:
            device: Any = options.get("device")
            is_on_device = device is not None and device.type == name
            is_triton_kernel = options.get("triton", True)
            if not is_on_device or is_triton_kernel:
                super()._generate_kernel_call_helper(kernel_name, call_args, **options)
                return
            self.add_import_once(f"from {__name__} import begin_kernel")
            self.writeline(f"begin_kernel({device.index})")
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))

        def codegen_cuda_stream_enter(self, stream_idx: int) -> Any:
            # Inductor assigns the streams' names in the code of a device guard, which only built-in devices
            # have.
            if not vars(self).get("_has_stream_names"):
                self._has_stream_names = True
                self._generate_stream_names()
            return super().codegen_cuda_stream_enter(stream_idx)

        def _generate_stream_names(self) -> None:
            """Generate assignments to the stream names that `codegen_cuda_stream_enter` uses."""
            from torch._inductor.stream_utils import get_stream_name
            from torch._inductor.virtualized import V

            scheduler: Any = V.graph.scheduler
            lookup = "get_external_object_by_index"
            self.add_import_once(
                f"from torch._dynamo.graph_bytecode_inputs import {lookup}"
            )
            current = (
                f"torch.accelerator.current_stream({scheduler.current_device.index})"
            )
            self.writeline(f"{get_stream_name(0)} = {current}")
            for stream, user_object in scheduler.stream_idx_to_user_obj_idx.items():
                self.writeline(f"{get_stream_name(stream)} = {lookup}({user_object})")

        def make_allocation(
            self, name: str, device: Any, *arguments: Any, **options: Any
        ) -> str:
            # Inductor omits the device's index, because it runs code for built-in devices in a device guard.
            line: str = super().make_allocation(name, device, *arguments, **options)
            return line.replace(f"device='{device.type}'", f"device='{device}'")

    return DeviceWrapper
