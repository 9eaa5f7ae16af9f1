"""Facts about a backend's device, driver and toolkit on this machine, read from files and variables only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from accel_core import Backend, hardware
from accel_core.hardware import bus, vendors
from accel_tools.machine import driver_of

__all__ = ["hardware_facts", "lying_about", "toolkit"]

#: What the variables end with; others, `…_LOG_PATH`, may name what is made when it is needed.
_ENDINGS = ("_HOME", "_ROOT", "_HOME_PATH")
#: Where toolkits are installed that no variable names, and how many folders deep their libraries lie.
_TOOLKITS = ("/usr/local", "/opt")
_DEEPEST = 4
_MOST_FOLDERS = 3000


def hardware_facts(
    backend: Backend, environ: Mapping[str, str], root: str = "/"
) -> Iterator[tuple[str, str]]:
    """Yield names and values for people: device nodes, PCI devices, the driver, the toolkit's variables."""
    if hardware.on_linux():
        nodes = bus.device_nodes(
            (*backend.hardware.nodes, *backend.hardware.shared_nodes), root
        )
        yield (
            "device nodes",
            bus.enumerated(nodes) if nodes else _none_of(backend.hardware.nodes),
        )
        yield "PCI devices", _functions(backend, root)
        yield "driver", _driver(backend, root)
    yield "toolkit", ", ".join(_variables(backend, environ))


def _none_of(patterns: tuple[str, ...]) -> str:
    return f"none ({', '.join(patterns)})" if patterns else ""


def _functions(backend: Backend, root: str) -> str:
    if not backend.hardware.pci_ids:
        return ""
    found = [
        d for d in bus.pci_devices(root) if bus.matches_pci(d, backend.hardware.pci_ids)
    ]
    told = (
        f"{device} (driver {driver_of(device.address, root) or 'none'})"
        for device in found
    )
    return bus.enumerated(tuple(told)) or _none_of(backend.hardware.pci_ids)


def _driver(backend: Backend, root: str) -> str:
    """Return the driver's version, from its module or from a file that only the loaded driver brings."""
    file = backend.hardware.driver_file
    if not file:
        return ""
    if not hardware.path_exists(file, root):
        return f"not loaded ({file} is not there)"
    if os.path.isdir(hardware.under_root(root, file)):  # noqa: PTH112
        version = hardware.read_text(f"{file}/version", root)
        return f"{file.rpartition('/')[2]} {version}".strip()
    first = hardware.read_text(file, root).partition("\n")[0]
    module = file.split("/")[3] if file.startswith("/sys/module/") else ""
    version = (
        hardware.read_text(f"/sys/module/{module}/version", root) if module else ""
    )
    return f"{module} {version}".strip() if module else first


# --- The toolkit ---------------------------------------------------------------------------------------


#: Variables that name the folders of a vendor's toolkit: torch 2.13, torch/utils/cpp_extension.py;
#: torch_npu 2.13, torch_npu/utils/_path_manager.py; DeepSpeed, accelerator/mlu_accelerator.py;
#: MooreThreads/torch_musa, README.md; MetaX-MACA/vLLM-metax, docs/getting_started/installation/maca.md.
_VARIABLES_OF = {
    "NVIDIA GPU": ("CUDA_HOME", "CUDA_PATH"),
    "AMD GPU": ("ROCM_HOME", "ROCM_PATH"),
    "MetaX GPU": ("MACA_PATH",),
    "Ascend NPU": ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH"),
    "Cambricon MLU": ("NEUWARE_HOME",),
    "Moore Threads GPU": ("MUSA_HOME",),
}


def toolkit(backend: Backend, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that name the toolkit's folders, with their values; `None` if not set.

    These are the variables of vendors that we know. They are also all variables that begin like the backend's
    variables, end like a toolkit's, and hold a path: `SDAA_ROOT`.
    """
    known = [
        name
        for label, names in _VARIABLES_OF.items()
        for vendor in vendors.VENDORS
        if (vendor.label, vendor.backend) == (label, backend.name)
        and backend.hardware.name in ("", label)
        for name in names
    ]
    others = (
        name
        for name in sorted(environ)
        if name.startswith(backend.environment.forward)
        and name.endswith(_ENDINGS)
        and environ[name].startswith("/")
    )
    return {
        name: environ.get(name) or None for name in dict.fromkeys((*known, *others))
    }


def _variables(backend: Backend, environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in toolkit(backend, environ).items():
        if value is None:
            yield f"{name} is not set"
        else:
            yield f"{name}={value}" + ("" if _all_there(value) else " (not there)")


def _all_there(value: str) -> bool:
    return all(hardware.path_exists(part) for part in value.split(os.pathsep) if part)


def lying_about(
    names: Iterable[str], folders: Iterable[str], root: str = "/"
) -> dict[str, str]:
    """Return folders with libraries of these names in which the loader does not look.

    It searches below `folders`, which the toolkit's variables name, and where toolkits are usually installed.
    """
    wanted, found, left = set(names), dict[str, str](), _MOST_FOLDERS
    waiting = [(folder, 0) for folder in folders if folder.startswith("/")]
    waiting += [(hardware.under_root(root, folder), 0) for folder in _TOOLKITS]
    seen: set[str] = set()
    while waiting and wanted - found.keys() and left:
        folder, depth = waiting.pop(0)
        left -= 1
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        inside = hardware.names_in(folder)
        found.update(
            (name, folder) for name in inside if name in wanted and name not in found
        )
        if depth < _DEEPEST and left:
            below = sorted(
                name for name in inside if "." not in name or name[0].isdigit()
            )
            for name in below:
                if os.path.isdir(f"{folder}/{name}"):  # noqa: PTH112
                    waiting.append((f"{folder}/{name}", depth + 1))
    return found
