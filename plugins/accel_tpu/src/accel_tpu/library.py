"""The PJRT library that TorchTPU loads: libtpu's, or another that the user names."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

__all__ = ["LIBRARY", "fault", "own_library"]

#: The variable that names it. libtpu sets it where it is not set.
LIBRARY = "TPU_LIBRARY_PATH"


def own_library() -> Path | None:
    """Return the path of the PJRT library that the user names in place of libtpu's;
    `None` if none is named.
    """
    path = os.environ.get(LIBRARY)
    if not path or Path(path).name == "libtpu.so":
        return None
    return Path(path)


def fault(library: Path) -> str:
    """Return why TorchTPU cannot load the library, as a clause; empty if it can."""
    try:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if content.find(b"GetPjrtApi") < 0:
                return "is no PJRT library: it has no GetPjrtApi"
    except FileNotFoundError:
        return "is no file"
    except (OSError, ValueError) as error:  # a folder, no rights; an empty file
        return f"cannot be read: {error}"
    return ""
