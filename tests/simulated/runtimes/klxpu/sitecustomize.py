"""Python imports this at start, in the place of Kunlunxin's `torch_xmlir.pth`.

`import torch` gives a torch with a simulated cuda device, and brings torch_xmlir: by a hook in the place of
`builtins.__import__`, which acts once, on the first name of torch's.
"""

import builtins
import sys
from typing import Any

from accel_simulated import builtin

builtin.install("cuda")
_usual = builtins.__import__


def _hooked(name: str, *arguments: Any, **named: Any) -> Any:
    if name.partition(".")[0] == "torch":
        builtins.__import__ = _usual
        if "torch" in sys.modules:
            raise ImportError("torch's import has begun unseen: its CUDA runtime cannot be replaced any more")
        _usual("torch")
        _usual("torch_xmlir")
    return _usual(name, *arguments, **named)


builtins.__import__ = _hooked
