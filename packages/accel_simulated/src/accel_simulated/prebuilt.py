"""Find and write prebuilt libraries of the simulated device, for machines without a compiler.

`accel simulate --build acme --output FOLDER` writes the libraries. They are searched for in the folder that
`ACCEL_SIMULATE_LIBRARY` names, and in the folder `built` of this package. Each library has its own folder,
whose name consists of the device type, the torch version, and a digest of the sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from accel_simulated.errors import BuildError

__all__ = ["LIBRARY", "LibraryKey", "copy_library", "find", "find_in"]

#: The environment variable that contains the path of a folder of prebuilt libraries, or of the library that a
#: parent process found.
LIBRARY = "ACCEL_SIMULATE_LIBRARY"
_PACKAGE_FOLDER = Path(__file__).with_name("built")
_LIBRARY_FILE, _MANIFEST_FILE = "simdev.so", "manifest.json"


class LibraryKey(NamedTuple):
    """A key that identifies a compiled library by its device type, torch version and sources."""

    #: The torch device type, such as `"PrivateUse1"`.
    kind: str
    torch_version: str
    #: The SHA-256 digest of the sources and the compiler flags, in hexadecimal.
    source_digest: str

    @property
    def folder_name(self) -> str:
        """Return the name of the folder that contains the library and its manifest."""
        short_digest = self.source_digest[:12]
        return f"simdev_{self.kind.lower()}-torch{self.torch_version}-{short_digest}"


def find(key: LibraryKey) -> Path | None:
    """Return the path of the prebuilt library with this key, or `None` if there is none.

    Raises `BuildError` if the library is damaged.
    """
    for parent in _search_folders():
        library = find_in(parent, key)
        if library is not None:
            return library
    return None


def find_in(parent: Path, key: LibraryKey) -> Path | None:
    """Return the path of the library with this key below the folder `parent`, or `None` if there is none.

    Raises `BuildError` if the library is damaged or `parent` cannot be read.
    """
    folder = parent / key.folder_name
    try:
        has_manifest = (folder / _MANIFEST_FILE).is_file()
    except OSError as error:  # For example, this user may not open the folder.
        raise BuildError(f"{folder} cannot be read: {error.strerror}") from error
    if not has_manifest:
        return None
    damage = _describe_damage(folder)
    library = folder / _LIBRARY_FILE
    if damage:
        raise BuildError(
            f"{library} is damaged, and was not loaded: {damage}. Build the library again on a machine with "
            f"a compiler: accel simulate --build --output {parent}"
        )
    return library


def copy_library(library: Path, key: LibraryKey, parent: Path) -> Path:
    """Copy a library atomically into the folder for its key below `parent`, and return the path of the copy.

    All users can read the copy. Raises `BuildError` if `parent` cannot be written.
    """
    folder = parent / key.folder_name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".simdev-", dir=parent))
        try:
            _write_copy_and_manifest(staging, library, key)
            shutil.rmtree(folder, ignore_errors=True)
            staging.rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise BuildError(
            f"{parent} cannot be written: {error.strerror or error}. Choose another folder with --output."
        ) from error
    return folder / _LIBRARY_FILE


def _write_copy_and_manifest(folder: Path, library: Path, key: LibraryKey) -> None:
    """Write a copy of the library and its manifest into `folder`, readable by all users."""
    copy = folder / _LIBRARY_FILE
    manifest_file = folder / _MANIFEST_FILE
    shutil.copyfile(library, copy)
    manifest = {"sha256": _sha256(copy), "inputs": {"torch": key.torch_version}}
    manifest_file.write_text(json.dumps(manifest), encoding="utf-8")
    folder.chmod(0o755)
    copy.chmod(0o755)
    manifest_file.chmod(0o644)


def _search_folders() -> Iterator[Path]:
    """Yield the folders to search for prebuilt libraries, starting with the user's folder."""
    user_folder = os.environ.get(LIBRARY, "")
    if user_folder:
        yield Path(user_folder)
    yield _PACKAGE_FOLDER


def _describe_damage(folder: Path) -> str:
    """Return a clause that says how the library in `folder` is damaged, or an empty string if it is not."""
    try:
        manifest = json.loads((folder / _MANIFEST_FILE).read_text(encoding="utf-8"))
        expected_digest = manifest["sha256"]
        actual_digest = _sha256(folder / _LIBRARY_FILE)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return str(error) or type(error).__name__
    if actual_digest != expected_digest:
        return f"the library's SHA-256 differs from the one in {_MANIFEST_FILE}"
    return ""


def _sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
