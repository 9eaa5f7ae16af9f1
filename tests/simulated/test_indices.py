"""A device that does not exist is out of range, also where torch.accelerator answers for the vendor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

CODE = """
import json
import torch, torch_acme
import accel_core
acc = accel_core.accelerator("generic")
said = {}
for name in (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "mem_get_info", "reset_peak_memory_stats"
):
    try:
        said[name] = repr(getattr(acc, name)(7))
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


def test_a_bad_index_is_not_called_unsupported(simulated: Callable[..., Any]) -> None:
    said = simulated("acme", CODE).answer
    wanted = "InvalidDeviceError: generic: device index 7 is out of range, 2 devices visible"
    assert said == dict.fromkeys(said, wanted)
    assert len(said) == 5
