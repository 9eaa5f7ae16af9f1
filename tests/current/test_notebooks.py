"""What a notebook shows of the records: the hooks that IPython calls, which is not needed for it."""

import pytest

import accel_core


class Printer:
    """IPython's, as far as it is used."""

    def __init__(self):
        self.said = ""

    def text(self, said):
        self.said += said


def pretty(shown):
    printer = Printer()
    shown._repr_pretty_(printer, False)
    return printer.said


def test_a_memory_summary_is_shown_as_it_is_printed():
    pytest.importorskip("torch")
    summary = accel_core.accelerator("cpu").memory_summary()
    assert isinstance(summary, str)
    assert pretty(summary) == summary
