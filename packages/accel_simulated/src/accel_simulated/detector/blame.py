"""Find who is responsible for a place: the nearest frame outside torch, Python, vendors and this package."""

from __future__ import annotations

import functools
import inspect
import os
from types import FrameType
from typing import Any

__all__ = ["PASSED", "THEIRS", "USERS", "past_torch", "place", "was_given", "whose"]

#: Python's own and what else only hands on; this package's; code that was made from text, which has no file.
PASSED = 0
#: torch's, a vendor's and accel's own: there a vendor may be named.
THEIRS = 1
#: Everybody else's.
USERS = 2

_HERE = os.path.dirname(os.path.abspath(__file__))
_PYTHONS = os.path.dirname(os.path.abspath(os.__file__))
#: Packages of torch, of vendors, and accel's.
_PACKAGES = frozenset(
    (
        "torch",
        "torchgen",
        "functorch",
        "triton",
        "nvidia",
        "cuda",
        "accel_core",
        "accel_train",
        "accel_tools",
        "accel_testing",
        "accel_simulated",
        "torch_acme",
        "torch_plain",
        "torch_npu",
        "torchair",
        "habana_frameworks",
        "intel_extension_for_pytorch",
        "oneccl_bindings_for_pytorch",
        "torch_mlu",
        "torch_sdaa",
        "torch_supa",
        "torch_musa",
        "torch_xmlir",
        "torch_xla",
    )
)
#: What only hands on, as Python's library does: `monkeypatch.setenv` writes for the test that calls it.
_HANDS_ON = frozenset(
    (
        *(
            "_pytest",
            "pytest",
            "pluggy",
            "xdist",
            "execnet",
            "hypothesis",
            "coverage",
            "debugpy",
            "pydevd",
        ),
        *("mock", "typing_extensions", "decorator", "wrapt"),
    )
)
_known: dict[str, int] = {}


def whose(frame: FrameType) -> int:
    """Return `PASSED`, `THEIRS` or `USERS`, by the file of the frame's code."""
    name = frame.f_code.co_filename
    found = _known.get(name)
    if found is None:
        found = _known[name] = _look(name, frame)
    return found


def place(frame: FrameType | None) -> FrameType | None:
    """Return the caller at `frame`, skipping only Python's library; `None` if it is torch's own code."""
    while frame is not None:
        found = whose(frame)
        if found != PASSED:
            return frame if found == USERS else None
        frame = frame.f_back
    return None


def _look(file: str, frame: FrameType) -> int:
    if file.startswith("<") or _under(file, _HERE):
        return PASSED
    package = _installed(file)
    if _under(file, _PYTHONS) and not package:
        return PASSED
    package = package or _module(frame, file)
    if package in _HANDS_ON or package.startswith("pytest_"):
        return PASSED
    return THEIRS if package in _PACKAGES or package in _plugins() else USERS


def _installed(file: str) -> str:
    """The package of a file that lies where packages are installed."""
    for folder in ("site-packages", "dist-packages"):
        _, found, inside = file.rpartition(f"{os.sep}{folder}{os.sep}")
        if found:
            return inside.partition(os.sep)[0].removesuffix(".py")
    return ""


def _under(file: str, folder: str) -> bool:
    return file.startswith(folder + os.sep)


def _module(frame: FrameType, file: str) -> str:
    """The package of a file elsewhere, as a source tree; empty where it lies in no folder of that name."""
    # `python -m torch.distributed.run` is called `__main__`.
    spec = frame.f_globals.get("__spec__")
    name = str(getattr(spec, "name", None) or frame.f_globals.get("__name__", ""))
    package = name.partition(".")[0]
    # A script of a user's may be called as a package is.
    there = f"{os.sep}{package}{os.sep}" in file
    return package if there else ""


@functools.cache
def _plugins() -> frozenset[str]:
    """The packages of installed plugins of accel: to name a vendor is what they are for."""
    from accel_core import packages
    from accel_core.backend import ENTRY_POINT_GROUP

    return frozenset(
        e.module.partition(".")[0] for e in packages.entry_points(ENTRY_POINT_GROUP)
    )


def past_torch(frame: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
    """Return the nearest frame of a user, skipping torch's, and the frame of torch that it called."""
    entered = None
    while frame is not None:
        found = whose(frame)
        if found == USERS:
            return frame, entered
        if found == THEIRS:
            entered = frame
        frame = frame.f_back
    return None, entered


def was_given(frame: FrameType, text: str) -> bool:
    """Return whether a running function got that text as an argument, by itself or in a collection.

    If not, the text is the function's own.
    """
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(
        code.co_flags & inspect.CO_VARKEYWORDS
    )
    values = frame.f_locals
    return any(_holds(values.get(name), text) for name in code.co_varnames[:count])


def _holds(value: Any, text: str) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(isinstance(part, str) and part == text for part in value)
    return isinstance(value, str) and value == text
