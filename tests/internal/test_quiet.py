"""What plugins print goes to stderr; what anybody else prints stays where it belongs."""

import io
import os
import sys
import threading

import pytest
from accel_tests import processes

from accel_core.detection import guard
from accel_core.detection.guard import quiet


def test_it_nests_and_ends_with_an_exception(capsys):
    before = sys.stdout

    def nested():
        with quiet():
            with quiet():
                print("inner")
            print("still quiet")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nested()
    print("outside")
    assert sys.stdout is before
    assert capsys.readouterr() == ("outside\n", "inner\nstill quiet\n")


def elsewhere():
    """Print from another thread."""
    thread = threading.Thread(target=print, args=("from another thread",))
    thread.start()
    thread.join(10)


def test_this_threads_output_is_captured_and_another_threads_is_not(capsys):
    before = sys.stdout
    with quiet(printed := io.StringIO()):
        print("mine")
        elsewhere()
        with quiet():
            print("quiet")
        print("mine again")
    print("outside")
    assert printed.getvalue() == "mine\nmine again\n"
    assert sys.stdout is before
    assert capsys.readouterr() == ("from another thread\noutside\n", "quiet\n")


def test_two_threads_that_leave_in_the_order_they_came_lose_nothing(capsys):
    before = sys.stdout
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first():
        with quiet():
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def second():
        first_in.wait(10)
        with quiet():
            second_in.set()
            first_out.wait(10)
            print("second")

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sys.stdout is before
    assert capsys.readouterr() == ("", "second\n")


def test_a_program_that_puts_its_own_stdout_in_meanwhile_keeps_it(capsys):
    mine = io.StringIO()
    before = sys.stdout
    try:
        with quiet():
            sys.stdout = mine
        assert sys.stdout is mine
    finally:
        sys.stdout = before
    print("outside")
    assert capsys.readouterr().out == "outside\n"


def test_a_stdout_that_was_taken_away_is_back(capsys):
    before = sys.stdout
    with quiet():
        sys.stdout = None
    assert sys.stdout is before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_amid_it_leaves_a_child_that_works():
    def works():
        with quiet():
            pass
        return guard._active == 0

    assert processes.fork_amid(guard._lock, works)
