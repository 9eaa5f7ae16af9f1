"""Prepare a process for a simulated klxpu, as Kunlunxin's `torch_xmlir.pth` does for a real device.

`import torch` then also imports torch_xmlir. To achieve this, `builtins.__import__` is replaced until the
first import of torch.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

__all__ = ["install"]

_original_import = builtins.__import__


def install() -> None:
    """Make the first import of torch also import torch_xmlir.

    `builtins.__import__` is replaced until that import.
    """
    builtins.__import__ = _import_with_xmlir


def _import_with_xmlir(name: str, *arguments: Any, **options: Any) -> Any:
    """Import the module `name`, and import torch and torch_xmlir first if the module belongs to torch.

    Raises `ImportError` if torch has already been imported without torch_xmlir.
    """
    if name.partition(".")[0] == "torch":
        builtins.__import__ = _original_import
        if "torch" in sys.modules:
            raise ImportError(
                "torch was imported before the simulated torch_xmlir, so torch's CUDA runtime can no longer "
                "be replaced"
            )
        _original_import("torch")
        _original_import("torch_xmlir")
    return _original_import(name, *arguments, **options)
