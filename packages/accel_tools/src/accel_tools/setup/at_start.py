"""Prepare a Python that the launcher of a folder of environments starts (`accel-folder.pth`).

It imports nothing that takes milliseconds.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

__all__ = ["begin"]

_PREFIXES = (b"\0libtorch", b"\0libc10")


def begin() -> None:
    """Let children start by the launcher, and name a compiled extension of another torch before its import.

    A launcher of ranks starts `sys.executable` on other hosts too, which may need another environment.
    """
    launcher = sys._xoptions.get("accel_launcher")
    if isinstance(launcher, str):
        sys.executable = launcher
        _name_extensions_of_another_torch(launcher)


def _name_extensions_of_another_torch(launcher: str) -> None:
    create = ExtensionFileLoader.create_module

    def create_module(self: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
        origin = spec.origin or ""
        if origin.startswith((f"{sys.prefix}/", f"{sys.base_prefix}/")):
            return create(self, spec)
        missing = _missing_libraries(origin)
        if missing:
            raise ImportError(
                _message(origin, f"it needs {', '.join(missing)}", launcher)
            )
        try:
            return create(self, spec)
        except ImportError as error:
            # A C++ name of torch's: its namespaces are c10, at and torch.
            symbol = str(error).rpartition("undefined symbol: ")[2]
            if symbol.startswith("_Z") and (
                "3c10" in symbol or "2at" in symbol or "5torch" in symbol
            ):
                raise ImportError(
                    _message(origin, f"it needs {symbol}", launcher)
                ) from error
            raise

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]


def _missing_libraries(origin: str) -> list[str]:
    """Return the libraries of torch that the extension needs and this environment's torch lacks."""
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


def _message(origin: str, why: str, launcher: str) -> str:
    version = "which the torch of this environment lacks"
    return (
        f"{origin} was built for another torch than {sys.prefix} has: {why}, {version}. Next step: build it "
        f"again with {launcher}, into a folder of its own for each environment"
    )
