"""What accel_core's interface must answer on a simulated device, where the device is known.

What every accelerator promises is the conformance kit's, and held by the devices' score cards. Here is what
no check of any device can know: how many there are and of how many bytes, and what must be claimed.
"""

import torch

from accel_simulated import device
from simulated_checks import Checks

KNOWN = Checks()


def _compiler(a):
    """What is declared; else inductor's word, on types that torch brings or that it is taught."""
    known = (
        a.device_name() in ("cuda", "xpu", "mps") or device.vendor.kind == "PrivateUse1"
    )
    return a.backend.compile_backend or ("inductor" if known else "aot_eager")


def _is(name, expected):
    def check(a):
        given = getattr(a, name)
        return (given() if callable(given) else given) == (
            expected(a) if callable(expected) else expected
        )

    return check


#: Whose float16 is known: of the others a product is tried, on the device.
SURE_OF_FLOAT16 = ("mlu", "sdaa", "supa", "xpu")


@KNOWN.add
def is_fp16_supported(a):
    """Asked first, as nothing is on the device yet. torch's file on disk says that it is a CPU build."""
    tried = a.backend.name not in SURE_OF_FLOAT16
    said = a.is_fp16_supported()
    return said is True and (
        tried
        or torch.accelerator.memory_stats().get("allocation.all.allocated", 0) == 0
    )


EXPECTED = {
    **dict.fromkeys(
        ("is_synchronized_device", "use_host_timers", "resolves_data_dependency",
         "handles_memory_backpressure", "supports_nvtx_domain"),
        False,
    ),
    **dict.fromkeys(("is_bf16_supported", "is_fp64_supported", "supports_graphs"), True),
    "device_count": lambda a: device.count,
    "current_device": 0,
    "total_memory": lambda a: device.memory,
    "visible_device_ids": None,
    "communication_backend_name": lambda a: (
        a.backend.communication_backend or device.vendor.collective or "staged"
    ),
    "get_compile_backend": _compiler,
    "supported_dtypes": [torch.float32, torch.float16, torch.bfloat16],
    "training_dtype": lambda a: torch.bfloat16 if a.is_bf16_native() else torch.float16,
}  # fmt: skip
KNOWN.update({name: _is(name, expected) for name, expected in EXPECTED.items()})


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
