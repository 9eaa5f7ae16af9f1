"""The simulated vendors, and the torch device type that each uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEVICES", "OWN_DEVICES", "VENDORS", "Vendor"]

ROOT = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Vendor:
    """One simulated vendor, with the names and variables of its real package."""

    #: torch's device type, and the name of the surface file. If `alias_of` is set, the backend's name.
    name: str
    #: A description in one clause.
    description: str
    #: The package that registers the device with torch; `"torch"` if torch has the device's module.
    package: str
    #: The communication backend of `torch.distributed`; empty if there is none.
    collective: str
    #: torch's device type for which the C++ sources are compiled.
    kind: str = "PrivateUse1"
    #: Visible-devices variables, which have lists of integers; the first one that is set has effect.
    visible: tuple[str, ...] = ()
    #: Whether the variable's integers must ascend: an invalid one ends the list, and a lower one than the
    #: one before hides every device.
    ascending: bool = False
    #: Whether the variable may have inclusive ranges: `"0-3"`.
    ranges: bool = False
    #: Whether the device has less than a GPU: one queue, no events, no pinned memory, no graphs, no
    #: `record_stream`.
    plain: bool = False
    #: The number of devices if `ACCEL_SIMULATE` has no count.
    devices: int = 2
    #: The vendor whose device type and torch module this one uses; empty for a vendor with its own.
    alias_of: str = ""

    @property
    def runtime(self) -> Path:
        """Return the folder for `sys.path` with the vendor's package; missing if torch has the device."""
        return ROOT / "runtimes" / self.name


VENDORS = {
    vendor.name: vendor
    for vendor in (
        Vendor(
            "npu",
            "Huawei's Ascend, as torch_npu",
            "torch_npu",
            "hccl",
            visible=("ASCEND_RT_VISIBLE_DEVICES",),
            ascending=True,
        ),
        Vendor(
            "mlu",
            "Cambricon's, as torch_mlu",
            "torch_mlu",
            "cncl",
            visible=("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"),
        ),
        Vendor(
            "hpu",
            "Gaudi, as habana_frameworks.torch",
            "habana_frameworks.torch",
            "hccl",
            kind="HPU",
            visible=("HABANA_VISIBLE_MODULES",),
        ),
        Vendor(
            "sdaa",
            "Tecorigin's, as torch_sdaa",
            "torch_sdaa",
            "tccl",
            visible=("SDAA_VISIBLE_DEVICES",),
        ),
        Vendor(
            "musa",
            "Moore Threads', as torch_musa",
            "torch_musa",
            "mccl",
            visible=("MUSA_VISIBLE_DEVICES",),
        ),
        Vendor(
            "neuron",
            "AWS's Trainium, as torch_neuronx",
            "torch_neuronx",
            "neuron",
            visible=("NEURON_RT_VISIBLE_CORES",),
            ranges=True,
        ),
        Vendor(
            "supa",
            "Biren's, as torch_supa",
            "torch_supa",
            "bccl",
            visible=("SUPA_VISIBLE_DEVICES",),
        ),
        Vendor(
            "xpu",
            "Intel's, by torch's own torch.xpu",
            "torch",
            "xccl",
            kind="XPU",
            visible=("ZE_AFFINITY_MASK",),
        ),
        Vendor(
            "cuda",
            "NVIDIA's, by torch's own torch.cuda",
            "torch",
            "nccl",
            kind="CUDA",
            visible=("CUDA_VISIBLE_DEVICES",),
        ),
        Vendor(
            "mps",
            "Apple's Metal, by torch's own torch.mps; one device",
            "torch",
            "",
            kind="MPS",
            devices=1,
        ),
        # It uses torch.cuda, and only its package shows that it is not NVIDIA's.
        Vendor(
            "klxpu",
            "Kunlunxin's, as torch_xmlir behind torch.cuda",
            "torch_xmlir",
            "nccl",
            kind="CUDA",
            visible=("CUDA_VISIBLE_DEVICES",),
            alias_of="cuda",
        ),
        # A device that torch.accelerator reports, and for which there is no plugin.
        Vendor(
            "acme",
            "a fictional GPU that no framework supports",
            "torch_acme",
            "accl",
        ),
    )
}

#: The vendors with a device type of their own.
OWN_DEVICES = {name: vendor for name, vendor in VENDORS.items() if not vendor.alias_of}
#: All devices that can be simulated. One that is not in `VENDORS` has less than a GPU.
DEVICES = {
    **VENDORS,
    "plain": Vendor(
        "plain",
        "a fictional device with one queue, no events, no graphs and no collectives",
        "torch_plain",
        "",
        plain=True,
    ),
}
