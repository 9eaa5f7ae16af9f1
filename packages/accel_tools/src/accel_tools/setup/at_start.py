"""Prepare a Python interpreter that a launcher of `accel setup --into` has started.

`choice.pth` calls `begin` when the interpreter starts, so this module imports nothing that
takes milliseconds.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

__all__ = ["begin"]

_PREFIXES = (b"\0libtorch", b"\0libc10")


def begin() -> None:
    """Set `sys.executable` to the launcher, and check compiled extensions before their import.

    Launchers of ranks, such as torchrun, start `sys.executable` on all hosts, and each host may
    need a different environment. An extension that was built for a different torch raises an
    `ImportError` that states the cause.
    """
    launcher = sys._xoptions.get("accel_launcher")
    if isinstance(launcher, str):
        sys.executable = launcher
        _check_extensions_before_import(launcher)


def _check_extensions_before_import(launcher: str) -> None:
    """Patch Python's loader of extensions to explain extensions built for a different torch."""
    create = ExtensionFileLoader.create_module

    def create_module(self: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
        origin = spec.origin or ""
        if origin.startswith((f"{sys.prefix}/", f"{sys.base_prefix}/")):
            return create(self, spec)
        missing = _missing_libraries(origin)
        if missing:
            raise ImportError(_message(origin, ", ".join(missing), launcher))
        try:
            return create(self, spec)
        except ImportError as error:
            # torch's C++ symbols are in the namespaces c10, at and torch.
            symbol = str(error).rpartition("undefined symbol: ")[2]
            if symbol.startswith("_Z") and (
                "3c10" in symbol or "2at" in symbol or "5torch" in symbol
            ):
                raise ImportError(_message(origin, symbol, launcher)) from error
            raise

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]


def _missing_libraries(origin: str) -> list[str]:
    """Return the torch libraries that the extension needs and this environment's torch lacks."""
    import os

    folder = f"{_site()}/torch/lib"
    with open(origin, "rb") as file:  # noqa: PTH123 - pathlib takes milliseconds to import
        data = file.read()
    missing = []
    for prefix in _PREFIXES:
        for part in data.split(prefix)[1:]:
            name = (prefix[1:] + part.partition(b"\0")[0]).decode("ascii", "replace")
            is_library = name.endswith(".so") and name not in missing
            if is_library and not os.path.exists(f"{folder}/{name}"):  # noqa: PTH110
                missing.append(name)
    return missing


def _site() -> str:
    return f"{sys.prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def _message(origin: str, needed: str, launcher: str) -> str:
    """Return the message on an extension that needs a library or symbol that torch lacks."""
    return (
        f"{origin} was built for a different torch: it needs {needed}, which the torch in {sys.prefix} "
        f"lacks. Next step: rebuild it with {launcher}, in a separate folder for each environment"
    )
