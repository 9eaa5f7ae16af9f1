"""What accel_core's interface must answer on a simulated device, where the device is known.

What every accelerator promises is the conformance kit's, and held by the devices' score cards. Here is what
no check of any device can know: how many there are and of how many bytes, and what must be claimed.
"""

import importlib

import torch

from accel_core import Backend, InTorch, TorchAccelerator, Visibility
from accel_simulated import VENDORS, device
from simulated_checks import Checks, torchs_names

__all__ = ["KNOWN", "of_torch_accelerator"]

KNOWN = Checks()


def of_torch_accelerator(vendor):
    """The problem of each member of `TorchAccelerator` alone: what it makes of the vendor's module."""
    found = VENDORS[vendor]
    importlib.import_module(found.package)
    backend = Backend(
        name=vendor,
        priority=1,
        device_type=vendor,
        vendor_import=found.package,
        communication_backend=found.collective or "gloo",
        visibility=Visibility(variables=found.visible),
        in_torch=InTorch(private_use1=found.kind == "PrivateUse1"),
    )
    accelerator = TorchAccelerator(backend)
    # torch.accelerator speaks of one device a process: PrivateUse1 with an allocator and streams.
    return {**KNOWN.run(accelerator), **torchs_names.problems(accelerator)}


def _compiler(a):
    """What is declared; else inductor's word, on types that torch brings or that it is taught."""
    known = a.device_name() in ("cuda", "xpu", "mps") or device.vendor.kind == "PrivateUse1"
    return a.backend.compile_backend or ("inductor" if known else "aot_eager")


def _is(name, expected):
    return lambda a: bool(getattr(a, name)() == expected(a))


#: Whose float16 is known: of the others a product is tried, on the device.
SURE_OF_FLOAT16 = ("mlu", "sdaa", "supa", "xpu")


@KNOWN.add
def is_fp16_supported(a):
    """Asked first, as nothing is on the device yet. torch's file on disk says that it is a CPU build."""
    tried = a.backend.name not in SURE_OF_FLOAT16
    said = a.is_fp16_supported()
    return said is True and (
        tried or torch.accelerator.memory_stats().get("allocation.all.allocated", 0) == 0
    )


for _name in (
    "is_synchronized_device", "use_host_timers", "resolves_data_dependency", "handles_memory_backpressure",
):  # fmt: skip
    KNOWN[_name] = lambda a, name=_name: getattr(a, name)() is False
for _name in ("is_bf16_supported", "is_fp64_supported", "supports_graphs"):
    KNOWN[_name] = lambda a, name=_name: getattr(a, name)() is True
KNOWN.update(
    {
        "supports_nvtx_domain": lambda a: a.supports_nvtx_domain is False,
        "device_count": _is("device_count", lambda a: device.count),
        "current_device": _is("current_device", lambda a: 0),
        "total_memory": _is("total_memory", lambda a: device.memory),
        "visible_device_ids": _is("visible_device_ids", lambda a: None),
        "communication_backend_name": _is(
            "communication_backend_name",
            lambda a: a.backend.communication_backend or device.vendor.collective or "staged",
        ),
        "get_compile_backend": _is("get_compile_backend", _compiler),
        "supported_dtypes": _is("supported_dtypes", lambda a: [torch.float32, torch.float16, torch.bfloat16]),
        "training_dtype": _is(
            "training_dtype", lambda a: torch.bfloat16 if a.is_bf16_native() else torch.float16
        ),
    }
)


@KNOWN.add
def set_per_process_memory_fraction(a):
    """It is a limit: of who says that there is none, the kit asks no more."""
    a.empty_cache()
    a.set_per_process_memory_fraction(0.25)
    try:
        torch.empty(device.memory // 2, dtype=torch.uint8, device=a.backend.device_type)
    except torch.OutOfMemoryError:
        return True
    finally:
        a.set_per_process_memory_fraction(1.0, 0)
    return False
