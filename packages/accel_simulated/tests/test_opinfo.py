"""How the tool of `./dev opinfo` counts a call on a device that is not to give CPU's bits."""

from itertools import cycle

import pytest


@pytest.mark.parametrize(
    ("device", "random", "exact", "same"),
    [
        (1 + 1e-7, 0, True, 0),
        (1 + 1e-7, 0, False, 1),
        (2, 0, False, 0),
        (2, 1, False, 1),
    ],
)
def test_what_a_device_may_do(device, random, exact, same):
    """One that is not to give CPU's bits rounds, and draws other numbers; other values are wrong."""
    import torch
    from accel_opinfo.tally import Tally

    given = cycle([1.0, device])
    tally = Tally("cpu", frozenset(), lambda variant: None, exact=exact)
    tally.run(
        "forward", lambda _: torch.tensor(next(given)) + random * torch.rand(()), ""
    )
    assert tally.variants["forward"]["same"] == same


def test_a_variant_ends_in_time():
    from accel_opinfo.tally import Tally

    tally = Tally("cpu", frozenset(), lambda variant: None, seconds=-1)
    assert tally.wants("forward")
    tally.run("forward", lambda _: 1, "")
    assert tally.variants == {}
