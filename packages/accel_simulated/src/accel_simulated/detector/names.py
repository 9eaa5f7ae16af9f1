"""Vendor-specific names: device types, collective backends and variables, by torch device type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["TYPES", "VendorNames", "names_to_record"]


class VendorNames(NamedTuple):
    """The vendor-specific names that belong to a torch device type."""

    #: Backends of `torch.distributed`.
    collectives: tuple[str, ...] = ()
    #: Environment variables that select which devices a process can use.
    variables: tuple[str, ...] = ()


#: The accelerator types built into torch 2.13 (c10/core/Device.cpp, `parse_type`), and the names to which
#: vendors rename PrivateUse1. Collective backends and variables are copied from the declarations of accel's
#: plugins. Source for ROCm's variables: rocm.docs.amd.com, "GPU isolation techniques".
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
#: The device type whose names are always recorded, even if it is the simulated device. Most programs are
#: written for CUDA alone, and run to completion only on this device.
_ALWAYS_RECORDED = "cuda"


def names_to_record(simulated_type: str) -> dict[str, VendorNames]:
    """Return the vendor-specific names to record in a program that runs on a simulated device.

    `simulated_type` is the torch device type of that device. The result contains the names of all other
    device types, and always those of cuda. Names that another type shares with the simulated type, such as
    the communication backend hccl, are left out.
    """
    simulated_names = TYPES.get(simulated_type, VendorNames())
    names_by_type: dict[str, VendorNames] = {}
    for device_type, names in TYPES.items():
        if device_type != simulated_type:
            names_by_type[device_type] = VendorNames(
                _without(simulated_names.collectives, names.collectives),
                _without(simulated_names.variables, names.variables),
            )
    if simulated_type == _ALWAYS_RECORDED:  # "cuda"
        names_by_type[simulated_type] = TYPES[simulated_type]
    return names_by_type


def _without(excluded: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that are not in `excluded`, in their order."""
    return tuple(name for name in names if name not in excluded)
