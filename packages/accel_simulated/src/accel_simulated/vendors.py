"""The simulated vendors, and the torch device type that each uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEVICES", "OWN_DEVICES", "VENDORS", "Vendor"]

ROOT = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Vendor:
    """A simulated vendor, with its torch device type and the names and variables of its real package."""

    #: The torch device type, which is also the name of the surface file. If `alias_of` is set, the backend's
    #: name.
    name: str
    #: A short description.
    description: str
    #: The package that registers the device with torch, or `"torch"` if torch contains the device's module.
    package: str
    #: The vendor's communication backend in `torch.distributed`, or an empty string if there is none.
    collective: str
    #: The torch device type that the C++ sources are compiled for.
    kind: str = "PrivateUse1"
    #: The visible-devices variables, whose values are lists of integers. The first variable that is set takes
    #: effect.
    visible: tuple[str, ...] = ()
    #: Whether the variable's integers must ascend: an invalid integer ends the list, and an integer not above
    #: its predecessor hides every device.
    ascending: bool = False
    #: Whether the variable may contain inclusive ranges such as `"0-3"`.
    ranges: bool = False
    #: Whether the device lacks features of a GPU: it has one queue, and no events, pinned memory, graphs or
    #: `record_stream`.
    plain: bool = False
    #: The number of devices if `ACCEL_SIMULATE` does not contain a count.
    devices: int = 2
    #: The vendor whose device type and torch module this vendor uses, or an empty string if it has its own.
    alias_of: str = ""

    def has_name(self, name: str) -> bool:
        """Return whether `name` is the name of this vendor, or of the vendor whose torch module it uses."""
        return name in (self.name, self.alias_of)

    @property
    def runtime(self) -> Path:
        """Return the folder that contains the vendor's simulated package, for use in `sys.path`.

        The folder does not exist if torch itself contains the device's module, such as `torch.cuda`.
        """
        return ROOT / "runtimes" / self.name


VENDORS = {
    vendor.name: vendor
    for vendor in (
        Vendor(
            "npu",
            "Huawei Ascend, with torch_npu",
            "torch_npu",
            "hccl",
            visible=("ASCEND_RT_VISIBLE_DEVICES",),
            ascending=True,
        ),
        Vendor(
            "mlu",
            "Cambricon MLU, with torch_mlu",
            "torch_mlu",
            "cncl",
            visible=("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"),
        ),
        Vendor(
            "hpu",
            "Intel Gaudi, with habana_frameworks.torch",
            "habana_frameworks.torch",
            "hccl",
            kind="HPU",
            visible=("HABANA_VISIBLE_MODULES",),
        ),
        Vendor(
            "sdaa",
            "Tecorigin SDAA, with torch_sdaa",
            "torch_sdaa",
            "tccl",
            visible=("SDAA_VISIBLE_DEVICES",),
        ),
        Vendor(
            "musa",
            "Moore Threads MUSA, with torch_musa",
            "torch_musa",
            "mccl",
            visible=("MUSA_VISIBLE_DEVICES",),
        ),
        Vendor(
            "neuron",
            "AWS Trainium, with torch_neuronx",
            "torch_neuronx",
            "neuron",
            visible=("NEURON_RT_VISIBLE_CORES",),
            ranges=True,
        ),
        Vendor(
            "supa",
            "Biren SUPA, with torch_supa",
            "torch_supa",
            "bccl",
            visible=("SUPA_VISIBLE_DEVICES",),
        ),
        Vendor(
            "xpu",
            "Intel GPU, with torch.xpu",
            "torch",
            "xccl",
            kind="XPU",
            visible=("ZE_AFFINITY_MASK",),
        ),
        Vendor(
            "cuda",
            "NVIDIA GPU, with torch.cuda",
            "torch",
            "nccl",
            kind="CUDA",
            visible=("CUDA_VISIBLE_DEVICES",),
        ),
        Vendor(
            "mps",
            "Apple Metal, with torch.mps; one device only",
            "torch",
            "",
            kind="MPS",
            devices=1,
        ),
        # klxpu uses torch.cuda, and only the package shows that the device is not NVIDIA's.
        Vendor(
            "klxpu",
            "Kunlunxin XPU, with torch_xmlir and torch.cuda",
            "torch_xmlir",
            "nccl",
            kind="CUDA",
            visible=("CUDA_VISIBLE_DEVICES",),
            alias_of="cuda",
        ),
        # acme is a device that torch.accelerator reports, and for which no plugin exists.
        Vendor(
            "acme",
            "a fictional GPU that no framework supports",
            "torch_acme",
            "accl",
        ),
    )
}

#: The vendors that have their own torch device type.
OWN_DEVICES = {name: vendor for name, vendor in VENDORS.items() if not vendor.alias_of}
#: All devices that can be simulated. A device that is not in `VENDORS` lacks features of a GPU.
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
