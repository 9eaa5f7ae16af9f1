"""The simulated vendors, and the torch device type that each uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEVICES", "OWN_DEVICES", "VENDORS", "Vendor"]

ROOT = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Vendor:
    """One simulated vendor, with the names and variables of its real package."""

    #: torch's device type, and the name of the surface file; of a vendor that `plays` another, his backend's.
    name: str
    #: What it is, in one clause for people.
    description: str
    #: What brings the device into torch; `"torch"` where torch ships the module itself.
    package: str
    #: The collective backend of `torch.distributed`; empty where there is none.
    collective: str
    #: The device type that the simulation is compiled for.
    kind: str = "PrivateUse1"
    #: Visible-devices variables, the one that wins first. Lists of integers are understood.
    visible: tuple[str, ...] = ()
    #: The variable takes ascending integers alone: others end the list, a descent hides every device.
    ascending: bool = False
    #: The variable takes inclusive ranges too: `"0-3"`.
    ranges: bool = False
    #: Less than a GPU: one queue, no events, no pinned memory, no graphs, no `record_stream`.
    plain: bool = False
    #: How many devices there are where `ACCEL_SIMULATE` names no count.
    devices: int = 2
    #: The vendor whose device type, modules and stand-ins these are; empty for his own.
    plays: str = ""

    @property
    def runtime(self) -> Path:
        """Return the folder for `sys.path` with the vendor's package; none exists if torch has it."""
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
        # Behind torch.cuda's own functions, and known by its package alone.
        Vendor(
            "klxpu",
            "Kunlunxin's, as torch_xmlir behind torch.cuda",
            "torch_xmlir",
            "nccl",
            kind="CUDA",
            visible=("CUDA_VISIBLE_DEVICES",),
            plays="cuda",
        ),
        # Nobody: what a device looks like that torch.accelerator knows and no plugin does.
        Vendor(
            "acme",
            "nobody's GPU, which no framework has heard of",
            "torch_acme",
            "accl",
        ),
    )
}

#: Those with a device of their own.
OWN_DEVICES = {name: vendor for name, vendor in VENDORS.items() if not vendor.plays}
#: Everything that can be run on; what is only here has less than the tests of `VENDORS` ask for.
DEVICES = {
    **VENDORS,
    "plain": Vendor(
        "plain",
        "nobody's: one queue, no events, no graphs, no collectives",
        "torch_plain",
        "",
        plain=True,
    ),
}
