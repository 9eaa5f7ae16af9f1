"""What a notebook shows of the records: the hooks that IPython calls, which is not needed for it."""

import pytest
from accel_tests import plugins

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


@pytest.fixture
def machine(torch_world):
    """`<b>` in what a plugin says is text."""
    torch_world.backend("npu", 700, extra=plugins.NO_DEVICE.replace("nothing", "no <b> & nothing"))
    torch_world.backend("mlu", 300)
    return torch_world


def test_a_selection_is_one_line_or_a_table_of_verdicts(machine):
    record = accel_core.selection()
    assert pretty(record) == "mlu (accel-mlu 1.0): the highest-ranking usable one."
    table = record._repr_html_()
    assert table.startswith("<table><tr><th>backend</th><th>verdict</th><th>why</th><th>next step</th></tr>")
    assert "<td>npu</td><td>no device</td><td>no &lt;b&gt; &amp; nothing on the bus</td>" in table
    assert "<td>mlu</td><td>usable: the highest-ranking usable one</td>" in table
    assert table.count("<tr>") == 1 + len(record.verdicts)


def test_what_is_discovered_is_a_line_each_or_a_table(machine):
    found = accel_core.discover()
    assert isinstance(found, tuple)
    assert pretty(found).splitlines() == [str(candidate) for candidate in found]
    assert found._repr_html_().startswith("<table><tr><th>backend</th><th>priority</th><th>from</th></tr>")
    assert "<tr><td>npu</td><td>700</td><td>accel-npu 1.0</td></tr>" in found._repr_html_()


def test_what_was_not_loaded_shows_no_priority(machine, monkeypatch):
    monkeypatch.setenv("ACCEL_BLOCK", "npu")
    assert "<tr><td>npu</td><td></td><td>accel-npu 1.0</td></tr>" in accel_core.discover()._repr_html_()


def test_a_memory_summary_is_shown_as_it_is_printed():
    pytest.importorskip("torch")
    summary = accel_core.accelerator("cpu").memory_summary()
    assert isinstance(summary, str)
    assert pretty(summary) == summary
