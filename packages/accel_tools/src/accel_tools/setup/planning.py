"""Make the plan for a machine: choose the hardware, and the source of the packages."""

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
from accel_tools.setup.pytorch_indexes import PYTORCH, plan_with_pytorch
from accel_tools.setup.recipes import Recipe, recipes
from accel_tools.setup.vendor_tables import plan_with_table

__all__ = ["names", "planned", "toolkits"]

#: The name with which users request AMD GPUs, which the backend `cuda` drives.
_ROCM = "rocm"


def names() -> tuple[str, ...]:
    """Return the names that users can request: the names of backends, and `rocm`."""
    tables, _ = recipes()
    result = {"cpu", _ROCM, *vendors.FIRST_PARTY, *tables}
    for name in installed_names():
        if name != "generic" and "." not in name:
            result.add(name)
    return tuple(sorted(result))


def toolkits() -> dict[str, str]:
    """Return the name of the toolkit for each backend with a toolkit, such as CUDA for `cuda`.

    The toolkit's version determines which packages fit.
    """
    tables, _ = recipes()
    result = {"cuda": "CUDA", _ROCM: "ROCm"}
    for name, recipe in tables.items():
        if recipe.toolkit:
            result[name] = recipe.toolkit.name
    return result


def planned(
    machine: Machine,
    name: str = "",
    torch: str = "",
    *,
    driver: str = "",
    toolkit: str = "",
) -> Plan:
    """Return the plan for the machine's best accelerator, or for the hardware called `name`.

    Args:
        machine: The machine to plan for.
        name: One of `names()`, or an empty string for the machine's best accelerator. The
            machine does not need to have the hardware.
        torch: The required release of torch; empty for the newest that fits.
        driver: A version of NVIDIA's driver to plan for instead of the machine's driver.
        toolkit: A version of the vendor's toolkit to plan for instead of the machine's toolkit.
    """
    hardware = detect_hardware(machine)
    tables, problems = recipes()
    target = _target(hardware, name, has_version=bool(driver or toolkit))
    if name == "xpu" and hardware.intel == UNNAMED:
        hardware = hardware._replace(intel="")
    start = _start(machine, hardware, target, driver, toolkit)
    plan = _complete(start, machine, tables, torch)
    intel = _intel_card(hardware)
    is_without_wheels = bool(plan.unknown or plan.torch_index)
    is_amd_part_of_cpu = plan.target == "AMD GPU" and hardware.gfx and intel
    if is_without_wheels and is_amd_part_of_cpu and intel and not name:
        target = intel
        start = _start(machine, hardware, intel)
        plan = _complete(start, machine, tables, torch)
    notes = [*plan.notes]
    if target is not None:
        notes += _other_devices(plan, hardware, target)
    notes += _unknown_devices(machine)
    return plan._replace(notes=(*notes, *problems))


# --- The target ----------------------------------------------------------------------


def _target(
    hardware: Hardware, name: str, *, has_version: bool
) -> DetectedDevice | None:
    """Return the hardware to plan for; `None` for the CPU.

    The evidence is empty if the machine does not have the hardware. `has_version` means that the
    version of a driver or toolkit was given, so the plan may be for a different machine.
    """
    if name == "cpu":
        return None
    if "Jetson" in hardware.kind and name in ("", "cuda") and not has_version:
        # The GPU of a Jetson is not on the PCI bus.
        return DetectedDevice("NVIDIA GPU", "cuda", hardware.kind)
    if not name:
        return hardware.present[0] if hardware.present else None
    return _requested_device(hardware, name, has_version=has_version)


def _requested_device(
    hardware: Hardware, name: str, *, has_version: bool
) -> DetectedDevice:
    backend, label = _backend_and_label(name)
    devices = [device for device in hardware.present if device.backend == backend]
    # `cuda` drives the GPUs of two vendors.
    if name == _ROCM or (name == "cuda" and has_version):
        devices = [device for device in devices if device.label == label]
    return devices[0] if devices else DetectedDevice(label, backend, "")


def _backend_and_label(name: str) -> tuple[str, str]:
    """Return the backend and the label of the hardware for a requested name."""
    if name == _ROCM:
        return "cuda", "AMD GPU"
    for vendor in vendors.VENDORS:
        if vendor.backend == name:
            return name, vendor.label
    return name, name


def _intel_card(hardware: Hardware) -> DetectedDevice | None:
    for device in hardware.present:
        if device.label == "Intel discrete GPU":
            return device
    return None


def _start(
    machine: Machine,
    hardware: Hardware,
    device: DetectedDevice | None,
    driver: str = "",
    toolkit: str = "",
) -> Plan:
    """Return a plan without packages, with its target and the assumed facts."""
    target, backend = (device.label, device.backend) if device else ("CPU", "cpu")
    given = []
    if device is not None and not device.evidence:
        given.append(target)
    if driver not in ("", hardware.nvidia):
        given.append(f"NVIDIA's driver {driver}")
    if toolkit:
        name = _ROCM if target == "AMD GPU" else backend
        given.append(f"{toolkits()[name]} {toolkit}")
    return Plan(
        hardware=hardware,
        target=target,
        backend=backend,
        python=machine.python,
        driver=driver or hardware.nvidia,
        toolkit=toolkit,
        given=tuple(given),
    )


# --- The packages --------------------------------------------------------------------


def _complete(
    plan: Plan, machine: Machine, tables: dict[str, Recipe], torch: str
) -> Plan:
    """Return the plan with packages, or with the reason why no packages are known to fit."""
    reason = _why_no_wheel(machine, torch)
    if reason:
        return plan._replace(unknown=reason, url=PYTORCH)
    if plan.backend in tables and plan.target not in ("NVIDIA GPU", "AMD GPU"):
        return plan_with_table(plan, tables[plan.backend], machine, torch)
    if plan.backend not in ("cpu", *vendors.FIRST_PARTY):
        return _from_declaration(plan)
    return plan_with_pytorch(plan, machine, torch)


def _why_no_wheel(machine: Machine, torch: str) -> str:
    """Return why no wheel of torch fits the operating system; empty if a wheel may fit."""
    if machine.system == "darwin" and machine.architecture != "arm64":
        return (
            "PyTorch has had no wheels for Macs with Intel CPUs since torch 2.3; a Mac with "
            "Apple silicon needs a Python built for arm64"
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


def _from_declaration(plan: Plan) -> Plan:
    """Return a plan without packages for a plugin without a table, with the plugin's install hint."""
    settings = read_settings()
    load = IsolatedLoader(settings.probe_timeout)
    reason = f"the plugin of {plan.target} has no table of the packages that it needs"
    for verdict in find_backends(Pin(plan.backend), settings, load):
        backend = verdict.backend
        if backend is not None:
            hint = backend.install_hint
            notes = (f"The plugin's instructions: {hint}",) if hint else ()
            url = backend.url or PYTORCH
            return plan._replace(unknown=reason, url=url, notes=notes)
    return plan._replace(unknown=reason, url=PYTORCH)


# --- Notes ---------------------------------------------------------------------------


def _other_devices(
    plan: Plan, hardware: Hardware, target: DetectedDevice
) -> Iterator[str]:
    """Yield a note on the machine's other accelerators, if there are any."""
    labels: dict[str, None] = {}
    for device in hardware.present:
        if device is not target and device.label != plan.target:
            labels[device.label] = None
    if labels:
        yield (
            f"this machine also has: {', '.join(labels)}. An environment can contain only one "
            "build of torch; use a separate environment for each."
        )


def _unknown_devices(machine: Machine) -> Iterator[str]:
    devices = ", ".join(map(str, unknown_devices(machine)))
    if devices:
        yield f"an unknown device may be an accelerator for which no plugin is known: PCI {devices}"
