"""The PJRT library that TorchTPU loads: libtpu, or another library that the user
selects.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

__all__ = ["LIBRARY", "fault", "own_library"]

#: The variable that contains the library's path. libtpu sets the variable if it is unset.
LIBRARY = "TPU_LIBRARY_PATH"


def own_library() -> Path | None:
    """Return the path of the PJRT library that the user selects instead of libtpu;
    `None` if the user selects none.
    """
    path = os.environ.get(LIBRARY)
    if not path or Path(path).name == "libtpu.so":
        return None
    return Path(path)


def fault(library: Path) -> str:
    """Return the reason why TorchTPU cannot load the library, as a clause; empty if it
    can.
    """
    try:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if content.find(b"GetPjrtApi") < 0:
                return "is not a PJRT library: it has no GetPjrtApi"
    except FileNotFoundError:
        return "does not exist"
    except (OSError, ValueError) as error:  # a folder, no permission, or an empty file
        return f"cannot be read: {error}"
    return ""
