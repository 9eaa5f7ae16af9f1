"""Find the code responsible for a call: the nearest frame in the user's code, or in a library that it uses.

Frames of torch, of vendors' packages and of accel's packages may name a vendor. Frames of Python's standard
library only forward a call.
"""

from __future__ import annotations

import enum
import functools
import inspect
import linecache
import os
import re
from types import FrameType
from typing import Any

__all__ = [
    "Owner", "has_string", "owner_of", "user_frame", "user_frame_beyond_torch", "was_argument",
]  # fmt: skip


class Owner(enum.Enum):
    """The kind of code that a frame runs."""

    #: Code that only forwards a call: Python's library, test runners, this package, and code without a file.
    FORWARDER = enum.auto()
    #: torch, a vendor's package, or accel, whose code may name a vendor.
    VENDOR = enum.auto()
    #: All other code.
    USER = enum.auto()


_DETECTOR = os.path.dirname(os.path.abspath(__file__))
_PYTHON = os.path.dirname(os.path.abspath(os.__file__))
#: Packages of torch, of vendors and of accel.
_VENDOR_PACKAGES = frozenset({
    "torch", "torchgen", "functorch", "triton", "nvidia", "cuda",
    "accel_core", "accel_train", "accel_tools", "accel_testing", "accel_simulated",
    "torch_acme", "torch_plain", "torch_npu", "torchair", "habana_frameworks",
    "intel_extension_for_pytorch", "oneccl_bindings_for_pytorch",
    "torch_mlu", "torch_sdaa", "torch_supa", "torch_musa", "torch_xmlir", "torch_xla",
    "torch_neuronx",
})  # fmt: skip
#: Packages that forward calls as Python's standard library does: `monkeypatch.setenv` acts for the test.
_FORWARDING_PACKAGES = frozenset({
    "_pytest", "pytest", "pluggy", "xdist", "execnet", "hypothesis", "coverage", "debugpy", "pydevd",
    "mock", "typing_extensions", "decorator", "wrapt",
})  # fmt: skip
_owners: dict[str, Owner] = {}


def owner_of(frame: FrameType) -> Owner:
    """Return the kind of code that a frame runs, determined from its file."""
    file = frame.f_code.co_filename
    owner = _owners.get(file)
    if owner is None:
        owner = _owners[file] = _judge(file, frame)
    return owner


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame that does not just forward a call; `None` if torch or a vendor owns it."""
    while frame is not None:
        owner = owner_of(frame)
        if owner is not Owner.FORWARDER:
            return frame if owner is Owner.USER else None
        frame = frame.f_back
    return None


def user_frame_beyond_torch(
    frame: FrameType | None,
) -> tuple[FrameType | None, FrameType | None]:
    """Return the nearest user frame, and the frame of torch or of a vendor that the user frame called."""
    entered = None
    while frame is not None:
        owner = owner_of(frame)
        if owner is Owner.USER:
            return frame, entered
        if owner is Owner.VENDOR:
            entered = frame
        frame = frame.f_back
    return None, entered


def was_argument(frame: FrameType, text: str) -> bool:
    """Return whether a running function received `text` as an argument, alone or in a collection."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS)
    count += bool(code.co_flags & inspect.CO_VARKEYWORDS)
    values = frame.f_locals
    return any(_contains(values.get(name), text) for name in code.co_varnames[:count])


@functools.cache
def has_string(file: str, word: str) -> bool:
    """Return whether a source file has a string that begins with `word`, as `"cuda:0"` does with `cuda`."""
    pattern = re.compile(rf"""["']{re.escape(word)}""")
    return any(pattern.search(line) for line in linecache.getlines(file))


def _contains(value: Any, text: str) -> bool:
    """Return whether a value is the text, or is a list, tuple or dictionary that contains the text."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(isinstance(part, str) and part == text for part in value)
    return isinstance(value, str) and value == text


def _judge(file: str, frame: FrameType) -> Owner:
    """Determine and return the owner of a file whose code runs for the first time."""
    if file.startswith("<") or _is_below(file, _DETECTOR):
        return Owner.FORWARDER
    package = _installed_package(file)
    if _is_below(file, _PYTHON) and not package:
        return Owner.FORWARDER
    package = package or _source_package(frame, file)
    if package in _FORWARDING_PACKAGES or package.startswith("pytest_"):
        return Owner.FORWARDER
    if package in _VENDOR_PACKAGES or package in _plugin_packages():
        return Owner.VENDOR
    return Owner.USER


def _installed_package(file: str) -> str:
    """Return the package of a file below `site-packages`; empty if the file is not below it."""
    for folder in ("site-packages", "dist-packages"):
        _, separator, inside = file.rpartition(f"{os.sep}{folder}{os.sep}")
        if separator:
            return inside.partition(os.sep)[0].removesuffix(".py")
    return ""


def _is_below(file: str, folder: str) -> bool:
    return file.startswith(folder + os.sep)


def _source_package(frame: FrameType, file: str) -> str:
    """Return the package of a file in a source tree; empty if no parent folder has the package's name."""
    # `python -m torch.distributed.run` is called `__main__`.
    spec = frame.f_globals.get("__spec__")
    name = str(getattr(spec, "name", None) or frame.f_globals.get("__name__", ""))
    package = name.partition(".")[0]
    # A user's script may have the name of a package, such as torch.py.
    return package if f"{os.sep}{package}{os.sep}" in file else ""


@functools.cache
def _plugin_packages() -> frozenset[str]:
    """Return the packages of accel's installed plugins, which exist to name a vendor."""
    from accel_core import packages
    from accel_core.backend import ENTRY_POINT_GROUP

    return frozenset(
        entry_point.module.partition(".")[0]
        for entry_point in packages.entry_points(ENTRY_POINT_GROUP)
    )
