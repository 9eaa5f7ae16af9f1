"""Find the code responsible for a call: the nearest stack frame of the user's code or libraries.

Code in torch, in vendors' packages and in accel's packages is allowed to name a vendor. Code in the Python
standard library only forwards calls.
"""

from __future__ import annotations

import enum
import functools
import inspect
import linecache
import os
import re
from types import FrameType
from typing import Any, NamedTuple

__all__ = [
    "Owner",
    "UserCall",
    "file_has_string_starting_with",
    "find_owner",
    "find_user_call",
    "is_user_file",
    "nearest_user_frame",
    "received_argument",
]  # fmt: skip


class Owner(enum.Enum):
    """The owner of the code that a stack frame runs: the user, a vendor, or code that only forwards calls."""

    #: Code that only forwards calls: the Python library, test runners, this package, and code without a file.
    FORWARDER = enum.auto()
    #: Code of torch, of a vendor's package or of accel, which is allowed to name a vendor.
    VENDOR = enum.auto()
    #: All other code.
    USER = enum.auto()


_DETECTOR = os.path.dirname(os.path.abspath(__file__))
_PYTHON = os.path.dirname(os.path.abspath(os.__file__))
#: Packages that belong to torch, to vendors or to accel.
_VENDOR_PACKAGES = frozenset({
    "torch", "torchgen", "functorch", "triton", "nvidia", "cuda",
    "accel_core", "accel_train", "accel_tools", "accel_testing", "accel_simulated",
    "torch_acme", "torch_plain", "torch_npu", "torchair", "habana_frameworks",
    "intel_extension_for_pytorch", "oneccl_bindings_for_pytorch",
    "torch_mlu", "torch_sdaa", "torch_supa", "torch_musa", "torch_xmlir", "torch_xla",
    "torch_neuronx",
})  # fmt: skip
#: Packages that only forward calls, like the Python standard library: `monkeypatch.setenv` acts for the test.
_FORWARDING_PACKAGES = frozenset({
    "_pytest", "pytest", "pluggy", "xdist", "execnet", "hypothesis", "coverage", "debugpy", "pydevd",
    "mock", "typing_extensions", "decorator", "wrapt",
})  # fmt: skip
_owner_of_file: dict[str, Owner] = {}


def find_owner(frame: FrameType) -> Owner:
    """Return the owner of the code that a stack frame runs, based on the code's file."""
    file = frame.f_code.co_filename
    if file not in _owner_of_file:
        _owner_of_file[file] = _determine_owner(file, frame)
    return _owner_of_file[file]


@functools.cache
def is_user_file(file: str) -> bool:
    """Return whether a source file belongs to the user: not to Python, torch, a vendor or accel."""
    package = _installed_package(file) or _outermost_package(file)
    return _find_owner_of_package(file, package) is Owner.USER


def nearest_user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the nearest stack frame that runs the user's code, from `frame` outwards.

    Frames that only forward calls are skipped. Returns `None` if a frame of accel, torch or a vendor comes
    first, or if no frame runs the user's code.
    """
    while frame is not None:
        owner = find_owner(frame)
        if owner is Owner.USER:
            return frame
        if owner is Owner.VENDOR:
            return None
        frame = frame.f_back
    return None


class UserCall(NamedTuple):
    """A call from the user's code to torch or to a vendor's package."""

    #: The frame of the caller, or `None` if no frame belongs to the user.
    user: FrameType | None
    #: The frame of the called function, or `None` if the function is written in C.
    called: FrameType | None


def find_user_call(frame: FrameType | None) -> UserCall:
    """Return the call from the user's code to torch or a vendor that led to the stack frame `frame`."""
    called_frame = None
    while frame is not None:
        owner = find_owner(frame)
        if owner is Owner.USER:
            return UserCall(frame, called_frame)
        if owner is Owner.VENDOR:
            called_frame = frame
        frame = frame.f_back
    return UserCall(None, called_frame)


def received_argument(frame: FrameType, text: str) -> bool:
    """Return whether the function that `frame` runs received `text` as an argument or inside an argument."""
    code = frame.f_code
    # The names of all parameters, `*args` and `**kwargs` included, come first in `co_varnames`.
    parameter_count = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        parameter_count += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parameter_count += 1
    parameters = code.co_varnames[:parameter_count]
    values = frame.f_locals
    return any(_is_or_contains(values.get(name), text) for name in parameters)


@functools.cache
def file_has_string_starting_with(file: str, prefix: str) -> bool:
    """Return whether a source file contains a string literal that begins with `prefix`.

    For example, the literal `"cuda:0"` begins with `cuda`.
    """
    quote_and_prefix = re.compile(rf"""["']{re.escape(prefix)}""")
    return any(quote_and_prefix.search(line) for line in linecache.getlines(file))


def _is_or_contains(value: Any, text: str) -> bool:
    """Return whether a value is `text`, or a list, tuple or dictionary that contains `text`."""
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    else:
        parts = [value]
    # Only strings are compared, because the comparison of a tensor does not return a bool.
    return any(isinstance(part, str) and part == text for part in parts)


def _determine_owner(file: str, frame: FrameType) -> Owner:
    """Return the owner of the code in a source file, where `frame` runs code from that file."""
    package = _installed_package(file) or _source_package(frame, file)
    return _find_owner_of_package(file, package)


def _find_owner_of_package(file: str, package: str) -> Owner:
    """Return the owner of a source file that belongs to `package`, or to no package if that is empty."""
    has_no_file = file.startswith("<")  # such as "<string>"
    if has_no_file or _is_below(file, _DETECTOR):
        return Owner.FORWARDER
    if _is_below(file, _PYTHON) and not _installed_package(file):
        return Owner.FORWARDER
    if package in _FORWARDING_PACKAGES or package.startswith("pytest_"):
        return Owner.FORWARDER
    if package in _VENDOR_PACKAGES or package in _plugin_packages():
        return Owner.VENDOR
    return Owner.USER


def _installed_package(file: str) -> str:
    """Return the package of an installed file, or an empty string if it is not below `site-packages`."""
    for folder in ("site-packages", "dist-packages"):
        _, separator, path_in_folder = file.rpartition(f"{os.sep}{folder}{os.sep}")
        if separator:
            first_part, _, _ = path_in_folder.partition(os.sep)
            return first_part.removesuffix(".py")
    return ""


def _outermost_package(file: str) -> str:
    """Return the outermost package of a file in a source tree, or an empty string if it is in no package."""
    package = ""
    folder = os.path.dirname(file)
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
    return package


def _is_below(file: str, folder: str) -> bool:
    return file.startswith(folder + os.sep)


def _source_package(frame: FrameType, file: str) -> str:
    """Return the package of a file in a source tree, or an empty string if no parent folder has its name."""
    # In `python -m torch.distributed.run`, `__name__` is `__main__`, so the name in `__spec__` is preferred.
    spec = frame.f_globals.get("__spec__")
    module = getattr(spec, "name", None) or frame.f_globals.get("__name__", "")
    package = str(module).partition(".")[0]
    # A user's script may have the name of a package, such as torch.py, so a folder must have the name.
    if f"{os.sep}{package}{os.sep}" not in file:
        return ""
    return package


@functools.cache
def _plugin_packages() -> frozenset[str]:
    """Return the packages of accel's installed plugins, which exist to name a vendor."""
    from accel_core import packages
    from accel_core.backend import ENTRY_POINT_GROUP

    return frozenset(
        entry_point.module.partition(".")[0]
        for entry_point in packages.entry_points(ENTRY_POINT_GROUP)
    )
