"""The measurements on the CPU: their records, and devices that do nothing, something else, or fail."""

import re
import time

import pytest
from accel_tests.bench_effort import TINY
from accel_tests.tools import raising

from accel_core import HostStream, UnsupportedError
from accel_tools.bench import copies, timing
from accel_tools.bench.records import FULL, Outcome

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402 - needs torch

from accel_core.builtin import CPU  # noqa: E402
from accel_core.interface.cpu import CPUAccelerator  # noqa: E402
from accel_tools.bench.collectives import _cause, _row, collectives  # noqa: E402
from accel_tools.bench.run import steps  # noqa: E402


@pytest.fixture
def cpu():
    return CPUAccelerator(CPU)


def rows(accelerator, only=""):
    """What the steps whose title begins so give, by name; no ranks are started."""
    chosen = [
        step
        for step in steps(accelerator, TINY, ranks=1)
        if step.title.startswith(only)
    ]
    return {row.name: row for step in chosen for row in step.run()}


def test_every_measurement_has_a_value_or_a_reason(cpu):
    found = rows(cpu)
    crossing = [
        "to_device.pinned",
        "to_device.pageable",
        "to_host.pinned",
        "to_host.pageable",
        "both_ways",
    ]
    names = [f"copy.{name}" for name in [*crossing, "on_device"]]
    names += [
        f"matrix.{dtype}" for dtype in ("float64", "float32", "float16", "bfloat16")
    ]
    names += [
        "launch.queued",
        "launch.waited",
        "collective.all_reduce",
        "collective.broadcast",
    ]
    assert list(found) == names
    for name in crossing:
        assert (
            found[f"copy.{name}"].reason
            == "the device uses the host's memory: nothing to copy"
        )
    assert (
        found["collective.broadcast"].reason == "one rank has no other rank to send to"
    )
    trained = {
        str(dtype).removeprefix("torch.") for dtype in cpu.supported_dtypes()
    } | {"float64"}
    for row in found.values():
        expected = row.name == "copy.on_device" or row.name.startswith("launch")
        expected |= row.name.removeprefix("matrix.") in trained
        assert (row.outcome is Outcome.MEASURED) == expected, row
        assert bool(row.reason) != expected
        assert len(row.title) <= 20
        if expected:
            assert row.value == pytest.approx(
                row.seconds if row.unit == "s" else row.work / row.seconds
            )
            assert (
                row.best >= row.value
            ) == row.more_is_better or row.best == row.value
            assert (
                1 <= row.repeats <= TINY.most
            )  # fewer than TINY.least where the machine is busy
    copied, product = found["copy.on_device"], found["matrix.float32"]
    assert (copied.size, copied.work) == ("64 KiB", 2 * 65536)  # read and written
    assert (product.size, product.work) == ("64 x 64", 2 * 64**3)


class Instead(TorchDispatchMode):
    """Runs `act` in the place of one operator of torch's."""

    def __init__(self, operator, act):
        super().__init__()
        self._operator, self._act = operator, act

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is self._operator:
            return self._act(function, args, kwargs or {})
        return function(*args, **(kwargs or {}))


def nothing(_function, args, kwargs):
    return kwargs.get("out", args[0])


DONE_NOTHING = [
    ("copy_.default", "copy.on_device", "the copy differs from its source"),
    ("mm.out", "matrix.float64", "the product is wrong"),
    ("add_.Tensor", "launch.queued", "additions of 1 gave 0"),
    ("add_.Tensor", "launch.waited", "additions of 1 gave 0"),
]


@pytest.mark.parametrize(("operator", "name", "reason"), DONE_NOTHING)
def test_a_device_that_does_nothing_is_found_out(cpu, operator, name, reason):
    base, overload = operator.split(".")
    title = {"copy": "copy on", "matrix": "matrix float64", "launch": "launch"}[
        name.partition(".")[0]
    ]
    with Instead(getattr(getattr(torch.ops.aten, base), overload), nothing):
        row = rows(cpu, title)[name]
    assert row.outcome is Outcome.WRONG
    assert reason in row.reason
    assert (row.value, row.best) == (None, None)


class Card(CPUAccelerator):
    """The processor as a device beside the host: with a neighbour, page-locked memory and streams.

    A device that computes is in session simulated; here all but the place of its memory is as on one.
    """

    def device_count(self):
        return 2

    def is_pinned(self, tensor):
        return True

    Stream = property(lambda self: torch.cpu.Stream, lambda self, stream: None)


@pytest.fixture
def card(cpu, monkeypatch):
    monkeypatch.setattr(copies, "on_host", lambda accelerator: False)
    return Card(CPU)


def test_between_host_and_device_bytes_count_once_each_way(card):
    found = rows(card, "copy")
    assert {
        name for name, row in found.items() if row.outcome is not Outcome.MEASURED
    } == set()
    once = {
        "to_device.pinned",
        "to_device.pageable",
        "to_host.pinned",
        "to_host.pageable",
        "to_next",
    }
    assert {name for name, row in found.items() if row.work == 65536} == {
        f"copy.{name}" for name in once
    }
    assert {name for name, row in found.items() if row.work == 131072} == {
        "copy.both_ways",
        "copy.on_device",
    }
    assert found["copy.to_next"].size == "64 KiB, 0 to 1"
    with Instead(torch.ops.aten.copy_.default, nothing):
        assert {row.outcome for row in rows(card, "copy").values()} == {Outcome.WRONG}


def test_what_a_device_lacks_is_a_reason(card, monkeypatch):
    monkeypatch.setattr(Card, "is_pinned", lambda self, tensor: False)
    locked = "cpu has no page-locked memory"
    expected = {
        f"copy.{name}": locked
        for name in ("to_device.pinned", "to_host.pinned", "both_ways")
    }
    assert {
        name: row.reason for name, row in rows(card, "copy").items() if row.reason
    } == expected
    monkeypatch.setattr(Card, "Stream", HostStream)
    assert (
        rows(card, "copy both")["copy.both_ways"].reason
        == "cpu has one queue, so copies do not overlap"
    )


def test_memory_bounds_what_is_copied(card, monkeypatch):
    monkeypatch.setattr(Card, "available_memory", lambda self: 100_000)
    assert (
        rows(card, "copy to host")["copy.to_host.pinned"].size == "12 KiB"
    )  # whole pages of an eighth
    monkeypatch.setattr(
        Card, "available_memory", raising(UnsupportedError("nobody tells"))
    )
    assert rows(card, "copy to host")["copy.to_host.pinned"].size == "64 KiB"


def test_a_device_that_stops_working_half_way_is_found_out(cpu):
    """The first products are right, and nothing is written after these."""
    calls = []

    def tires(function, args, kwargs):
        calls.append(1)
        return (
            nothing(function, args, kwargs)
            if len(calls) > 2
            else function(*args, **kwargs)
        )

    with Instead(torch.ops.aten.mm.out, tires):
        assert rows(cpu, "matrix float32")["matrix.float32"].outcome is Outcome.WRONG


def test_fewer_bits_than_the_type_has_are_a_note(cpu):
    def coarse(function, args, kwargs):
        left, right = (factor.bfloat16().float() for factor in args)
        return function(left, right, **kwargs)

    with Instead(torch.ops.aten.mm.out, coarse):
        row = rows(cpu, "matrix float32")["matrix.float32"]
    assert row.outcome is Outcome.MEASURED
    assert row.note == "computed with less precision than float32, such as TF32"


def test_what_fails_is_a_row_and_the_others_are_measured(cpu):
    def fails(function, args, kwargs):
        if args[0].dtype == torch.float64:
            raise RuntimeError("the device is lost\nand so on")
        return function(*args, **kwargs)

    with Instead(torch.ops.aten.mm.out, fails):
        found = rows(cpu, "matrix")
    assert found["matrix.float64"].outcome is Outcome.FAILED
    assert found["matrix.float64"].reason == "RuntimeError: the device is lost"
    assert found["matrix.float32"].outcome is Outcome.MEASURED


def test_no_communication_backend_is_a_reason(cpu, monkeypatch):
    monkeypatch.setenv("ACCEL_COMMUNICATION_BACKEND", "nobodys")
    (step,) = [step for step in steps(cpu, TINY) if step.title == "collectives"]
    assert {row.outcome for row in step.run()} == {Outcome.NOT_MEASURED}
    assert all("nobodys" in row.reason for row in step.run())


def test_ranks_that_do_not_come_to_an_end_are_told(cpu):
    (row, _) = collectives(cpu, TINY._replace(patience=0.01), 2)[0].run()
    assert row.outcome is Outcome.FAILED
    assert re.fullmatch(
        r"2 ranks over gloo: rank [01] gave no answer within 0.01 s\..*", row.reason
    )


def test_ranks_time_collectives(cpu):
    (step,) = [
        step for step in steps(cpu, TINY, ranks=2) if step.title == "collectives"
    ]
    for row in step.run():
        assert row.outcome is Outcome.MEASURED, row
        assert (row.size, row.work, row.note) == ("4 KiB", 4096, "2 ranks over gloo")


def test_of_several_ranks_the_slowest_counts_a_sum_crosses_twice_and_errors_are_told():
    fast, slow = (
        {"seconds": s, "calls": 1, "bytes": 4096, "right": True}
        for s in ([1, 3, 1], [2, 1, 2])
    )
    summed = _row("all_reduce", [fast, slow, fast, fast], "")
    assert (summed.seconds, summed.work, summed.value) == (2, 6144, 3072)
    assert _row("broadcast", [fast, slow], "").value == 2048
    nccl = "DistBackendError: NCCL error in: x.cpp:1\nncclInvalid: …\nLast error:\nDuplicate GPU detected"
    assert (_cause(nccl), _cause("no NCCL\nhere")) == (
        "Duplicate GPU detected",
        "no NCCL",
    )
    liar = {**slow, "right": False}
    told = _row("broadcast", [fast, liar], "")
    assert (told.outcome, told.reason) == (
        Outcome.WRONG,
        "rank 1 received other data than was sent",
    )


class Clock:
    """A clock that only work moves."""

    def __init__(self):
        self.now = 0.0

    def works(self, seconds):
        def call():
            self.now += seconds

        return call


BOUNDED = [
    (0.001, 40, 20),  # 20 ms a repeat, 0.8 s in all
    (0.3, 5, 1),  # slow: no fewer than five
    (2.0, 2, 1),  # too slow for five: what four times the time holds
    (60.0, 1, 1),
    (
        1e-6,
        50,
        500,
    ),  # no more calls than a queue takes, and no more repeats than say more
]


@pytest.mark.parametrize(("seconds", "repeats", "calls"), BOUNDED)
def test_time_is_bounded(monkeypatch, seconds, repeats, calls):
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    samples = timing.sampled(clock.works(seconds), int, FULL)
    assert (len(samples.seconds), samples.calls) == (repeats, calls)
    assert samples.median == pytest.approx(seconds)
    assert clock.now == pytest.approx(samples.total * seconds)
