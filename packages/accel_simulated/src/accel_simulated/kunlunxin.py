"""Start a process with a simulated klxpu, as Kunlunxin's `torch_xmlir.pth` does with a real one.

There `import torch` also imports torch_xmlir. A replacement of `builtins.__import__` does that once, at the
first import of torch.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

__all__ = ["install"]

_original_import = builtins.__import__


def install() -> None:
    """Replace `builtins.__import__` until the first import of torch."""
    builtins.__import__ = _import_with_xmlir


def _import_with_xmlir(name: str, *arguments: Any, **options: Any) -> Any:
    """Import torch and then torch_xmlir, if `name` is in torch. Raises `ImportError` if it is too late."""
    if name.partition(".")[0] == "torch":
        builtins.__import__ = _original_import
        if "torch" in sys.modules:
            raise ImportError(
                "torch was imported before the simulated torch_xmlir, so its CUDA runtime can no longer be "
                "replaced"
            )
        _original_import("torch")
        _original_import("torch_xmlir")
    return _original_import(name, *arguments, **options)
