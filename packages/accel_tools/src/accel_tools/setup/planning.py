"""Make the plan for a machine: choose the hardware, and where the packages come from."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from accel_core import hardware
from accel_core.hardware import vendors
from accel_core.isolation import IsolatedLoader
from accel_core.plugins import find_backends, installed_names
from accel_core.settings import Pin
from accel_core.settings import read as read_settings
from accel_tools.setup.builds import OLDEST_GLIBC
from accel_tools.setup.hardware import (
    UNNAMED,
    DetectedDevice,
    Hardware,
    detect_hardware,
)
from accel_tools.setup.machines import ALPINE, Machine, unknown_devices
from accel_tools.setup.plan import Plan
from accel_tools.setup.pytorch_indexes import PYTORCH, add_pytorch_build
from accel_tools.setup.recipes import Recipe, read_recipes
from accel_tools.setup.vendor_tables import add_vendor_packages

__all__ = ["hardware_names", "make_plan", "toolkit_names"]

#: The name with which users request AMD GPUs, which the backend `cuda` drives.
_ROCM = "rocm"


def hardware_names() -> tuple[str, ...]:
    """Return the hardware names that users can request: the names of backends, and `rocm`."""
    tables, _ = read_recipes()
    result = {"cpu", _ROCM, *vendors.FIRST_PARTY, *tables}
    for name in installed_names():
        # A backend such as xpu.external drives the hardware of xpu.
        is_variant = "." in name
        if name != "generic" and not is_variant:
            result.add(name)
    return tuple(sorted(result))


def toolkit_names() -> dict[str, str]:
    """Return a dictionary from backends to the names of their toolkits, such as `cuda` to CUDA.

    The toolkit version determines which packages fit. Backends without a toolkit are left out.
    """
    tables, _ = read_recipes()
    result = {"cuda": "CUDA", _ROCM: "ROCm"}
    for name, recipe in tables.items():
        if recipe.toolkit:
            result[name] = recipe.toolkit.name
    return result


def make_plan(
    machine: Machine,
    name: str = "",
    torch: str = "",
    *,
    driver: str = "",
    toolkit: str = "",
) -> Plan:
    """Make an installation plan for the machine's best accelerator, or for the hardware called `name`.

    Args:
        machine: The machine to plan for.
        name: One of `hardware_names()`, or an empty string for the machine's best accelerator. The machine
            does not need to have the hardware.
        torch: The required release of torch, or an empty string for the newest that fits.
        driver: An NVIDIA driver version to plan for instead of the machine's driver.
        toolkit: A version of the vendor's toolkit to plan for instead of the machine's toolkit.
    """
    hardware = detect_hardware(machine)
    if name == "xpu":
        hardware = _assume_supported_intel_gpu(hardware)
    tables, table_problems = read_recipes()
    target = _choose_target(hardware, name, has_version=bool(driver or toolkit))
    plan = _plan_without_packages(machine, hardware, target, driver, toolkit)
    plan = _add_packages(plan, machine, tables, torch)
    intel_card = _find_discrete_intel_gpu(hardware)
    if not name and intel_card is not None and _is_amd_gpu_without_pytorch_wheels(plan):
        # The AMD GPU is assumed to be part of the CPU, so the Intel GPU is better.
        target = intel_card
        plan = _plan_without_packages(machine, hardware, target)
        plan = _add_packages(plan, machine, tables, torch)
    notes = (
        *plan.notes,
        *_note_on_other_devices(plan, target),
        *_note_on_unknown_devices(machine),
        *table_problems,
    )
    return plan._replace(notes=notes)


# --- The target ----------------------------------------------------------------------


def _assume_supported_intel_gpu(hardware: Hardware) -> Hardware:
    """Return the hardware with an Intel GPU that PyTorch supports, if no file names the GPU's model."""
    if hardware.intel_limitation == UNNAMED:
        return hardware._replace(intel_limitation="")
    return hardware


def _choose_target(
    hardware: Hardware, name: str, *, has_version: bool
) -> DetectedDevice | None:
    """Return the hardware to plan for, or `None` for the CPU.

    `name` is the name that the user requested, or an empty string. `has_version` means that the user gave a
    driver or toolkit version, so the plan may be for a different machine. The evidence of the returned
    device is empty if the machine does not have the hardware.
    """
    if name == "cpu":
        return None
    is_jetson = "Jetson" in hardware.machine_kind
    if is_jetson and name in ("", "cuda") and not has_version:
        # The GPU of a Jetson is not on the PCI bus.
        return DetectedDevice("NVIDIA GPU", "cuda", hardware.machine_kind)
    if name:
        return _requested_device(hardware, name, has_version=has_version)
    if hardware.devices:
        return hardware.devices[0]  # The best device comes first.
    return None


def _requested_device(
    hardware: Hardware, name: str, *, has_version: bool
) -> DetectedDevice:
    """Return the machine's device for a requested name, or a device without evidence."""
    backend, label = _backend_and_label(name)
    devices = [device for device in hardware.devices if device.backend == backend]
    # The backend cuda drives NVIDIA's and AMD's GPUs.
    if name == _ROCM or (name == "cuda" and has_version):
        devices = [device for device in devices if device.label == label]
    if devices:
        return devices[0]
    return DetectedDevice(label, backend, evidence="")


def _backend_and_label(name: str) -> tuple[str, str]:
    """Return the backend and the hardware's label for a requested name, such as `"rocm"`."""
    if name == _ROCM:
        return "cuda", "AMD GPU"
    for vendor in vendors.VENDORS:
        if vendor.backend == name:
            return name, vendor.label
    # The hardware of a plugin that is not accel's has no other label.
    label = name
    return name, label


def _find_discrete_intel_gpu(hardware: Hardware) -> DetectedDevice | None:
    """Return the machine's discrete Intel GPU.

    Returns `None` if the machine does not have one.
    """
    for device in hardware.devices:
        if device.label == "Intel discrete GPU":
            return device
    return None


def _is_amd_gpu_without_pytorch_wheels(plan: Plan) -> bool:
    """Return whether the plan's target is an AMD GPU for which PyTorch has no wheels.

    In a machine with a discrete Intel GPU, such an AMD GPU is assumed to be part of the CPU.
    """
    # Only AMD's own wheels need `torch_index`.
    has_pytorch_wheels = not plan.why_no_command and not plan.torch_index
    is_amd_gpu = plan.target == "AMD GPU"
    is_architecture_known = bool(plan.hardware.amd_architectures)
    return is_amd_gpu and is_architecture_known and not has_pytorch_wheels


def _plan_without_packages(
    machine: Machine,
    hardware: Hardware,
    device: DetectedDevice | None,
    driver: str = "",
    toolkit: str = "",
) -> Plan:
    """Return a plan for the device, with the facts that are assumed.

    A device of `None` means the CPU. `driver` and `toolkit` are versions that the user gave, or empty
    strings.
    """
    target, backend = "CPU", "cpu"
    if device is not None:
        target, backend = device.label, device.backend
    assumed = []
    if device is not None and not device.evidence:
        assumed.append(target)
    if driver not in ("", hardware.nvidia_driver):
        assumed.append(f"NVIDIA driver {driver}")
    if toolkit:
        name = _ROCM if target == "AMD GPU" else backend
        assumed.append(f"{toolkit_names()[name]} {toolkit}")
    return Plan(
        hardware=hardware,
        target=target,
        backend=backend,
        python=machine.python,
        driver=driver or hardware.nvidia_driver,
        toolkit=toolkit,
        assumed=tuple(assumed),
    )


# --- The packages --------------------------------------------------------------------


def _add_packages(
    plan: Plan, machine: Machine, tables: dict[str, Recipe], torch: str
) -> Plan:
    """Return the plan with packages, or with the reason why no packages are known to fit.

    `tables` has the vendors' tables by backend. `torch` is the required release, or an empty string.
    """
    reason = _why_no_wheels_for_system(machine, torch)
    if reason:
        return plan._replace(why_no_command=reason, url=PYTORCH)
    is_gpu_of_pytorch = plan.target in ("NVIDIA GPU", "AMD GPU")
    if plan.backend in tables and not is_gpu_of_pytorch:
        return add_vendor_packages(plan, tables[plan.backend], machine, torch)
    if plan.backend not in ("cpu", *vendors.FIRST_PARTY):
        # A plugin that is not accel's declares how its packages are installed.
        return _add_install_hint(plan)
    return add_pytorch_build(plan, machine, torch)


def _why_no_wheels_for_system(machine: Machine, torch: str) -> str:
    """Return why torch has no wheels for the machine's operating system.

    Returns an empty string if it may have wheels.
    """
    if machine.system == "darwin" and machine.architecture != "arm64":
        return (
            "this Python is for Macs with Intel CPUs, for which PyTorch has had no wheels since "
            "torch 2.3. A Mac with Apple silicon needs a Python built for arm64"
        )
    if hardware.path_exists(ALPINE, machine.root):
        return "this is Alpine Linux, whose C library is musl, but PyTorch's wheels need glibc"
    is_old = machine.glibc and Version(machine.glibc) < Version(OLDEST_GLIBC)
    if is_old and (not torch or Version(torch) >= Version("2.7")):
        return (
            f"PyTorch's wheels since torch 2.7 need glibc {OLDEST_GLIBC}, "
            f"but this system has {machine.glibc}"
        )
    return ""


def _add_install_hint(plan: Plan) -> Plan:
    """Return the plan, which has no packages, with the instructions that the backend's plugin declares."""
    settings = read_settings()
    load = IsolatedLoader(settings.probe_timeout)
    reason = f"the plugin for {plan.target} does not list the packages to install"
    for verdict in find_backends(Pin(plan.backend), settings, load):
        backend = verdict.backend
        if backend is not None:
            hint = backend.install_hint
            notes = (f"The plugin's instructions: {hint}",) if hint else ()
            url = backend.url or PYTORCH
            return plan._replace(why_no_command=reason, url=url, notes=notes)
    return plan._replace(why_no_command=reason, url=PYTORCH)


# --- Notes ---------------------------------------------------------------------------


def _note_on_other_devices(plan: Plan, target: DetectedDevice | None) -> Iterator[str]:
    """Yield a note if the machine has accelerators other than the target.

    A target of `None` means the CPU.
    """
    if target is None:
        return
    labels: list[str] = []
    for device in plan.hardware.devices:
        is_target = device is target or device.label == plan.target
        if not is_target and device.label not in labels:
            labels.append(device.label)
    if labels:
        yield (
            f"this machine also has: {', '.join(labels)}. An environment can contain only one "
            "build of torch, so use a separate environment for each accelerator."
        )


def _note_on_unknown_devices(machine: Machine) -> Iterator[str]:
    """Yield a note if the machine has devices that may be accelerators without a known plugin."""
    devices = ", ".join(map(str, unknown_devices(machine)))
    if devices:
        yield f"an unknown device may be an accelerator for which no plugin is known: PCI {devices}"
