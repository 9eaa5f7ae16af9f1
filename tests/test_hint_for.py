"""What a plugin's `accel_explain` is made of: patterns over what an error and its causes say."""

import pytest

from accel_core import hint_for

HINTS = (
    (r"lib(hccl|ascendcl)[\w.]*\.so", "source set_env.sh"),
    (r"^127$", "old torch"),
    ("memory", "less"),
)


class Mute(Exception):
    def __str__(self):
        raise TypeError("no")


def above(outer, inner, link="__cause__"):
    setattr(outer, link, inner)
    return outer


RING = RuntimeError("a")
ERRORS = [
    (OSError("libhccl.so: out of memory"), "source set_env.sh"),  # the first pattern that fits
    (RuntimeError("Out of MEMORY"), "less"),
    (SystemExit(127), "old torch"),
    (RuntimeError(), None),
    *((above(RuntimeError("Failed"), OSError("libascendcl.so: cannot open"), link), "source set_env.sh")
      for link in ("__cause__", "__context__")),
    (Mute(), None),
    (above(Mute(), OSError("libhccl.so")), "source set_env.sh"),
    (above(RING, above(RuntimeError("b"), RING)), None),
]  # fmt: skip


@pytest.mark.parametrize(("error", "hint"), ERRORS)
def test_a_hint_is_found_for_the_cause_of_an_error_too(error, hint):
    assert hint_for(error, HINTS) == hint
    assert hint_for(error, ()) is None
