"""Write distributions to disk in the form in which pip installs wheels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["entry_points_text", "metadata_text", "write_distribution", "write_files"]

#: Entry points by group and name, such as `{"accel.backends": {"npu": "accel_npu"}}`.
Groups = Mapping[str, Mapping[str, str]]


def write_distribution(
    folder: str | Path,
    name: str,
    version: str,
    groups: Groups | None = None,
    modules: Mapping[str, str] | None = None,
) -> Path:
    """Write a distribution into `folder` as if it were installed there, and return `folder`.

    The result can be used as an entry of `sys.path`. `groups` contains the entry points, such as
    `{"accel.backends": {"npu": "accel_npu"}}`. `modules` maps module names to their sources. Raises `OSError`
    if the folder cannot be written.
    """
    dist_info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {f"{dist_info}/METADATA": metadata_text(name, version)}
    for module, source in (modules or {}).items():
        files[f"{module.replace('.', '/')}.py"] = source
    if groups is not None:
        files[f"{dist_info}/entry_points.txt"] = entry_points_text(groups)
    return write_files(folder, files)


def entry_points_text(groups: Groups) -> str:
    """Return the contents of a distribution's `entry_points.txt` file for the given entry points."""
    lines = []
    for group, entry_points in groups.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in entry_points.items()]
        lines.append("")
    return "\n".join(lines)


def metadata_text(name: str, version: str) -> str:
    """Return the contents of a distribution's `METADATA` file, with a name and a version.

    The description looks like a header, which tests that a reader stops at the end of the real headers.
    """
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: not-a-header\n"


def write_files(folder: str | Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below `folder`, create missing folders, and return `folder`.

    `files` maps the path of each file, relative to `folder`, to its contents.
    """
    root = Path(folder)
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root
