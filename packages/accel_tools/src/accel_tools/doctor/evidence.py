"""Collect facts about a backend's devices, driver and toolkit from files and environment variables."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from accel_core import Backend, hardware
from accel_core.hardware import bus, vendors
from accel_tools.machine import driver_of

__all__ = ["find_libraries", "hardware_facts", "toolkit_variables"]

#: The endings of variables that contain a toolkit's folder. Other variables, such as
#: `…_LOG_PATH`, may contain a folder that is created on demand.
_ENDINGS = ("_HOME", "_ROOT", "_HOME_PATH")
#: The folders in which toolkits are usually installed, how many levels below them libraries
#: are searched, and the maximum number of folders that are searched.
_TOOLKIT_FOLDERS = ("/usr/local", "/opt")
_MAX_DEPTH = 4
_MAX_FOLDERS = 3000


def hardware_facts(
    backend: Backend, environ: Mapping[str, str], root: str = "/"
) -> Iterator[tuple[str, str]]:
    """Yield the names and values of facts: device nodes, PCI devices, driver and toolkit variables.

    `root` is the folder that contains `/sys`, `/proc` and `/dev`.
    """
    if hardware.on_linux():
        patterns = (*backend.hardware.nodes, *backend.hardware.shared_nodes)
        nodes = bus.device_nodes(patterns, root)
        if nodes:
            yield "device nodes", bus.enumerated(nodes)
        else:
            yield "device nodes", _none_of(backend.hardware.nodes)
        yield "PCI devices", _pci_devices(backend, root)
        yield "driver", _driver(backend, root)
    yield "toolkit", ", ".join(_toolkit_facts(backend, environ))


def _none_of(patterns: tuple[str, ...]) -> str:
    """Return the text that nothing matches the patterns; empty if there are no patterns."""
    return f"none ({', '.join(patterns)})" if patterns else ""


def _pci_devices(backend: Backend, root: str) -> str:
    """Return the backend's PCI devices and their drivers; empty if the backend declares no PCI ids."""
    ids = backend.hardware.pci_ids
    if not ids:
        return ""
    devices = []
    for device in bus.pci_devices(root):
        if bus.matches_pci(device, ids):
            driver = driver_of(device.address, root) or "none"
            devices.append(f"{device} (driver {driver})")
    return bus.enumerated(tuple(devices)) or _none_of(ids)


def _driver(backend: Backend, root: str) -> str:
    """Return the version of the backend's driver, from its kernel module or a file of the driver.

    The string is empty if the backend does not declare a file of its driver.
    """
    file = backend.hardware.driver_file
    if not file:
        return ""
    if not hardware.path_exists(file, root):
        return f"not loaded ({file} is missing)"
    if os.path.isdir(hardware.under_root(root, file)):  # noqa: PTH112
        version = hardware.read_text(f"{file}/version", root)
        return f"{file.rpartition('/')[2]} {version}".strip()
    if file.startswith("/sys/module/"):
        module = file.split("/")[3]
        version = hardware.read_text(f"/sys/module/{module}/version", root)
        return f"{module} {version}".strip()
    return hardware.read_text(file, root).partition("\n")[0]


# --- The toolkit ---------------------------------------------------------------------


#: Variables that contain the folders of a vendor's toolkit: torch 2.13, torch/utils/cpp_extension.py;
#: torch_npu 2.13, torch_npu/utils/_path_manager.py; DeepSpeed, accelerator/mlu_accelerator.py;
#: MooreThreads/torch_musa, README.md; MetaX-MACA/vLLM-metax, docs/getting_started/installation/maca.md.
_VENDOR_VARIABLES = {
    "NVIDIA GPU": ("CUDA_HOME", "CUDA_PATH"),
    "AMD GPU": ("ROCM_HOME", "ROCM_PATH"),
    "MetaX GPU": ("MACA_PATH",),
    "Ascend NPU": ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH"),
    "Cambricon MLU": ("NEUWARE_HOME",),
    "Moore Threads GPU": ("MUSA_HOME",),
}


def toolkit_variables(
    backend: Backend, environ: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the variables that contain the toolkit's folders, and their values; `None` if not set.

    These are the vendor's documented variables (`_VENDOR_VARIABLES`), and all variables such as
    `SDAA_ROOT` that begin with a prefix of the backend, have an ending of a toolkit's variable, and
    contain a path.
    """
    known = list(_known_variables(backend))
    for name, value in sorted(environ.items()):
        has_prefix = name.startswith(backend.environment.forward)
        if has_prefix and name.endswith(_ENDINGS) and value.startswith("/"):
            known.append(name)
    return {name: environ.get(name) or None for name in dict.fromkeys(known)}


def _known_variables(backend: Backend) -> Iterator[str]:
    for vendor in vendors.VENDORS:
        is_same_hardware = backend.hardware.name in ("", vendor.label)
        if vendor.backend == backend.name and is_same_hardware:
            yield from _VENDOR_VARIABLES.get(vendor.label, ())


def _toolkit_facts(backend: Backend, environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in toolkit_variables(backend, environ).items():
        if value is None:
            yield f"{name} is not set"
        elif _all_exist(value):
            yield f"{name}={value}"
        else:
            yield f"{name}={value} (missing)"


def _all_exist(paths: str) -> bool:
    """Return whether all paths of a list such as `"/a:/b"` exist."""
    return all(hardware.path_exists(path) for path in paths.split(os.pathsep) if path)


def find_libraries(
    names: Iterable[str], folders: Iterable[str], root: str = "/"
) -> dict[str, str]:
    """Search for libraries outside the loader's search path, and return the folder of each by name.

    The search covers the tree below `folders` (the folders in the toolkit's variables) and the
    folders in which toolkits are usually installed. It stops after 3,000 folders.
    """
    missing = set(names)
    found: dict[str, str] = {}
    roots = [folder for folder in folders if folder.startswith("/")]
    roots += [hardware.under_root(root, folder) for folder in _TOOLKIT_FOLDERS]
    for folder in _walk(roots):
        if not missing:
            break
        present = missing.intersection(hardware.names_in(folder))
        missing -= present
        for name in present:
            found[name] = folder
    return found


def _walk(roots: Iterable[str]) -> Iterator[str]:
    """Yield the folders `roots` and their subfolders, breadth first and without duplicates."""
    queue = deque((root, 0) for root in roots)
    visited: set[str] = set()
    for _ in range(_MAX_FOLDERS):
        if not queue:
            return
        folder, depth = queue.popleft()
        real_path = os.path.realpath(folder)
        if real_path in visited:
            continue
        visited.add(real_path)
        yield folder
        if depth < _MAX_DEPTH:
            queue.extend((path, depth + 1) for path in _subfolders(folder))


def _subfolders(folder: str) -> list[str]:
    """Return the paths of the folders in `folder`.

    A folder with a dot in its name is left out, unless the name is a version such as `12.8`.
    """
    names = sorted(hardware.names_in(folder))
    paths = [
        f"{folder}/{name}" for name in names if "." not in name or name[0].isdigit()
    ]
    return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112
