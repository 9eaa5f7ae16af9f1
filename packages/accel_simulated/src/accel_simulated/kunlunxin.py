"""The start of a process that has a simulated klxpu, in the place of Kunlunxin's `torch_xmlir.pth`.

`import torch` brings torch_xmlir: by a hook in the place of `builtins.__import__`, which acts once, on the
first name of torch's.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

__all__ = ["install"]

_usual = builtins.__import__


def install() -> None:
    """Install the hook."""
    builtins.__import__ = _hooked


def _hooked(name: str, *arguments: Any, **named: Any) -> Any:
    if name.partition(".")[0] == "torch":
        builtins.__import__ = _usual
        if "torch" in sys.modules:
            raise ImportError(
                "torch's import has begun unseen: its CUDA runtime cannot be replaced any more"
            )
        _usual("torch")
        _usual("torch_xmlir")
    return _usual(name, *arguments, **named)
