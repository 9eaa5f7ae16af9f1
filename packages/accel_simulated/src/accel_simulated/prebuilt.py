"""Find and write prebuilt libraries of the device, for machines without a compiler.

`accel simulate --build acme --output FOLDER` writes the libraries. They are looked up in the folder
`ACCEL_SIMULATE_LIBRARY`, and in the folder `built` of this package. Each library has a separate folder, whose
name consists of the device type, torch's version, and a digest of the sources.
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

__all__ = ["LIBRARY", "Fit", "find", "find_in", "write"]

#: The variable with the path of a folder of prebuilt libraries, or of the library found by a parent process.
LIBRARY = "ACCEL_SIMULATE_LIBRARY"
_PACKAGE_FOLDER = Path(__file__).with_name("built")
_LIBRARY_FILE, _MANIFEST_FILE = "simdev.so", "manifest.json"


class Fit(NamedTuple):
    """The properties that a library must have."""

    #: The torch device type, such as `"PrivateUse1"`.
    kind: str
    #: The version of torch.
    torch: str
    #: The SHA-256 digest of the sources and the compiler flags, in hexadecimal.
    sources: str

    @property
    def folder(self) -> str:
        """Return the name of the library's folder."""
        return f"simdev_{self.kind.lower()}-torch{self.torch}-{self.sources[:12]}"


def find(fit: Fit) -> Path | None:
    """Return the prebuilt library that matches `fit`, or `None`.

    Raises `BuildError` for a damaged library.
    """
    for parent in _search_folders():
        library = find_in(parent, fit)
        if library is not None:
            return library
    return None


def find_in(parent: Path, fit: Fit) -> Path | None:
    """Return the library that matches `fit` in its folder below `parent`, or `None`.

    Raises `BuildError` for a damaged library.
    """
    folder = parent / fit.folder
    if not (folder / _MANIFEST_FILE).is_file():
        return None
    problem = _damage(folder)
    library = folder / _LIBRARY_FILE
    if problem:
        raise BuildError(
            f"{library} is damaged, and was not loaded: {problem}. Write it again on a machine with a "
            f"compiler: accel simulate --build --output {parent}"
        )
    return library


def write(library: Path, fit: Fit, parent: Path) -> Path:
    """Copy a library atomically into its folder below `parent`; return the copy's path.

    All users can read the copy. Raises `BuildError` if `parent` cannot be written.
    """
    folder = parent / fit.folder
    try:
        parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".simdev-", dir=parent))
        try:
            _fill(staging, library, fit)
            shutil.rmtree(folder, ignore_errors=True)
            staging.rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise BuildError(
            f"{parent} cannot be written: {error.strerror or error}. Choose another folder with --output."
        ) from error
    return folder / _LIBRARY_FILE


def _fill(folder: Path, library: Path, fit: Fit) -> None:
    """Write a copy of the library and its manifest into `folder`, readable by all users."""
    copy, manifest_file = folder / _LIBRARY_FILE, folder / _MANIFEST_FILE
    shutil.copyfile(library, copy)
    manifest = {"sha256": _digest(copy), "inputs": {"torch": fit.torch}}
    manifest_file.write_text(json.dumps(manifest), encoding="utf-8")
    folder.chmod(0o755)
    copy.chmod(0o755)
    manifest_file.chmod(0o644)


def _search_folders() -> Iterator[Path]:
    """Yield the folders in which prebuilt libraries are looked up."""
    folder = os.environ.get(LIBRARY, "")
    if folder:
        yield Path(folder)
    yield _PACKAGE_FOLDER


def _damage(folder: Path) -> str:
    """Return a clause that describes how the library in `folder` is damaged; empty if it is intact."""
    try:
        text = (folder / _MANIFEST_FILE).read_text(encoding="utf-8")
        digest = json.loads(text)["sha256"]
        if digest == _digest(folder / _LIBRARY_FILE):
            return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return str(error) or type(error).__name__
    return f"its SHA-256 differs from the one in {_MANIFEST_FILE}"


def _digest(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
