"""`torch.compile` on a simulated device: inductor's own C++ kernels, over the device's memory.

Written against torch 2.13: to inductor a device is a scheduling, a wrapper and an interface, which are
registered under its name. Nothing of inductor is imported before torch itself does.
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

__all__ = ["begin_kernel", "teach"]


def teach(name: str) -> None:
    """Register the device with inductor, when inductor is first used."""
    imports.change(
        "torch._dynamo.device_interface",
        after=lambda module: _add_interface(module, name),
    )
    imports.change(
        "torch._inductor.codegen.cpp", after=lambda module: _add_code(module, name)
    )


def begin_kernel(index: int) -> None:
    """Before each compiled kernel, wait for the device's stream and apply the requested faults.

    Raises `RuntimeError` while the stream is capturing: a graph records torch's operators, but not compiled
    kernels.
    """
    torch.ops.accel_simulated.begin_kernel(index)


def _add_interface(module: ModuleType, name: str) -> None:
    interface = _interface(module.DeviceInterface, name)
    for known in (
        name,
        *(f"{name}:{index}" for index in range(interface.device_count())),
    ):
        module.register_interface_for_device(known, interface)


def _interface(base: type[DeviceInterface], name: str) -> type[DeviceInterface]:
    from accel_simulated.parts import devices

    accelerator, of_vendor = torch.accelerator, torch.get_device_module(name)

    def properties(device: Any = None) -> Any:
        # On so many cores reductions are split; CPU's are not, and sums must be the same.
        return SimpleNamespace(multi_processor_count=1)

    class Interface(base):  # type: ignore[misc, valid-type]
        """The device interface that dynamo and inductor ask, on `torch.accelerator`."""

        device = getattr(of_vendor, "device", devices.device)
        Event, Stream = torch.Event, torch.Stream
        Worker = SimpleNamespace(get_device_properties=properties)
        get_device_properties = staticmethod(properties)
        current_device = staticmethod(accelerator.current_device_index)
        set_device = staticmethod(accelerator.set_device_index)
        device_count = staticmethod(accelerator.device_count)
        is_available = staticmethod(accelerator.is_available)
        stream = staticmethod(of_vendor.stream)
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


def _add_code(cpp: ModuleType, name: str) -> None:
    from torch._inductor import config
    from torch._inductor.codegen import common, wrapper
    from torch.compiler import config as of_compiler

    # What is kept on disk must not outlive the code below, of which inductor's key knows nothing.
    ours = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    of_compiler.cache_key_tag = f"{of_compiler.cache_key_tag}accel-simulated-{ours}"

    # What inductor does for every device but the CPU, and its C++ kernels are not made for.
    config.loop_ordering_after_fusion = False
    if hasattr(config, "loop_reindexing_after_fusion"):  # since torch 2.13
        config.loop_reindexing_after_fusion = False
    # And what it takes for the backend of every device that it does not know.
    config.cuda_backend = "cpp"  # type: ignore[assignment]

    class Scheduling(cpp.CppScheduling):  # type: ignore[misc, name-defined]
        """Writes each kernel's call at once: a wait, an event or a stream may come next."""

        def codegen_node(self, node: Any) -> None:
            super().codegen_node(node)
            self.flush()

    class Subgraph(_calling(wrapper.SubgraphPythonWrapperCodegen, name)):  # type: ignore[misc]
        """The function of a part of a graph."""

    class Wrapper(_calling(wrapper.PythonWrapperCodegen, name)):  # type: ignore[misc]
        """The module of a graph."""

        @staticmethod
        def create(is_subgraph: bool, *arguments: Any) -> Any:
            return Subgraph(*arguments) if is_subgraph else Wrapper()

    common.register_backend_for_device(name, Scheduling, Wrapper)
    common.register_device_op_overrides(name, _overrides(common))


def _overrides(common: Any) -> Any:
    class Overrides(common.DeviceOpOverrides):  # type: ignore[misc]
        """The lines that the generated code has about the device."""

        def import_get_raw_stream_as(self, name: str) -> str:
            return f"def {name}(index):\n    return torch.accelerator.current_stream(index).stream_id\n"

        def set_device(self, device_idx: int) -> str:
            return f"torch.accelerator.set_device_index({device_idx})"

        def synchronize(self) -> str:
            return "torch.accelerator.synchronize()"

        def device_guard(self, device_idx: int) -> str:
            return f"torch.accelerator.device_index({device_idx})"

    return Overrides()


def _calling(base: type, name: str) -> type:
    class Calling(base):  # type: ignore[misc]
        """Calls kernels on the device as on CPU, once the device is ready for them."""

        def _generate_kernel_call_helper(
            self, kernel_name: str, call_args: Any, **more: Any
        ) -> None:
            device = more.get("device")
            if device is None or device.type != name or more.get("triton", True):
                super()._generate_kernel_call_helper(kernel_name, call_args, **more)
                return
            self.add_import_once(f"from {__name__} import begin_kernel")
            self.writeline(f"begin_kernel({device.index})")
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))

        def codegen_cuda_stream_enter(self, stream_idx: int) -> Any:
            # inductor names the streams where it enters a device's guard, which only its own devices have.
            if not self.__dict__.setdefault("_streams_named", False):
                self._streams_named = True
                self._name_streams()
            return super().codegen_cuda_stream_enter(stream_idx)

        def _name_streams(self) -> None:
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
            for stream, of_user in scheduler.stream_idx_to_user_obj_idx.items():
                self.writeline(f"{get_stream_name(stream)} = {lookup}({of_user})")

        def make_allocation(
            self, name: str, device: Any, *arguments: Any, **more: Any
        ) -> str:
            # For devices that it does not know it has no guard, and leaves the index out all the same.
            line: str = super().make_allocation(name, device, *arguments, **more)
            return line.replace(f"device='{device.type}'", f"device='{device}'")

    return Calling
