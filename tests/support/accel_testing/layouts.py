"""Distributions on disk, in every form in which Python finds one.

Each function writes one distribution below `root` and returns the entry for `sys.path` that shows it.
`groups` is what `entry_points.txt` holds: `{"accel.backends": {"npu": "accel_npu"}}`; `modules` is source
by module name.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

GROUP = "accel.backends"

Groups = Mapping[str, Mapping[str, str]]


def entry_points_text(groups: Groups) -> str:
    return "\n".join(
        line
        for group, items in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in items.items()), "")
    )


def metadata_text(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: not-a-header\n"


def _stem(name: str, version: str) -> str:
    return f"{name.replace('-', '_')}-{version}"


def _write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())


def _sources(modules: Mapping[str, str]) -> dict[str, str]:
    return {f"{name.replace('.', '/')}.py": source for name, source in modules.items()}


def dist_info(
    root: Path,
    name: str,
    version: str,
    groups: Groups | None = None,
    modules: Mapping[str, str] | None = None,
) -> Path:
    """An installed wheel."""
    info = f"{_stem(name, version)}.dist-info"
    files = {f"{info}/METADATA": metadata_text(name, version), **_sources(modules or {})}
    if groups is not None:
        files[f"{info}/entry_points.txt"] = entry_points_text(groups)
    _write(root, files)
    return root


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
