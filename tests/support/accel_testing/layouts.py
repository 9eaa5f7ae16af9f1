"""Distributions on disk, in every form in which Python finds one.

Each function writes one distribution below `root` and returns the entry for `sys.path` that shows it.
`groups` is what `entry_points.txt` holds: `{"accel.backends": {"npu": "accel_npu"}}`; `modules` is source
by module name.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from accel_core.testing.distributions import entry_points_text, metadata_text
from accel_core.testing.distributions import write_distribution as dist_info
from accel_core.testing.distributions import write_files as _write

GROUP = "accel.backends"

Groups = Mapping[str, Mapping[str, str]]


def _stem(name: str, version: str) -> str:
    return f"{name.replace('-', '_')}-{version}"


def _sources(modules: Mapping[str, str]) -> dict[str, str]:
    return {f"{name.replace('.', '/')}.py": source for name, source in modules.items()}


def egg_info(
    root: Path,
    name: str,
    version: str,
    groups: Groups | None = None,
    modules: Mapping[str, str] | None = None,
) -> Path:
    """What `python setup.py develop` leaves beside the sources: a folder without a version in its name."""
    info = f"{name.replace('-', '_')}.egg-info"
    files = {f"{info}/PKG-INFO": metadata_text(name, version), **_sources(modules or {})}
    if groups is not None:
        files[f"{info}/entry_points.txt"] = entry_points_text(groups)
    _write(root, files)
    return root


def egg_info_file(root: Path, name: str, version: str) -> Path:
    """What distutils left: one file, with no entry points, that still hides a later one of its name."""
    _write(root, {f"{_stem(name, version)}-py3.11.egg-info": metadata_text(name, version)})
    return root


def egg_folder(
    root: Path,
    name: str,
    version: str,
    groups: Groups | None = None,
    modules: Mapping[str, str] | None = None,
) -> Path:
    """An unzipped egg, itself an entry of `sys.path`."""
    egg = root / f"{_stem(name, version)}-py3.11.egg"
    files = {"EGG-INFO/PKG-INFO": metadata_text(name, version), **_sources(modules or {})}
    if groups is not None:
        files["EGG-INFO/entry_points.txt"] = entry_points_text(groups)
    _write(egg, files)
    return egg


def _zip(path: Path, files: Mapping[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def egg_zip(
    root: Path,
    name: str,
    version: str,
    groups: Groups | None = None,
    modules: Mapping[str, str] | None = None,
) -> Path:
    """A zipped egg."""
    files = {"EGG-INFO/PKG-INFO": metadata_text(name, version), **_sources(modules or {})}
    if groups is not None:
        files["EGG-INFO/entry_points.txt"] = entry_points_text(groups)
    return _zip(root / f"{_stem(name, version)}-py3.11.egg", files)


def wheel_zip(
    root: Path,
    name: str,
    version: str,
    groups: Groups | None = None,
    modules: Mapping[str, str] | None = None,
) -> Path:
    """A wheel put on `sys.path` as it is."""
    info = f"{_stem(name, version)}.dist-info"
    files = {f"{info}/METADATA": metadata_text(name, version), **_sources(modules or {})}
    if groups is not None:
        files[f"{info}/entry_points.txt"] = entry_points_text(groups)
    return _zip(root / f"{_stem(name, version)}-py3-none-any.whl", files)


def editable(
    root: Path,
    name: str,
    version: str,
    groups: Groups | None = None,
    modules: Mapping[str, str] | None = None,
) -> Path:
    """`pip install -e`: metadata in site-packages, a .pth file that names the folder with the sources."""
    sources = root.parent / f"{name}-checkout" / "src"
    _write(sources, _sources(modules or {}))
    dist_info(root, name, version, groups)
    _write(root, {f"_{name}.pth": f"{sources}\n"})
    return root


ALL = (dist_info, egg_info, egg_folder, egg_zip, wheel_zip, editable)
