"""Read facts about a backend's devices, driver and toolkit from files and environment variables."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from accel_core import Backend, hardware
from accel_core.hardware import bus, vendors
from accel_tools.machine import driver_of

__all__ = ["describe_hardware", "find_libraries", "toolkit_variables"]

#: The endings of the names of variables that contain a toolkit's folder. A variable with a different
#: ending, such as `ASCEND_LOG_PATH`, may contain a folder that is created on demand.
_TOOLKIT_ENDINGS = ("_HOME", "_ROOT", "_HOME_PATH")
#: The folders in which toolkits are usually installed, how many levels below them libraries
#: are searched, and the maximum number of folders that are searched.
_TOOLKIT_FOLDERS = ("/usr/local", "/opt")
_MAX_DEPTH = 4
_MAX_FOLDERS = 3000


def describe_hardware(
    backend: Backend, environ: Mapping[str, str], root: str = "/"
) -> Iterator[tuple[str, str]]:
    """Yield facts about a backend's device nodes, PCI devices, driver and toolkit variables.

    Each fact is a pair of a name and a text. `root` is the folder that contains `/sys`, `/proc` and `/dev`.
    """
    if hardware.on_linux():
        patterns = (*backend.hardware.nodes, *backend.hardware.shared_nodes)
        nodes = bus.device_nodes(patterns, root)
        if nodes:
            yield "device nodes", bus.enumerated(nodes)
        else:
            yield "device nodes", _describe_absence(backend.hardware.nodes)
        yield "PCI devices", _describe_pci_devices(backend, root)
        yield "driver", _describe_driver(backend, root)
    yield "toolkit", ", ".join(_describe_toolkit_variables(backend, environ))


def _describe_absence(patterns: tuple[str, ...]) -> str:
    """Return `"none"` with the patterns that match nothing, or an empty string if there are no patterns."""
    if not patterns:
        return ""
    return f"none ({', '.join(patterns)})"


def _describe_pci_devices(backend: Backend, root: str) -> str:
    """Return the backend's PCI devices and their drivers.

    Returns an empty string if the backend declares no PCI ids.
    """
    ids = backend.hardware.pci_ids
    if not ids:
        return ""
    devices = []
    for device in bus.pci_devices(root):
        if bus.matches_pci(device, ids):
            driver = driver_of(device.address, root) or "none"
            devices.append(f"{device} (driver {driver})")
    return bus.enumerated(tuple(devices)) or _describe_absence(ids)


def _describe_driver(backend: Backend, root: str) -> str:
    """Return the name and the version of the backend's driver, or that it is not loaded.

    Returns an empty string if the backend does not declare a driver file.
    """
    path = backend.hardware.driver_file
    if not path:
        return ""
    if not hardware.path_exists(path, root):
        return f"not loaded ({path} is missing)"
    if os.path.isdir(hardware.under_root(root, path)):  # noqa: PTH112
        return _name_and_version(path, root)
    if path.startswith("/sys/module/"):
        module = path.removeprefix("/sys/module/").partition("/")[0]
        return _name_and_version(f"/sys/module/{module}", root)
    first_line, _, _ = hardware.read_text(path, root).partition("\n")
    return first_line


def _name_and_version(driver_folder: str, root: str) -> str:
    """Return the name of a driver's folder, and the content of the file `version` in it."""
    name = driver_folder.rpartition("/")[2]
    version = hardware.read_text(f"{driver_folder}/version", root)
    return f"{name} {version}".strip()


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
    """Return the environment variables that contain folders of the vendor's toolkit, with their values.

    A documented variable (`_VENDOR_VARIABLES`) that is not set has the value `None`. Other variables, such
    as `SDAA_ROOT`, are included if their names begin with a prefix of the backend and have an ending such
    as `_ROOT`, and if they contain a path.
    """
    names = list(_documented_variables(backend))
    for name, value in sorted(environ.items()):
        has_prefix = name.startswith(backend.environment.forward)
        if has_prefix and name.endswith(_TOOLKIT_ENDINGS) and value.startswith("/"):
            names.append(name)
    variables: dict[str, str | None] = {}
    for name in names:
        variables[name] = environ.get(name) or None
    return variables


def _documented_variables(backend: Backend) -> Iterator[str]:
    """Yield the names of the toolkit variables that the vendor of the backend documents."""
    for vendor in vendors.VENDORS:
        is_same_hardware = backend.hardware.name in ("", vendor.label)
        if vendor.backend == backend.name and is_same_hardware:
            yield from _VENDOR_VARIABLES.get(vendor.label, ())


def _describe_toolkit_variables(
    backend: Backend, environ: Mapping[str, str]
) -> Iterator[str]:
    """Yield a description of each toolkit variable, such as `"CUDA_HOME=/usr/local/cuda (missing)"`."""
    for name, value in toolkit_variables(backend, environ).items():
        if value is None:
            yield f"{name} is not set"
        elif _all_paths_exist(value):
            yield f"{name}={value}"
        else:
            yield f"{name}={value} (missing)"


def _all_paths_exist(paths: str) -> bool:
    """Return whether all paths of a list such as `"/a:/b"` exist."""
    return all(hardware.path_exists(path) for path in paths.split(os.pathsep) if path)


def find_libraries(
    names: Iterable[str], folders: Iterable[str], root: str = "/"
) -> dict[str, str]:
    """Search toolkit folders for libraries, and return the folder of each library found.

    Args:
        names: The file names of the libraries.
        folders: The folders named by the toolkit's variables. The folders in which toolkits are usually
            installed are searched too. The search includes subfolders, and stops after 3,000 folders.
        root: The folder that contains the folders in which toolkits are usually installed.
    """
    missing = set(names)
    folder_of_library: dict[str, str] = {}
    top_folders = [folder for folder in folders if folder.startswith("/")]
    top_folders += [hardware.under_root(root, folder) for folder in _TOOLKIT_FOLDERS]
    for folder in _walk_folders(top_folders):
        if not missing:
            break
        present = missing.intersection(hardware.names_in(folder))
        missing -= present
        for name in present:
            folder_of_library[name] = folder
    return folder_of_library


def _walk_folders(top_folders: Iterable[str]) -> Iterator[str]:
    """Yield the folders and their subfolders, breadth first and without duplicates.

    At most 3,000 folders are yielded, down to four levels below the top folders.
    """
    folders_with_depth = deque((folder, 0) for folder in top_folders)
    visited: set[str] = set()
    for _ in range(_MAX_FOLDERS):  # The limit ends the search in very large folders.
        if not folders_with_depth:
            return
        folder, depth = folders_with_depth.popleft()
        real_path = os.path.realpath(folder)
        if real_path in visited:
            continue
        visited.add(real_path)
        yield folder
        if depth < _MAX_DEPTH:
            for path in _subfolders(folder):
                folders_with_depth.append((path, depth + 1))


def _subfolders(folder: str) -> list[str]:
    """Return the paths of the subfolders of `folder`, in alphabetical order.

    A subfolder with a dot in its name is left out, unless the name is a version such as `12.8`.
    """
    paths = []
    for name in sorted(hardware.names_in(folder)):
        path = f"{folder}/{name}"
        # A name with a dot is usually a file, except for a version such as "12.8". The name is
        # checked first, because isdir() reads the file system.
        is_version = name[0].isdigit()
        may_be_folder = "." not in name or is_version
        if may_be_folder and os.path.isdir(path):  # noqa: PTH112
            paths.append(path)
    return paths
