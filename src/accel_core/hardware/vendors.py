"""Vendors with a first-party plugin, and which of their devices are here: known without the plugin.

What a plugin itself says of its hardware stands in its declaration. A test holds this table against the
declarations and lists the differences that are meant.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from accel_core import hardware, packages
from accel_core.hardware import bus
from accel_core.hardware.bus import Evidence, PciDevice
from accel_core.settings import read


class Vendor(NamedTuple):
    """One kind of device, and what on a machine belongs to it alone."""

    #: For people: `"NVIDIA GPU"`.
    label: str
    #: Name of the backend: `"cuda"`.
    backend: str
    nodes: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    platform: str = ""
    #: A part of the processor. Most machines with one were not bought to train on it.
    integrated: bool = False
    #: Which of the PCI functions that fit `pci` count.
    counts: Callable[[PciDevice], bool] = lambda _: True
    #: What of it was found on this machine.
    evidence: Evidence = Evidence()

    @property
    def distribution(self) -> str:
        """Our distribution that brings the backend: `"accel-cuda"`."""
        return f"accel-{self.backend}"

    def plugin_missing(self) -> str:
        """The clause that reports this hardware where its plugin is not installed."""
        return f"{self.label} is present ({self.evidence}) and its plugin is not installed"


def _is_integrated_intel(device: PciDevice) -> bool:
    """Intel's integrated GPU, and its virtual functions, always sit in slot 2 of the first bus.

    igt-gpu-tools, lib/igt_device_scan.h, `INTEGRATED_I915_GPU_PCI_ID`.
    """
    return device.address.startswith("0000:00:02.")


#: Only ids and nodes that belong to one vendor: `/dev/dri` and `/dev/accel` are shared by many, and
#: `/dev/dxg` (WSL2) says nothing of the maker. In this order they are named to a user. "pci.ids" is
#: https://pci-ids.ucw.cz of 2023-04-10.
VENDORS = (
    # Display controllers of pci.ids' 10de: an NVSwitch is a bridge. /dev/nvidia0: jax-ml/jax,
    # jax/_src/hardware_utils.py. A Jetson's GPU is no PCI device: /dev/nvhost-ctrl-gpu is in NVIDIA's nvgpu,
    # include/uapi/linux/nvgpu.h; /dev/nvgpu/igpu0, from L4T 36 on, in tinygrad/tinygrad,
    # tinygrad/runtime/support/nv/tegradev.py. On WSL2 Windows' NVIDIA driver brings libcuda.so.1:
    # https://docs.nvidia.com/cuda/wsl-user-guide/
    Vendor("NVIDIA GPU", "cuda", pci=("10de/03",), nodes=(
        "/dev/nvidia[0-9]*", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu/igpu[0-9]*", "/usr/lib/wsl/lib/libcuda.so.1",
    )),
    # They answer as torch.cuda; accel-cuda's declarations have the sources.
    Vendor("MetaX GPU", "cuda", ("/dev/mxcd",), ("9999",)),
    Vendor("Iluvatar GPU", "cuda", ("/dev/iluvatar[0-9]*",), ("1e3e",)),
    Vendor("Hygon DCU", "cuda", ("/dev/mkfd",), ("1d94/03", "1d94/0b")),
    # /dev/kfd: Linux, drivers/gpu/drm/amd/amdkfd/kfd_chardev.c. Of pci.ids' 1002 display controllers (Radeon)
    # and processing accelerators (Instinct); which class a card has is without a first-hand source. ATI's
    # Rage XL, RV100 and ES1000 only draw a server's console.
    Vendor("AMD GPU", "cuda", ("/dev/kfd",), ("1002/03", "1002/12"),
           counts=lambda d: d.device not in ("4752", "5159", "515e")),
    # /dev/davinci0: Ascend/pytorch, docker/devel/README.md and docker/OVERVIEW.md. d801 is a 910A, d802 a
    # 910B, d803 a 910C, d500 an inference card: without a first-hand source. Not all of 19e5 (pci.ids:
    # Huawei), nor by class: so the ZIP engines of Kunpeng processors show.
    Vendor("Ascend NPU", "npu", ("/dev/davinci[0-9]*",), tuple(f"19e5:d{i}" for i in (801, 802, 803, 500))),
    # Linux, drivers/accel/habanalabs/common/habanalabs_drv.c, `PCI_VENDOR_ID_HABANALABS`; pci.ids' 1da3.
    Vendor("Intel Gaudi", "hpu", pci=("1da3",)),
    # torch_tpu 0.2.0, torch_tpu/_internal/utils/hardware.py; Google's network cards are of 1ae0 too.
    Vendor("Google TPU", "tpu", pci=tuple(f"1ae0:{i}" for i in ("005e", "0062", "0063", "006f", "0076"))),
    # /dev/cambricon_dev0: ray-project/ray, python/ray/_private/accelerators/mlu.py. cabc: without a
    # first-hand source.
    Vendor("Cambricon MLU", "mlu", nodes=("/dev/cambricon_dev[0-9]*",), pci=("cabc",)),
    # Display controllers of pci.ids' 1ed5, whose other functions are audio. /dev/mtgpu.0:
    # flagos-ai's images for Moore Threads are started with it.
    Vendor("Moore Threads GPU", "musa", nodes=("/dev/mtgpu.[0-9]*",), pci=("1ed5/03",)),
    # Display controllers of pci.ids' 8086. No node is Intel's alone.
    Vendor("Intel discrete GPU", "xpu", pci=("8086/03",), counts=lambda d: not _is_integrated_intel(d)),
    Vendor("Intel integrated GPU", "xpu", pci=("8086/03",), integrated=True, counts=_is_integrated_intel),
    # Without a first-hand source: the driver is not public. Users give docker `--device /dev/tcaicard0`. Not
    # /dev/sdaa: that is the 27th SCSI disk.
    Vendor("Tecorigin SDAA card", "sdaa", nodes=("/dev/tcaicard[0-9]*",)),
    # BIRENSUPA/torch-supa, .agents/skills/torch-supa-wiki/installation-quickstart.md. No PCI id is public.
    Vendor("Biren GPU", "supa", nodes=("/dev/biren/card_[0-9]*",)),
    # https://paddlepaddle.org.cn/documentation/guides/hardware_support/xpu/install_cn.html has the nodes;
    # .../documentation/zh/hardware_support/xpu/xpu-gen2_install_cn.html 1d22:3684 (R200, R300), and
    # .../xpu-p800_install_cn.html devices 3686 to 3689 of 1d22 and 2057 (P800).
    Vendor("Kunlunxin XPU", "klxpu", ("/dev/xpu[0-9]*",), (
        "1d22:3684", *(f"{maker}:{device}" for maker in ("1d22", "2057") for device in range(3686, 3690)),
    )),
    # vllm-rbln 0.12.0, vllm_rbln/v1/worker/utils.py, has the node; the wheel of
    # backend.ai-accelerator-rebellions 26.9.6, common/plugin.py, "VID 1eff".
    Vendor("Rebellions NPU", "rbln", nodes=("/dev/rbln[0-9]*",), pci=("1eff",)),
    # torch 2.13, torch/backends/mps/__init__.py. It is a part of Apple silicon, without node or PCI id.
    Vendor("Apple GPU", "mps", platform="darwin-arm64"),
)  # fmt: skip

#: Which distribution of ours brings a backend: `"cuda"` is in `"accel-cuda"`.
FIRST_PARTY: Mapping[str, str] = {vendor.backend: vendor.distribution for vendor in VENDORS}

#: Where our distributions lie in the repository.
FOLDERS: Mapping[str, str] = {
    "accel-core": "",
    **{f"accel-{name}": f"packages/accel_{name}" for name in ("train", "tools", "testing", "simulated")},
    **{name: f"plugins/{name.replace('-', '_')}" for name in FIRST_PARTY.values()},
}
#: The others that one of them needs. Given a folder alone, pip would look for these in a registry.
NEEDS: Mapping[str, Sequence[str]] = {
    "accel-tools": ("accel-train",),
    "accel-testing": ("accel-train", "accel-tools"),
    "accel-simulated": ("accel-train", "accel-tools", "accel-testing"),
}


# --- Commands that install ------------------------------------------------------------------------------


def install_command(*distributions: str, extra: str = "", version: str = "", option: str = "") -> str:
    """Return the `pip install` command for these distributions; see `pip_argument`.

    Before one that comes from a folder stand the others of ours that it needs and that are missing: pip would
    look for those in a registry.
    """
    import shlex  # here, as most processes give no advice

    arguments = [option] if option else []
    for name in distributions:
        argument = pip_argument(name, extra, version)
        if argument != pip_argument_by_name(name, extra, version):
            missing = [each for each in NEEDS.get(name, ()) if packages.version(each) is None]
            arguments += [pip_argument(each) for each in missing if each not in distributions]
        arguments.append(argument)
    return shlex.join(["pip", "install", *arguments])


def command_with_its_package(command: str) -> str:
    """Return a command that can be run as it is: before `accel setup`, accel-tools is installed if missing.

    Any other command, and a plugin's hint that is a sentence, is returned unchanged.
    """
    if command.startswith("accel setup") and not _has_tools():
        return f"{install_command('accel-tools')} && {command}"
    return command


def pip_argument(distribution: str, extra: str = "", version: str = "") -> str:
    """Return the argument of `pip install` for a distribution.

    Ours come from where this accel-core was installed from: a checkout or a repository; from a registry or a
    folder of wheels by their name, and only there by their version.
    """
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    extras = f"[{extra}]" if extra else ""
    by_name = pip_argument_by_name(distribution, extra, version)
    folder = FOLDERS.get(distribution)
    if folder is None:
        return by_name
    origin = _origin()
    url = origin.get("url", "")
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        below = f"#subdirectory={folder}" if folder else ""
        return f"{distribution}{extras} @ {vcs['vcs']}+{url}@{vcs['commit_id']}{below}"
    if "dir_info" in origin and url.startswith("file:"):
        place = f"{url2pathname(urlsplit(url).path)}/{folder}".rstrip("/")
        if hardware.path_exists(f"{place}/pyproject.toml"):
            return f"{place}{extras}"
    return by_name


def pip_argument_by_name(distribution: str, extra: str = "", version: str = "") -> str:
    """Return the argument with which pip finds a distribution in a registry: `"accel-tools[plot]==0.1.0"`."""
    extras = f"[{extra}]" if extra else ""
    return f"{distribution}{extras}=={version}" if version else f"{distribution}{extras}"


@functools.cache
def _has_tools() -> bool:
    return packages.is_installed("accel_tools")


@functools.cache
def _origin() -> Mapping[str, Any]:
    """PEP 610's record of where the installed core came from; empty if it came from a registry."""
    record: dict[str, Any] = json.loads(packages.read("accel-core", "direct_url.json") or "{}")
    return record


# --- Hardware that is here ------------------------------------------------------------------------------


def known_hardware(root: str = "/") -> tuple[Vendor, ...]:
    """Return the accelerators on this machine that have a first-party plugin, each with its evidence."""
    linux = hardware.on_linux()
    functions = bus.pci_devices(root) if linux else ()
    nodes = bus.device_nodes([node for vendor in VENDORS for node in vendor.nodes], root) if linux else ()
    present = []
    for vendor in VENDORS:
        evidence = Evidence(
            tuple(node for node in nodes if bus.matches_node(node, vendor.nodes)),
            tuple(str(d) for d in functions if bus.matches_pci(d, vendor.pci) and vendor.counts(d)),
            "Apple silicon" if vendor.platform and hardware.platform_matches((vendor.platform,)) else "",
        )
        if evidence:
            present.append(vendor._replace(evidence=evidence))
    is_hygons = any(vendor.label == "Hygon DCU" for vendor in present)  # then AMD's one node is too
    return tuple(v for v in present if not (is_hygons and v.evidence == Evidence(("/dev/kfd",))))


def missing_plugins(names: Iterable[str]) -> tuple[str, ...]:
    """Return a line for each hardware that is `without_plugin`, with the command that installs the plugin."""
    return tuple(f"{v.plugin_missing()}: {install_command(v.distribution)}" for v in without_plugin(names))


def without_plugin(names: Iterable[str]) -> tuple[Vendor, ...]:
    """Return the hardware on this machine that no backend among `names` is for.

    None for hardware whose plugin the policy (`ACCEL_ALLOW`, `ACCEL_BLOCK`) would not let be chosen.
    """
    policy = read()
    covered = {name.partition(".")[0] for name in names}
    return tuple(
        known
        for known in known_hardware()
        # An integrated GPU is in every other laptop: not worth a warning at every start.
        if known.backend not in covered and not known.integrated
        if policy.permits(known.backend, known.distribution)
    )
