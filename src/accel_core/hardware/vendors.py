"""List the vendors that have a first-party plugin, and detect their devices.

The core recognizes this hardware without the plugin, so that it can name the plugin to
install. Each plugin declares its requirements itself. A test compares this table with
the declarations and lists the intended differences.
"""

import functools
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from accel_core import hardware, packages
from accel_core.hardware import bus
from accel_core.hardware.bus import Evidence, PciDevice
from accel_core.settings import read as read_settings


@dataclass(frozen=True)
class Vendor:
    """A kind of device, with the device nodes and PCI ids by which it is recognized."""

    #: The device's name for people, such as `"NVIDIA GPU"`.
    label: str
    #: The backend's name, such as `"cuda"`.
    backend: str
    #: Whether the vendor calls the device a GPU. Others are NPUs, TPUs or accelerators.
    is_gpu: bool = False
    #: Glob patterns of device nodes, such as `"/dev/nvidia[0-9]*"`.
    nodes: tuple[str, ...] = ()
    #: Patterns of PCI ids for `bus.matches_pci`, such as `"10de/03"`.
    pci: tuple[str, ...] = ()
    #: The platform, such as `"darwin-arm64"`, if the device is a part of the platform.
    platform: str = ""
    #: A further condition on the PCI functions that match `pci`.
    condition: Callable[[PciDevice], bool] | None = None
    #: Whether the device is a part of the CPU. Few machines with such a device are meant
    #: for training.
    is_integrated: bool = False
    #: The signs of the device that were found on this machine.
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def distribution(self) -> str:
        """The first-party distribution that registers the backend, such as
        `"accel-cuda"`.
        """
        return f"accel-{self.backend}"

    def matches(self, device: PciDevice) -> bool:
        """Return whether the PCI function is a device of this kind."""
        if not bus.matches_pci(device, self.pci):
            return False
        return self.condition is None or self.condition(device)

    def missing_plugin_clause(self) -> str:
        """Return a clause that the hardware is present but its plugin is not installed."""
        return f"{self.label} is present ({self.evidence}), but its plugin is not installed"


#: The device ids of ATI's Rage XL, RV100 and ES1000, which only draw a server's console.
AMD_CONSOLES = ("4752", "5159", "515e")
#: Slot 2 of the first bus. Every integrated GPU of Intel has this address, and so have
#: its virtual functions: igt-gpu-tools, lib/igt_device_scan.h,
#: `INTEGRATED_I915_GPU_PCI_ID`.
INTEL_INTEGRATED = "0000:00:02."


def _is_graphics_card(device: PciDevice) -> bool:
    return device.device not in AMD_CONSOLES


def _is_integrated_intel(device: PciDevice) -> bool:
    return device.address.startswith(INTEL_INTEGRATED)


def _is_discrete_intel(device: PciDevice) -> bool:
    return not _is_integrated_intel(device)


#: The vendors, in the order that messages use. Ids and nodes belong to one vendor only:
#: many vendors share `/dev/dri` and `/dev/accel`, and `/dev/dxg` (WSL2) does not
#: identify the vendor. "pci.ids" is https://pci-ids.ucw.cz of 2023-04-10.
VENDORS = (
    Vendor(
        label="NVIDIA GPU",
        backend="cuda",
        is_gpu=True,
        # /dev/nvidia0: jax-ml/jax, jax/_src/hardware_utils.py. A Jetson's GPU is not a
        # PCI device: /dev/nvhost-ctrl-gpu is in NVIDIA's nvgpu,
        # include/uapi/linux/nvgpu.h; /dev/nvgpu/igpu0, from L4T 36 on, in
        # tinygrad/tinygrad, tinygrad/runtime/support/nv/tegradev.py. On WSL2 Windows'
        # NVIDIA driver brings libcuda.so.1:
        # https://docs.nvidia.com/cuda/wsl-user-guide/
        nodes=(
            "/dev/nvidia[0-9]*",
            "/dev/nvhost-ctrl-gpu",
            "/dev/nvgpu/igpu[0-9]*",
            "/usr/lib/wsl/lib/libcuda.so.1",
        ),
        # Display controllers of pci.ids' 10de: an NVSwitch is a bridge.
        pci=("10de/03",),
    ),
    # The next three appear as torch.cuda. accel-cuda's declarations contain the sources.
    Vendor(
        label="MetaX GPU",
        backend="cuda",
        is_gpu=True,
        nodes=("/dev/mxcd",),
        pci=("9999",),
    ),
    Vendor(
        label="Iluvatar GPU",
        backend="cuda",
        is_gpu=True,
        nodes=("/dev/iluvatar[0-9]*",),
        pci=("1e3e",),
    ),
    Vendor(
        label="Hygon DCU",
        backend="cuda",
        nodes=("/dev/mkfd",),
        pci=("1d94/03", "1d94/0b"),
    ),
    Vendor(
        label="AMD GPU",
        backend="cuda",
        is_gpu=True,
        # Linux, drivers/gpu/drm/amd/amdkfd/kfd_chardev.c.
        nodes=("/dev/kfd",),
        # Display controllers (Radeon) and processing accelerators (Instinct) of 1002 in
        # pci.ids; there is no first-hand source for the class of a card.
        pci=("1002/03", "1002/12"),
        condition=_is_graphics_card,
    ),
    Vendor(
        label="Ascend NPU",
        backend="npu",
        # Ascend/pytorch, docker/devel/README.md and docker/OVERVIEW.md.
        nodes=("/dev/davinci[0-9]*",),
        # 910A, 910B, 910C and an inference card, without a first-hand source. Not all
        # of 19e5 (pci.ids: Huawei), nor a class of it: the ZIP engines of Kunpeng CPUs
        # would match too.
        pci=("19e5:d801", "19e5:d802", "19e5:d803", "19e5:d500"),
    ),
    Vendor(
        label="Intel Gaudi",
        backend="hpu",
        # Linux, drivers/accel/habanalabs/common/habanalabs_drv.c,
        # `PCI_VENDOR_ID_HABANALABS`; pci.ids' 1da3.
        pci=("1da3",),
    ),
    Vendor(
        label="Google TPU",
        backend="tpu",
        # torch_tpu 0.2.0, torch_tpu/_internal/utils/hardware.py. Google's network cards
        # are of 1ae0 too.
        pci=("1ae0:005e", "1ae0:0062", "1ae0:0063", "1ae0:006f", "1ae0:0076"),
    ),
    Vendor(
        label="Cambricon MLU",
        backend="mlu",
        # ray-project/ray, python/ray/_private/accelerators/mlu.py.
        nodes=("/dev/cambricon_dev[0-9]*",),
        # Without a first-hand source.
        pci=("cabc",),
    ),
    Vendor(
        label="Moore Threads GPU",
        backend="musa",
        is_gpu=True,
        # flagos-ai's images for Moore Threads are started with /dev/mtgpu.0.
        nodes=("/dev/mtgpu.[0-9]*",),
        # Display controllers of pci.ids' 1ed5; the cards have audio functions too.
        pci=("1ed5/03",),
    ),
    # Display controllers of pci.ids' 8086. No device node is Intel's alone.
    Vendor(
        label="Intel discrete GPU",
        backend="xpu",
        is_gpu=True,
        pci=("8086/03",),
        condition=_is_discrete_intel,
    ),
    Vendor(
        label="Intel integrated GPU",
        backend="xpu",
        is_gpu=True,
        pci=("8086/03",),
        condition=_is_integrated_intel,
        is_integrated=True,
    ),
    Vendor(
        label="Tecorigin SDAA card",
        backend="sdaa",
        # Without a first-hand source, because the driver is not public: users start
        # docker with `--device /dev/tcaicard0`. Not /dev/sdaa: the 27th SCSI disk.
        nodes=("/dev/tcaicard[0-9]*",),
    ),
    Vendor(
        label="Biren GPU",
        backend="supa",
        is_gpu=True,
        # BIRENSUPA/torch-supa,
        # .agents/skills/torch-supa-wiki/installation-quickstart.md; no public PCI id.
        nodes=("/dev/biren/card_[0-9]*",),
    ),
    Vendor(
        label="Kunlunxin XPU",
        backend="klxpu",
        # https://paddlepaddle.org.cn/documentation/ has the nodes in
        # guides/hardware_support/xpu/install_cn.html, R200 and R300 (3684) in
        # zh/hardware_support/xpu/xpu-gen2_install_cn.html, and the P800 in
        # zh/hardware_support/xpu/xpu-p800_install_cn.html.
        nodes=("/dev/xpu[0-9]*",),
        pci=(
            "1d22:3684",
            "1d22:3686",
            "1d22:3687",
            "1d22:3688",
            "1d22:3689",
            "2057:3686",
            "2057:3687",
            "2057:3688",
            "2057:3689",
        ),
    ),
    Vendor(
        label="Rebellions NPU",
        backend="rbln",
        # vllm-rbln 0.12.0, vllm_rbln/v1/worker/utils.py.
        nodes=("/dev/rbln[0-9]*",),
        # The wheel of backend.ai-accelerator-rebellions 26.9.6, common/plugin.py.
        pci=("1eff",),
    ),
    Vendor(
        label="AWS Trainium",
        backend="neuron",
        # AWS's documentation of Neuron, deploy/environments/docker-setup.rst; the
        # header neuron_device.h of aws-neuron-driver 2.24.7.0 has Trainium2's id.
        nodes=("/dev/neuron[0-9]*",),
        pci=("1d0f:7364",),
    ),
    Vendor(
        label="Apple GPU",
        backend="mps",
        is_gpu=True,
        # torch 2.13, torch/backends/mps/__init__.py. The GPU is a part of Apple silicon
        # and has neither a node nor a PCI id.
        platform="darwin-arm64",
    ),
)

#: The first-party distribution of each backend, such as `"accel-cuda"` for `"cuda"`.
FIRST_PARTY: Mapping[str, str] = {
    vendor.backend: vendor.distribution for vendor in VENDORS
}

#: The folder of each first-party distribution in the repository.
FOLDERS: Mapping[str, str] = {
    "accel-core": "",
    "accel-train": "packages/accel_train",
    "accel-tools": "packages/accel_tools",
    "accel-testing": "packages/accel_testing",
    "accel-simulated": "packages/accel_simulated",
    **{name: f"plugins/{name.replace('-', '_')}" for name in FIRST_PARTY.values()},
}
#: The first-party distributions that each distribution requires. If pip gets only the
#: folder of one distribution, it looks for the required distributions in a registry.
FIRST_PARTY_REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "accel-tools": ("accel-train",),
    "accel-testing": ("accel-train", "accel-tools"),
    "accel-simulated": ("accel-train", "accel-tools", "accel-testing"),
}


# --- Commands that install ----------------------------------------------------------


def install_command(
    *distributions: str, extra: str = "", version: str = "", option: str = ""
) -> str:
    """Return the `pip install` command for one or more distributions.

    `pip_argument` decides where each distribution comes from. If a distribution does
    not come from a registry, the command also installs the missing first-party
    distributions that it requires. Otherwise, pip would look for them in a registry.
    """
    command = ["pip", "install"]
    if option:
        command.append(option)
    for name in distributions:
        argument = pip_argument(name, extra, version)
        is_from_registry = argument == pip_argument_by_name(name, extra, version)
        if not is_from_registry:
            missing = _missing_first_party_requirements(name, besides=distributions)
            command += [pip_argument(required) for required in missing]
        command.append(argument)
    return shlex.join(command)


def reinstall_command(distribution: str) -> str:
    """Return the `pip install` command that reinstalls a distribution from its original
    source (PEP 610).

    The source is a repository, a folder that still exists, or otherwise a registry. If
    the source is a repository or a folder, the command does not reinstall the
    requirements, because pip would look for first-party ones in a registry.
    """
    origin = _origin(distribution)
    source = ""
    if "vcs_info" in origin:
        folder = origin.get("subdirectory", "")
        source = f"{distribution} @ {_repository_url(origin, folder)}"
    elif origin.get("url", "").startswith("file:"):
        path = _path_in_checkout(origin, "")
        if hardware.path_exists(path):
            source = path
    command = ["pip", "install", "--force-reinstall"]
    if source:
        command += ["--no-deps", source]
    else:
        command.append(distribution)
    return shlex.join(command)


def _missing_first_party_requirements(
    distribution: str, besides: Sequence[str]
) -> list[str]:
    """List the requirements in `FIRST_PARTY_REQUIREMENTS` that are neither installed nor in `besides`."""
    missing = []
    for needed in FIRST_PARTY_REQUIREMENTS.get(distribution, ()):
        if needed not in besides and packages.version(needed) is None:
            missing.append(needed)
    return missing


def command_with_its_package(command: str) -> str:
    """Return `command`, preceded by the command that installs accel-tools if `command`
    needs accel-tools and accel-tools is missing.

    Only a `command` that begins with `accel setup` needs accel-tools. Any other text is
    returned unchanged.
    """
    if command.startswith("accel setup") and not _has_accel_tools():
        return f"{install_command('accel-tools')} && {command}"
    return command


def pip_argument(distribution: str, extra: str = "", version: str = "") -> str:
    """Return the argument of `pip install` for a distribution.

    If this accel-core was installed from a checkout or a repository, a first-party
    distribution comes from the same place. Any other distribution comes from a
    registry. The argument contains `version` only if the distribution comes from a
    registry.
    """
    from_registry = pip_argument_by_name(distribution, extra, version)
    folder = FOLDERS.get(distribution)
    if folder is None:  # not a first-party distribution
        return from_registry
    origin_of_core = _origin()
    if "vcs_info" in origin_of_core:
        name = pip_argument_by_name(distribution, extra)
        return f"{name} @ {_repository_url(origin_of_core, folder)}"
    if _is_checkout(origin_of_core):
        path = _path_in_checkout(origin_of_core, folder)
        if hardware.path_exists(f"{path}/pyproject.toml"):
            return pip_argument_by_name(path, extra)
    return from_registry


def pip_argument_by_name(distribution: str, extra: str = "", version: str = "") -> str:
    """Return the argument of `pip install` for a registry, such as
    `"accel-tools[plot]==0.1.0"`.
    """
    argument = distribution
    if extra:
        argument += f"[{extra}]"
    if version:
        argument += f"=={version}"
    return argument


def documentation_page(path: str) -> str:
    """Return the location of a documentation page. `path` is relative to the folder `docs`.

    If this accel-core was installed from a checkout, the location is the path of the
    file in the checkout. Otherwise, it is a text such as `"docs/install.md in accel's
    repository"`.
    """
    page = f"docs/{path}"
    origin = _origin()
    if _is_checkout(origin):
        file = _path_in_checkout(origin, page)
        if hardware.path_exists(file):
            return file
    return f"{page} in accel's repository"


def _repository_url(origin: Mapping[str, Any], folder: str) -> str:
    """Return pip's URL of a folder in the repository that is a distribution's `origin`."""
    vcs = origin["vcs_info"]
    url = f"{vcs['vcs']}+{origin.get('url', '')}@{vcs['commit_id']}"
    if folder:
        url += f"#subdirectory={folder}"
    return url


def _is_checkout(origin: Mapping[str, Any]) -> bool:
    """Return whether a distribution with this `origin` was installed from a folder."""
    return "dir_info" in origin and origin.get("url", "").startswith("file:")


def _path_in_checkout(origin: Mapping[str, Any], path: str) -> str:
    """Return the absolute path of a folder or file in the checkout that is a
    distribution's `origin`.
    """
    from urllib.request import url2pathname  # takes 20 ms to import

    root = url2pathname(urlsplit(origin["url"]).path)
    return f"{root}/{path}".rstrip("/")


@functools.cache
def _has_accel_tools() -> bool:
    return packages.is_installed("accel_tools")


@functools.cache
def _origin(distribution: str = "accel-core") -> Mapping[str, Any]:
    """Read the origin of an installed distribution (PEP 610), or an empty mapping if it
    came from a registry.
    """
    # pip writes this file unless the distribution came from a registry.
    text = packages.read(distribution, "direct_url.json")
    record: dict[str, Any] = json.loads(text or "{}")
    return record


# --- Hardware that is present -------------------------------------------------------


def known_hardware(root: str = "/") -> tuple[Vendor, ...]:
    """List the accelerators on this machine that have a first-party plugin, each with
    its `evidence`.
    """
    nodes: Sequence[str] = ()
    devices: Sequence[PciDevice] = ()
    if hardware.on_linux():
        node_patterns: list[str] = []
        for vendor in VENDORS:
            node_patterns += vendor.nodes
        nodes = bus.device_nodes(node_patterns, root)
        devices = bus.pci_devices(root)
    present = []
    for vendor in VENDORS:
        evidence = _evidence_of(vendor, nodes, devices)
        if evidence:
            present.append(replace(vendor, evidence=evidence))
    labels = [vendor.label for vendor in present]
    if "Hygon DCU" in labels:
        # Hygon's driver creates /dev/kfd too, so this node alone does not prove that
        # there is an AMD GPU.
        only_kfd = Evidence(nodes=("/dev/kfd",))
        present = [vendor for vendor in present if vendor.evidence != only_kfd]
    return tuple(present)


def _evidence_of(
    vendor: Vendor, nodes: Iterable[str], devices: Iterable[PciDevice]
) -> Evidence:
    """Return the device nodes and PCI functions that belong to `vendor`."""
    platform = ""
    if vendor.platform and hardware.platform_matches((vendor.platform,)):
        platform = "Apple silicon"  # the only platform in VENDORS
    return Evidence(
        nodes=tuple(node for node in nodes if bus.matches_node(node, vendor.nodes)),
        pci=tuple(str(device) for device in devices if vendor.matches(device)),
        platform=platform,
    )


def missing_plugins(names: Iterable[str]) -> tuple[str, ...]:
    """Return one line for each device without a plugin, with the command that installs the plugin.

    `names` are the names of the installed backends.
    """
    lines = []
    for vendor in hardware_without_plugin(names):
        command = install_command(vendor.distribution)
        lines.append(f"{vendor.missing_plugin_clause()}: {command}")
    return tuple(lines)


def hardware_without_plugin(names: Iterable[str]) -> tuple[Vendor, ...]:
    """List the hardware on this machine that no backend in `names` supports.

    Integrated GPUs are left out, and so is hardware of which `ACCEL_ALLOW` or
    `ACCEL_BLOCK` excludes the plugin.
    """
    settings = read_settings()
    # "xpu.external" supports the same hardware as "xpu".
    supported = {name.partition(".")[0] for name in names}
    unsupported = []
    for vendor in known_hardware():
        # Integrated GPUs are so common in laptops that they get no warning.
        if vendor.backend in supported or vendor.is_integrated:
            continue
        if settings.permits(vendor.backend, vendor.distribution):
            unsupported.append(vendor)
    return tuple(unsupported)
