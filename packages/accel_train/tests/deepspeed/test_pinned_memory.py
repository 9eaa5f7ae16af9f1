"""`DS_PIN_MEMORY_BACKEND=native`: DeepSpeed's own pinned memory, allocated by its compiled operator."""

import pytest
from accel_tests.forks import forked
from looks import activated


@pytest.mark.nightly(reason="it compiles for most of a minute")
@pytest.mark.parametrize("device", ["cpu", "acme"])
@forked(DS_PIN_MEMORY_BACKEND="native")
def test_memory_is_locked_by_deepspeed_and_registered_with_the_accelerator(device):
    """Also for a device that DeepSpeed has never heard of: its operator locks memory of the host."""
    import torch

    acc, calls = activated()[0].accelerator, []
    acc.register_host_memory = lambda address, size: (
        calls.append(("register", size >= 16)) or True
    )
    acc.unregister_host_memory = lambda address: calls.append(("unregister", True))
    source = torch.arange(4.0)
    pinned = acc.pin_memory(source)
    assert pinned is not source
    assert pinned.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert acc.pin_memory(
        source.reshape(2, 2), make_copy=False, match_shape=False
    ).shape == (4,)
    assert acc.pin_empty(2, 2, dtype=torch.float32).shape == (2, 2)
    assert [acc.is_pinned(pinned), acc.is_pinned(source)] == [True, False]
    acc.unpin_memory(pinned)
    assert calls[0] == ("register", True)
    assert calls[-1] == ("unregister", True)
