"""Prepare a Python interpreter that a launcher of `accel setup --into` has started.

`choice.pth` calls `begin` when the interpreter starts, so this module imports nothing that
takes milliseconds.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

__all__ = ["begin"]

#: The beginnings of the names of torch's libraries.
_LIBRARY_PREFIXES = (b"libtorch", b"libc10")


def begin() -> None:
    """Set `sys.executable` to the launcher, and check compiled extensions before they are imported.

    Launchers of ranks, such as torchrun, start `sys.executable` on all hosts, and each host may need a
    different environment. An extension that was built for a different torch raises an `ImportError` that
    states the cause.
    """
    # The launcher passes its own path: python -X accel_launcher=FOLDER/bin/python
    launcher = sys._xoptions.get("accel_launcher")
    if isinstance(launcher, str):
        sys.executable = launcher
        _check_extensions_before_import(launcher)


def _check_extensions_before_import(launcher: str) -> None:
    """Patch Python's loader of compiled extensions, so that its errors name a build for another torch.

    Extensions in the environment and in Python's own folders are not checked.
    """
    original_create_module = ExtensionFileLoader.create_module

    def create_module(self: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
        path = spec.origin or ""
        is_installed = path.startswith((f"{sys.prefix}/", f"{sys.base_prefix}/"))
        if is_installed:  # pip installed it with the torch of this environment.
            return original_create_module(self, spec)
        missing = _missing_torch_libraries(path)
        if missing:
            raise ImportError(_mismatch_message(path, ", ".join(missing), launcher))
        try:
            return original_create_module(self, spec)
        except ImportError as error:
            # The linker's message ends in "undefined symbol: _ZN3c10...".
            symbol = str(error).rpartition("undefined symbol: ")[2]
            if _is_torch_symbol(symbol):
                raise ImportError(_mismatch_message(path, symbol, launcher)) from error
            raise

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]


def _is_torch_symbol(symbol: str) -> bool:
    """Return whether a mangled C++ symbol is in one of torch's namespaces c10, at and torch."""
    # A mangled C++ name starts with _Z. The length of each name stands before it: 5torch.
    is_cpp_symbol = symbol.startswith("_Z")
    namespaces = ("3c10", "2at", "5torch")
    return is_cpp_symbol and any(namespace in symbol for namespace in namespaces)


def _missing_torch_libraries(extension: str) -> list[str]:
    """Return the torch libraries that a compiled extension needs and this environment's torch lacks."""
    import os

    folder = f"{_site_packages()}/torch/lib"
    with open(extension, "rb") as file:  # noqa: PTH123 - pathlib takes milliseconds to import
        data = file.read()
    missing = []
    # The file contains the name of each library that it needs, between two null characters.
    for prefix in _LIBRARY_PREFIXES:
        for after_prefix in data.split(b"\0" + prefix)[1:]:
            name_bytes = prefix + after_prefix.partition(b"\0")[0]
            name = name_bytes.decode("ascii", "replace")
            if not name.endswith(".so") or name in missing:
                continue
            if not os.path.exists(f"{folder}/{name}"):  # noqa: PTH110
                missing.append(name)
    return missing


def _site_packages() -> str:
    """Return the folder of this environment's packages."""
    return f"{sys.prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def _mismatch_message(extension: str, needed: str, launcher: str) -> str:
    """Return the message on a compiled extension that needs a library or symbol that torch lacks."""
    return (
        f"{extension} was built for a different torch and needs {needed}, which the torch in {sys.prefix} "
        f"lacks. Next step: rebuild the extension with {launcher}, in a separate folder for each environment"
    )
