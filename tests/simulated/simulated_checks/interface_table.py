"""The members whose answer is simple to judge: its type, and where it can be known the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from accel_simulated import device
from simulated_checks import Checks

CALLS = Checks()


def is_int(value: Any) -> bool:
    return type(value) is int and value >= 0


def _compiler(a: Any) -> str:
    """What is declared; else inductor's word, on types that torch brings or that it is taught."""
    known = a.device_name() in ("cuda", "xpu", "mps") or device.vendor.kind == "PrivateUse1"
    return a.backend.compile_backend or ("inductor" if known else "aot_eager")


CALLS.update(
    {
        "name": lambda a: a.name == a.backend.name,
        "backend": lambda a: a.backend.device_type == a.device_name(),
        "api_level": lambda a: a.api_level == a.backend.api_level,
        "device_type": lambda a: a.device_type == a.backend.device_type == a.device().type,
        "is_accelerator": lambda a: a.is_accelerator() is True,
        "is_available": lambda a: a.is_available() is True,
        "device_count": lambda a: a.device_count() == device.count,
        "current_device": lambda a: a.current_device() == 0 and is_int(a.current_device()),
        "current_device_name": lambda a: a.current_device_name() == f"{a.backend.device_type}:0",
        "device_name": lambda a: (
            (a.device_name(), a.device_name(1)) == (a.backend.device_type, f"{a.backend.device_type}:1")
        ),
        "device": lambda a: (
            (a.device(), a.device(0))
            == (torch.device(a.backend.device_type), torch.device(a.backend.device_type, 0))
        ),
        "device_uuid": lambda a: a.device_uuid() is None or isinstance(a.device_uuid(), str),
        "visible_device_ids": lambda a: a.visible_device_ids() is None,
        "visible_devices_envs": lambda a: a.visible_devices_envs() == list(a.backend.visible_devices),
        "export_envs": lambda a: a.export_envs() == list(a.backend.export_envs),
        "communication_backend_name": lambda a: (
            a.communication_backend_name()
            == (a.backend.communication_backend or device.vendor.collective or "staged")
        ),
        "communication_backend_version": lambda a: (
            (v := a.communication_backend_version()) is None or is_int(v[0])
        ),
        "is_synchronized_device": lambda a: a.is_synchronized_device() is False,
        "use_host_timers": lambda a: a.use_host_timers() is False,
        "resolves_data_dependency": lambda a: a.resolves_data_dependency() is False,
        "handles_memory_backpressure": lambda a: a.handles_memory_backpressure() is False,
        "supports_nvtx_domain": lambda a: a.supports_nvtx_domain is False,
        "is_bf16_supported": lambda a: a.is_bf16_supported() is True,
        "is_bf16_native": lambda a: isinstance(a.is_bf16_native(), bool),
        "is_fp16_supported": lambda a: a.is_fp16_supported() is True,
        "is_fp8_supported": lambda a: isinstance(a.is_fp8_supported(), bool),
        "is_fp64_supported": lambda a: a.is_fp64_supported() is True,
        "supported_dtypes": lambda a: a.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16],
        "on_accelerator": lambda a: (
            a.on_accelerator(torch.ones(1, device=a.backend.device_type))
            and not a.on_accelerator(torch.ones(1))
        ),
        "is_triton_supported": lambda a: isinstance(a.is_triton_supported(), bool),
        "prefer_triton_grouped_mm": lambda a: isinstance(a.prefer_triton_grouped_mm(), bool),
        "get_compile_backend": lambda a: a.get_compile_backend() == _compiler(a),
        "op_builder_dir": lambda a: isinstance(a.op_builder_dir(), str),
        "op_builders": lambda a: isinstance(a.op_builders(), Mapping),
        "operators": lambda a: (
            {n: o.name for n, o in a.operators().items()} == {n: n for n in a.op_builders()}
        ),
        "get_op_builder": lambda a: isinstance(a.get_op_builder("NoSuchBuilder"), type),
        "create_op_builder": lambda a: a.create_op_builder("NoSuchBuilder").is_compatible() is False,
        "build_extension": lambda a: isinstance(a.build_extension(), type),
        "random": lambda a: a.random() is torch.random,
        "pin_memory_alignment": lambda a: is_int(a.pin_memory_alignment()),
        "register_host_memory": lambda a: isinstance(a.register_host_memory(0, 0), bool),
        "unregister_host_memory": lambda a: a.unregister_host_memory(0),
        "unpin_memory": lambda a: a.unpin_memory(a.pin_memory(torch.ones(1))),
        "capabilities": lambda a: a.capabilities().is_available is True,
        "total_memory": lambda a: a.total_memory() == a.total_memory(0) == device.memory,
        "is_current_stream_capturing": lambda a: a.is_current_stream_capturing() is False,
        "lazy_call": lambda a: a.lazy_call(lambda: None),
        "empty_cache": lambda a: a.empty_cache(),
        "empty_host_cache": lambda a: a.empty_host_cache(),
        "training_dtype": lambda a: (
            a.training_dtype() is (torch.bfloat16 if a.is_bf16_native() else torch.float16)
        ),
        "synchronize": lambda a: (a.synchronize(), a.synchronize(0)) == (None, None),
        # Names what it changed, and of that nothing is left the second time.
        "apply_vendor_defaults": lambda a: (
            (isinstance(a.apply_vendor_defaults(), tuple), a.apply_vendor_defaults()) == (True, ())
        ),
    }
)
for _name, _dtype in {
    "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32, "HalfTensor": torch.float16, "IntTensor": torch.int32,
    "LongTensor": torch.int64,
}.items():  # fmt: skip
    CALLS[_name] = lambda a, name=_name, dtype=_dtype: (
        (made := getattr(a, name)([1, 2])).dtype is dtype
        and made.device.type == a.backend.device_type
        and made.tolist() == [1, 2]
    )
