"""Names for one vendor: device types, collective backends and variables, by torch's device type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["TYPES", "Names", "foreign"]


class Names(NamedTuple):
    """The names that belong to one device type of torch: its collectives and its variables."""

    collectives: tuple[str, ...] = ()
    #: Which devices a process sees.
    variables: tuple[str, ...] = ()


#: Built-in types of torch 2.13 (c10/core/Device.cpp, `parse_type`) that are accelerators, and those by which
#: vendors rename its PrivateUse1. Collectives and variables are the vendors', as accel's plugins declare
#: them; ROCm's: rocm.docs.amd.com, "GPU isolation techniques".
TYPES: Mapping[str, Names] = {
    "cuda": Names(
        ("nccl", "rccl"),
        (
            "CUDA_VISIBLE_DEVICES",
            "NVIDIA_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
        ),
    ),
    "xpu": Names(
        ("xccl", "ccl"),
        ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "XPU_VISIBLE_DEVICES"),
    ),
    "npu": Names(
        ("hccl", "lccl"), ("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES")
    ),
    "hpu": Names(
        ("hccl",), ("HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID")
    ),
    "mlu": Names(("cncl",), ("MLU_VISIBLE_DEVICES", "CN_VISIBLE_DEVICES")),
    "sdaa": Names(("tccl",), ("SDAA_VISIBLE_DEVICES",)),
    "supa": Names(("bccl",), ("SUPA_VISIBLE_DEVICES",)),
    "musa": Names(("mccl",), ("MUSA_VISIBLE_DEVICES",)),
    "mps": Names(),
    "mtia": Names(),
    "xla": Names(("xla",)),
    "ipu": Names(),
    "maia": Names(),
    "hip": Names(),
}


def foreign(own: str) -> dict[str, Names]:
    """Return the entries of `TYPES` for all device types but `own`, torch's type of the simulated device.

    Names that a vendor shares with `own` (the backend hccl) are left out.
    """
    mine = TYPES.get(own, Names())
    return {
        kind: Names(
            tuple(name for name in names.collectives if name not in mine.collectives),
            tuple(name for name in names.variables if name not in mine.variables),
        )
        for kind, names in TYPES.items()
        if kind != own
    }
