"""`DS_PIN_MEMORY_BACKEND=native`: DeepSpeed's own page-locked memory, by its compiled operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("deepspeed")

CODE = """
import torch, json
from accel_train.deepspeed import activate
activate()
import deepspeed
import accel_core
acc = accel_core.get_accelerator()
calls = []
acc.register_host_memory = lambda address, size: calls.append(("register", size >= 16)) or True
acc.unregister_host_memory = lambda address: calls.append(("unregister", True))
source = torch.arange(4.0)
pinned = acc.pin_memory(source)
empty = acc.pin_memory(source.reshape(2, 2), make_copy=False, match_shape=False)
scratch = acc.pin_empty(2, 2, dtype=torch.float32)
seen = [pinned is source, pinned.tolist(), list(empty.shape), list(scratch.shape), acc.is_pinned(pinned),
        acc.is_pinned(source)]
acc.unpin_memory(pinned)
print("ANSWER", json.dumps([seen, calls[:1], calls[-1:]]), flush=True)
"""


@pytest.mark.nightly(reason="it compiles for most of a minute")
@pytest.mark.parametrize("device", ["cpu", "acme"])
def test_memory_is_locked_by_deepspeed_and_registered_with_the_accelerator(
    request: pytest.FixtureRequest, device: str, child: Callable[..., Any]
) -> None:
    """Also for a device that DeepSpeed has never heard of: its operator locks memory of the host."""
    variables = request.getfixturevalue(f"on_{device}")
    ended = child(["-c", CODE], {**variables, "DS_PIN_MEMORY_BACKEND": "native"})
    ((seen, first, last),) = ended.answers
    assert seen == [False, [0.0, 1.0, 2.0, 3.0], [4], [2, 2], True, False]
    assert (first, last) == ([["register", True]], [["unregister", True]])
