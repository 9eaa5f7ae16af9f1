"""Names for one vendor: device types, collective backends and variables, by torch's device type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["TYPES", "VendorNames", "recorded_types"]


class VendorNames(NamedTuple):
    """The names that belong to one device type of torch."""

    #: Backends of `torch.distributed`.
    collectives: tuple[str, ...] = ()
    #: Variables that say which devices a process sees.
    variables: tuple[str, ...] = ()


#: Built-in types of torch 2.13 (c10/core/Device.cpp, `parse_type`) that are accelerators, and those by which
#: vendors rename its PrivateUse1. Collectives and variables are the vendors', as accel's plugins declare
#: them; ROCm's: rocm.docs.amd.com, "GPU isolation techniques".
TYPES: Mapping[str, VendorNames] = {
    "cuda": VendorNames(
        ("nccl", "rccl"),
        (
            "CUDA_VISIBLE_DEVICES",
            "NVIDIA_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
        ),
    ),
    "xpu": VendorNames(
        ("xccl", "ccl"),
        ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "XPU_VISIBLE_DEVICES"),
    ),
    "npu": VendorNames(
        ("hccl", "lccl"), ("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES")
    ),
    "hpu": VendorNames(
        ("hccl",), ("HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID")
    ),
    "mlu": VendorNames(("cncl",), ("MLU_VISIBLE_DEVICES", "CN_VISIBLE_DEVICES")),
    "sdaa": VendorNames(("tccl",), ("SDAA_VISIBLE_DEVICES",)),
    "supa": VendorNames(("bccl",), ("SUPA_VISIBLE_DEVICES",)),
    "musa": VendorNames(("mccl",), ("MUSA_VISIBLE_DEVICES",)),
    "neuron": VendorNames(
        ("neuron",), ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES")
    ),
    "mps": VendorNames(),
    "mtia": VendorNames(),
    "xla": VendorNames(("xla",)),
    "ipu": VendorNames(),
    "maia": VendorNames(),
    "hip": VendorNames(),
}
#: The type of which a program that runs on it names things too: most programs are written for it alone, and
#: only on this device do they reach their end.
_ALWAYS_RECORDED = "cuda"


def recorded_types(own: str) -> dict[str, VendorNames]:
    """Return the names to record on a simulated device of torch's type `own`.

    These are the names of all types but `own`; of cuda always. Names that a vendor shares with `own` (the
    backend hccl) are left out.
    """
    shared = TYPES.get(own, VendorNames())
    recorded = {
        device_type: VendorNames(
            tuple(name for name in names.collectives if name not in shared.collectives),
            tuple(name for name in names.variables if name not in shared.variables),
        )
        for device_type, names in TYPES.items()
        if device_type != own
    }
    if own == _ALWAYS_RECORDED:
        recorded[own] = TYPES[own]
    return recorded
