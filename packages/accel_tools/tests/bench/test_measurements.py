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
from accel_tools.bench.collectives import (  # noqa: E402
    RankTiming,
    _combine_ranks,
    _line_with_cause,
    collective_steps,
)
from accel_tools.bench.run import all_steps  # noqa: E402


@pytest.fixture
def cpu():
    return CPUAccelerator(CPU)


def rows(accelerator, only=""):
    """What the steps whose title begins so give, by name; no ranks are started."""
    chosen = [
        step
        for step in all_steps(accelerator, TINY, ranks=1)
        if step.title.startswith(only)
    ]
    return {row.name: row for step in chosen for row in step.run()}


@pytest.fixture(scope="module")
def on_cpu():
    """The rows of all steps on the CPU, measured once."""
    return rows(CPUAccelerator(CPU))


CROSSING = [
    "copy.to_device.pinned",
    "copy.to_device.pageable",
    "copy.to_host.pinned",
    "copy.to_host.pageable",
    "copy.both_ways",
]


def test_every_measurement_has_a_row(on_cpu):
    assert list(on_cpu) == [
        *CROSSING,
        "copy.on_device",
        "matrix.float64",
        "matrix.float32",
        "matrix.float16",
        "matrix.bfloat16",
        "launch.queued",
        "launch.waited",
        "collective.all_reduce",
        "collective.broadcast",
    ]


def test_every_row_is_measured_or_has_a_reason(on_cpu, cpu):
    dtypes = {str(dtype).removeprefix("torch.") for dtype in cpu.supported_dtypes()}
    measured = {"copy.on_device", "launch.queued", "launch.waited"}
    measured |= {f"matrix.{dtype}" for dtype in dtypes | {"float64"}}
    for name, row in on_cpu.items():
        assert (row.outcome is Outcome.MEASURED) is (name in measured), row
        assert bool(row.reason) is (name not in measured), row


@pytest.mark.parametrize("name", CROSSING)
def test_on_a_device_in_the_hosts_memory_nothing_crosses(on_cpu, name):
    reason = "the device uses the host's memory, so there is nothing to copy"
    assert on_cpu[name].reason == reason


def test_one_rank_broadcasts_to_nobody(on_cpu):
    reason = "a collective needs at least two ranks"
    assert on_cpu["collective.broadcast"].reason == reason


def test_a_title_fits_its_column(on_cpu):
    for row in on_cpu.values():
        assert len(row.title) <= 20


@pytest.fixture(scope="module")
def measured_on_cpu(on_cpu):
    return [row for row in on_cpu.values() if row.outcome is Outcome.MEASURED]


def test_a_value_is_the_time_or_the_work_in_it(measured_on_cpu):
    for row in measured_on_cpu:
        expected = row.seconds if row.unit == "s" else row.work / row.seconds
        assert row.value == pytest.approx(expected), row


def test_the_best_repeat_is_no_worse_than_the_value(measured_on_cpu):
    for row in measured_on_cpu:
        if row.more_is_better:
            assert row.best >= row.value
        else:
            assert row.best <= row.value


def test_repeats_are_bounded(measured_on_cpu):
    """On a busy machine there may be fewer than `TINY.min_repeats`."""
    for row in measured_on_cpu:
        assert 1 <= row.repeats <= TINY.max_repeats


def test_a_copy_on_the_device_reads_and_writes_its_size(on_cpu):
    assert on_cpu["copy.on_device"].size == "64 KiB"
    assert on_cpu["copy.on_device"].work == 2 * 65536


def test_a_product_of_matrices_has_two_operations_a_term(on_cpu):
    assert on_cpu["matrix.float32"].size == "64 x 64"
    assert on_cpu["matrix.float32"].work == 2 * 64**3


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
    ("add_.Tensor", "launch.queued", "additions of 1, the sum is 0 instead of"),
    ("add_.Tensor", "launch.waited", "additions of 1, the sum is 0 instead of"),
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
    assert row.value is None
    assert row.best is None


class Card(CPUAccelerator):
    """The CPU as a device beside the host: with a neighbour, pinned memory and streams.

    A device that computes is in session simulated; here all but the place of its memory is as on one.
    """

    def device_count(self):
        return 2

    def is_pinned(self, tensor):
        return True

    Stream = property(lambda self: torch.cpu.Stream, lambda self, stream: None)


@pytest.fixture
def card(cpu, monkeypatch):
    monkeypatch.setattr(copies, "is_on_host", lambda accelerator: False)
    return Card(CPU)


#: How often the bytes of each copy count.
BYTES_COUNTED = {
    "copy.to_device.pinned": 1,
    "copy.to_device.pageable": 1,
    "copy.to_host.pinned": 1,
    "copy.to_host.pageable": 1,
    "copy.to_next": 1,
    "copy.both_ways": 2,
    "copy.on_device": 2,
}


def test_a_devices_copies_count_their_bytes_once_each_way(card):
    found = rows(card, "copy")
    for row in found.values():
        assert row.outcome is Outcome.MEASURED, row
    assert {name: row.work / 65536 for name, row in found.items()} == BYTES_COUNTED


def test_a_copy_to_the_neighbour_names_both_devices(card):
    found = rows(card, "copy")
    assert found["copy.to_next"].size == "64 KiB, 0 to 1"


def test_copies_that_copy_nothing_are_wrong(card):
    with Instead(torch.ops.aten.copy_.default, nothing):
        assert {row.outcome for row in rows(card, "copy").values()} == {Outcome.WRONG}


def test_without_pinned_memory_its_copies_have_a_reason(card, monkeypatch):
    monkeypatch.setattr(Card, "is_pinned", lambda self, tensor: False)
    locked = "cpu does not support pinned memory"
    expected = {
        f"copy.{name}": locked
        for name in ("to_device.pinned", "to_host.pinned", "both_ways")
    }
    assert {
        name: row.reason for name, row in rows(card, "copy").items() if row.reason
    } == expected


def test_with_one_queue_copies_do_not_overlap(card, monkeypatch):
    monkeypatch.setattr(Card, "Stream", HostStream)
    reason = rows(card, "copy both")["copy.both_ways"].reason
    assert reason == "cpu has only one queue, so copies cannot overlap"


def test_an_eighth_of_the_free_memory_bounds_a_copy(card, monkeypatch):
    """In whole pages."""
    monkeypatch.setattr(Card, "available_memory", lambda self: 100_000)
    size = rows(card, "copy to host")["copy.to_host.pinned"].size
    assert size == "12 KiB"


def test_a_copy_has_its_usual_size_where_the_free_memory_is_unknown(card, monkeypatch):
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
    (step,) = [step for step in all_steps(cpu, TINY) if step.title == "collectives"]
    assert {row.outcome for row in step.run()} == {Outcome.NOT_MEASURED}
    assert all("nobodys" in row.reason for row in step.run())


def test_ranks_that_do_not_come_to_an_end_are_told(cpu):
    (row, _) = collective_steps(cpu, TINY._replace(collective_seconds=0.01), 2)[0].run()
    assert row.outcome is Outcome.FAILED
    assert re.fullmatch(
        r"2 ranks over gloo: rank [01] gave no response within 0.01 s\..*", row.reason
    )


def test_ranks_time_collectives(cpu):
    (step,) = [
        step for step in all_steps(cpu, TINY, ranks=2) if step.title == "collectives"
    ]
    for row in step.run():
        assert row.outcome is Outcome.MEASURED, row
        assert row.size == "4 KiB"
        assert row.work == 4096
        assert row.note == "2 ranks over gloo"


#: What two ranks report of three repeats.
FAST = RankTiming([1, 3, 1], calls=1, bytes=4096, is_correct=True)
SLOW = FAST._replace(seconds=[2, 1, 2])


def test_of_several_ranks_the_slowest_counts():
    assert _combine_ranks("all_reduce", [FAST, SLOW, FAST, FAST], "").seconds == 2


def test_a_sum_of_four_ranks_moves_its_bytes_one_and_a_half_times():
    row = _combine_ranks("all_reduce", [FAST, SLOW, FAST, FAST], "")
    assert row.work == 6144
    assert row.value == 3072


def test_a_broadcast_moves_its_bytes_once():
    assert _combine_ranks("broadcast", [FAST, SLOW], "").value == 2048


def test_a_rank_that_received_other_data_is_named():
    row = _combine_ranks("broadcast", [FAST, SLOW._replace(is_correct=False)], "")
    assert row.outcome is Outcome.WRONG
    assert row.reason == "rank 1 received wrong data"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            "DistBackendError: NCCL error in: x.cpp:1\nncclInvalid: …\nLast error:\nDuplicate GPU detected",
            "Duplicate GPU detected",
        ),
        ("no NCCL\nhere", "no NCCL"),
    ],
)
def test_the_cause_of_an_error_is_its_last_one_or_its_first_line(error, cause):
    assert _line_with_cause(error) == cause


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
    samples = timing.take_samples(clock.works(seconds), int, FULL)
    assert len(samples.seconds) == repeats
    assert samples.calls == calls
    assert samples.median == pytest.approx(seconds)
    assert clock.now == pytest.approx(samples.total * seconds)
