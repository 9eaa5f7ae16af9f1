"""What is printed while a backend is chosen goes to stderr."""

import sys

import pytest

from accel_core.sandbox import guard


def test_output_goes_to_stderr_and_stdout_comes_back(capsys):
    before = sys.stdout
    with guard.stdout_to_stderr():
        print("inside")
        sys.stdout.write("written\n")
        sys.stdout.flush()
    print("outside")
    assert sys.stdout is before
    assert capsys.readouterr() == ("outside\n", "inside\nwritten\n")


def test_blocks_nest_and_end_with_an_exception(capsys):
    before = sys.stdout

    def nested():
        with guard.stdout_to_stderr():
            with guard.stdout_to_stderr():
                print("inner")
            print("outer")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nested()
    assert sys.stdout is before
    assert capsys.readouterr() == ("", "inner\nouter\n")


def test_stdout_comes_back_whichever_thread_leaves_first(capsys):
    before = sys.stdout
    first, second = guard.stdout_to_stderr(), guard.stdout_to_stderr()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert sys.stdout is before


def test_a_stdout_that_was_taken_away_is_back():
    before = sys.stdout
    with guard.stdout_to_stderr():
        sys.stdout = None
    assert sys.stdout is before
