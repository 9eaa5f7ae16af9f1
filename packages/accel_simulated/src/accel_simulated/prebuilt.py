"""Libraries of the device that were built ahead, for machines without a compiler.

`accel simulate --build acme --output FOLDER` writes them. They are found in the folder that
`ACCEL_SIMULATE_LIBRARY` names, and in `built` of this package. Each lies in a folder of its own, named after
what it fits: the device type, torch's version, and the sources.
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

#: A folder of such libraries; or one library, which a process has found for those that it starts.
LIBRARY = "ACCEL_SIMULATE_LIBRARY"
_INSIDE = Path(__file__).with_name("built")
_FILE, _MANIFEST = "simdev.so", "manifest.json"


class Fit(NamedTuple):
    """The requirements on a library."""

    #: Torch's device type, such as `"PrivateUse1"`.
    kind: str
    #: torch's version.
    torch: str
    #: Digest of our sources, and of how they are compiled.
    sources: str

    @property
    def folder(self) -> str:
        """Return the name of the library's folder."""
        return f"simdev_{self.kind.lower()}-torch{self.torch}-{self.sources[:12]}"


def find(fit: Fit) -> Path | None:
    """Return the prebuilt library that fits, or `None`. Raises `BuildError` for a damaged one."""
    for place in _places():
        found = find_in(place, fit)
        if found is not None:
            return found
    return None


def find_in(place: Path, fit: Fit) -> Path | None:
    """Return the library in this folder that fits, or `None`. Raises `BuildError` for a damaged one."""
    folder = place / fit.folder
    return _checked(folder, place) if (folder / _MANIFEST).is_file() else None


def write(library: Path, fit: Fit, place: Path) -> Path:
    """Put a copy of the library into `place`, completely or not at all; return the copy's path.

    Everyone can read it, because another user may run it. Raises `BuildError` if `place` cannot be written.
    """
    folder = place / fit.folder
    try:
        place.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".simdev-", dir=place))
        try:
            shutil.copyfile(library, staging / _FILE)
            noted = {"sha256": _digest(staging / _FILE), "inputs": {"torch": fit.torch}}
            (staging / _MANIFEST).write_text(json.dumps(noted), encoding="utf-8")
            for path, mode in (
                (staging, 0o755),
                (staging / _FILE, 0o755),
                (staging / _MANIFEST, 0o644),
            ):
                path.chmod(mode)
            shutil.rmtree(folder, ignore_errors=True)
            staging.rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise BuildError(
            f"{place} cannot be written: {error.strerror or error}. Name a folder that can: --output FOLDER"
        ) from error
    return folder / _FILE


def _places() -> Iterator[Path]:
    if named := os.environ.get(LIBRARY, ""):
        yield Path(named)
    yield _INSIDE


def _checked(folder: Path, place: Path) -> Path:
    library = folder / _FILE
    try:
        noted = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        intact = noted["sha256"] == _digest(library)
        why = f"its SHA-256 differs from the one in {_MANIFEST}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        intact, why = False, str(error)
    if not intact:
        raise BuildError(
            f"{library} is not what was built: {why}. It was not loaded. Write it again, with a compiler: "
            f"accel simulate --build --output {place}"
        )
    return library


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
