"""The line of progress of `accel bench`, on a terminal and elsewhere."""

import io
import os
import sys

import pytest

from accel_tools.cli.progress import Progress


class Terminal(io.StringIO):
    """A terminal that keeps what is drawn."""

    isatty = fileno = lambda self: True


@pytest.fixture
def drawn(monkeypatch):
    """`drawn(columns)`: all that two steps draw on a terminal of so many columns."""

    def draw(columns, term="xterm"):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setattr(
            os, "get_terminal_size", lambda number: os.terminal_size((columns, 24))
        )
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        with Progress(2) as progress:
            progress.show("a long one")
            progress.show("short")
        return terminal.getvalue()

    return draw


#: Goes back to the first column, and empties the line.
WIPE = "\r\x1b[K"
FIRST = "a long one, 1 of 2 ..."
needs_terminal = pytest.mark.skipif(
    sys.platform == "win32", reason="nothing is drawn on Windows"
)


@needs_terminal
def test_progress_is_one_line_that_goes_away(drawn):
    assert drawn(80) == f"{WIPE}{FIRST}{WIPE}short, 2 of 2 ...{WIPE}"


@needs_terminal
def test_a_terminal_that_does_not_know_its_width_has_80_columns(drawn):
    assert drawn(0).startswith(f"{WIPE}{FIRST}\r")


@needs_terminal
def test_progress_is_cut_to_the_width_of_the_terminal(drawn):
    assert max(map(len, drawn(10).split(WIPE))) == 9


@needs_terminal
def test_nothing_is_drawn_on_a_dumb_terminal(drawn):
    assert drawn(80, term="dumb") == ""


@pytest.mark.parametrize("is_there", [True, False])
def test_nothing_is_drawn_without_a_terminal(monkeypatch, capsys, is_there):
    monkeypatch.setattr(sys, "stderr", sys.stderr if is_there else None)
    with Progress(1) as progress:
        progress.show("anything")
    assert capsys.readouterr().err == ""
