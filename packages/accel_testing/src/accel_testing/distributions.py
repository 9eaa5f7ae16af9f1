"""Write distributions to disk in the form of installed wheels."""

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
    """Write an installed distribution into `folder`, and return `folder` as an entry for `sys.path`.

    `groups` contains the entry points, such as `{"accel.backends": {"npu": "accel_npu"}}`. `modules` maps
    module names to sources. Raises `OSError` if the folder cannot be written.
    """
    dist_info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {f"{dist_info}/METADATA": metadata_text(name, version)}
    for module, source in (modules or {}).items():
        files[f"{module.replace('.', '/')}.py"] = source
    if groups is not None:
        files[f"{dist_info}/entry_points.txt"] = entry_points_text(groups)
    return write_files(folder, files)


def entry_points_text(groups: Groups) -> str:
    """Return the text of a distribution's file `entry_points.txt`."""
    lines = []
    for group, entry_points in groups.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in entry_points.items()]
        lines.append("")
    return "\n".join(lines)


def metadata_text(name: str, version: str) -> str:
    """Return the text of a distribution's `METADATA` file.

    The description has the form of a header, to test that a reader stops at the end of the headers.
    """
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: not-a-header\n"


def write_files(folder: str | Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below `folder`, and return `folder`. Missing folders are created.

    `files` maps the path of each file below `folder` to the file's content.
    """
    root = Path(folder)
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root
