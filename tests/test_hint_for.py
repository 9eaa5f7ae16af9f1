"""What a plugin's `accel_explain` is made of: patterns over what an error and its causes say."""

import pytest

from accel_core import hint_for

HINTS = (
    (r"lib(hccl|ascendcl)[\w.]*\.so", "source set_env.sh"),
    (r"^127$", "wrong torch"),
    ("memory", "less"),
)


def test_the_first_pattern_that_fits_counts():
    assert hint_for(OSError("libhccl.so: out of memory"), HINTS) == "source set_env.sh"
    assert hint_for(RuntimeError("Out of MEMORY"), HINTS) == "less"
    assert hint_for(SystemExit(127), HINTS) == "wrong torch"


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_what_lies_below_counts_too(link):
    outer = RuntimeError("Failed to load the backend extension")
    setattr(outer, link, OSError("libascendcl.so: cannot open shared object file"))
    assert hint_for(outer, HINTS) == "source set_env.sh"


def test_without_a_hint_there_is_none():
    assert hint_for(RuntimeError(), HINTS) is None
    assert hint_for(RuntimeError("memory"), ()) is None


def test_an_error_whose_text_fails_does_not_hide_what_lies_below():
    class Mute(Exception):
        def __str__(self):
            raise TypeError("no")

    outer = Mute()
    outer.__cause__ = OSError("libhccl.so")
    assert hint_for(outer, HINTS) == "source set_env.sh"
    assert hint_for(Mute(), HINTS) is None


def test_a_ring_of_causes_ends():
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert hint_for(first, HINTS) is None
