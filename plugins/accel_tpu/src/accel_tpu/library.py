"""The PJRT library that TorchTPU loads: libtpu, or another library that the user
selects.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

__all__ = ["LIBRARY_VARIABLE", "library_problem", "selected_library"]

#: The environment variable that contains the path of the library. libtpu sets it if it is unset.
LIBRARY_VARIABLE = "TPU_LIBRARY_PATH"


def selected_library() -> Path | None:
    """Return the path of the PJRT library in `TPU_LIBRARY_PATH`.

    The result is `None` if the variable is not set or contains libtpu.
    """
    path = os.environ.get(LIBRARY_VARIABLE)
    if not path or Path(path).name == "libtpu.so":
        return None
    return Path(path)


def library_problem(library: Path) -> str:
    """Return why TorchTPU cannot load the library, as the predicate of a sentence, such
    as "does not exist".

    The result is an empty string if the file has the entry point of a PJRT library.
    """
    try:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if content.find(b"GetPjrtApi") < 0:
                return "is not a PJRT library: the function GetPjrtApi is missing"
    except FileNotFoundError:
        return "does not exist"
    except (OSError, ValueError) as error:  # a folder, no permission, or an empty file
        return f"cannot be read: {error}"
    return ""
