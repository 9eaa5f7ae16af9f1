"""A run as JSON, read back and compared; its figures in words."""

import json
import re

import pytest

from accel_tools.bench import document
from accel_tools.bench.records import Measurement, Outcome
from accel_tools.bench.units import format_bytes, format_with_prefix

MACHINE = {
    "cpu": "Some 9000",
    "cores": 2,
    "system": "Linux 6",
    "torch": "2.13.0",
    "torch_threads": 2,
}
DEVICE = {"name": "card", "product": "Card 1", "driver": "card 5.1"}
COPY = Measurement(
    "copy.on_device", "on the device", "B/s", Outcome.MEASURED, value=2e10, best=2.5e10, spread=0.05,
    repeats=12, calls=4, seconds=0.01, work=2e8, size="128 MiB",
)  # fmt: skip
LAUNCH = COPY._replace(
    name="launch.queued",
    title="launch, in a row",
    unit="s",
    value=2e-6,
    size="1 number",
)
ABSENT = Measurement(
    "matrix.float16", "matrix", "FLOP/s", Outcome.NOT_MEASURED, reason="no <such> thing"
)
RUN = document.Run(
    "2026-01-02T03:04:05+00:00", 12.5, False, MACHINE, DEVICE, (COPY, ABSENT, LAUNCH)
)


def written(path, run=RUN, **changed):
    path.write_text(
        json.dumps({**document.run_to_dict(run), **changed}), encoding="utf-8"
    )
    return path


def test_a_document_is_read_as_it_was_written(tmp_path):
    assert document.read_run(written(tmp_path / "old.json")) == RUN


def test_a_field_of_a_later_release_is_left_out(tmp_path):
    later = written(tmp_path / "later.json", new_field="which a later release adds")
    assert document.read_run(later) == RUN


def damaged(**changes):
    """The first measurement, with these fields changed."""
    first, *others = document.run_to_dict(RUN)["measurements"]
    return {"measurements": [{**first, **changes}, *others]}


FOREIGN = [
    (
        {"document": "accel info"},
        "the file contains JSON, but not the output of `accel bench --json`",
    ),
    (
        {"schema": 2},
        "the file has schema version 2, but this release of accel-tools reads only version 1",
    ),
    (
        damaged(value=float("nan")),
        "the measurement copy.on_device contains an impossible number: nan",
    ),
    (
        damaged(value=None),
        "the measurement copy.on_device has the outcome 'measured', but the value None",
    ),
    (b"", "the file is not the output of `accel bench --json`: Expecting value"),
    (b"\xff\xfe", "the file is not the output of `accel bench --json`: 'utf-8' codec"),
    (b"[" * 100_000, "the JSON in the file is nested too deeply"),
    (b" " * (5 * 2**20), "larger than 4 MiB"),
]


@pytest.mark.parametrize(("changed", "message"), FOREIGN)
def test_a_foreign_or_damaged_document_is_told(tmp_path, changed, message):
    path = tmp_path / "old.json"
    if isinstance(changed, bytes):
        path.write_bytes(changed)
    else:
        written(path, **changed)
    with pytest.raises(ValueError, match=re.escape(message)):
        document.read_run(path)


def test_what_cannot_be_read_is_told(tmp_path):
    with pytest.raises(ValueError, match="the file cannot be read: No such file"):
        document.read_run(tmp_path / "none.json")


CHANGES = [
    (COPY, 1e10, 0.5, "slower"),
    (COPY, 3e10, 1.5, "faster"),
    (COPY, 2.06e10, 1.03, ""),  # within the spread
    (LAUNCH, 4e-6, 2.0, "slower"),
    (LAUNCH, 1e-6, 0.5, "faster"),
]


@pytest.mark.parametrize(("row", "now", "ratio", "verdict"), CHANGES)
def test_a_change_is_a_ratio_and_a_word(row, now, ratio, verdict):
    (change,) = document.find_changes([row, ABSENT], [ABSENT, row._replace(value=now)])
    assert change.ratio == pytest.approx(ratio)
    assert change.verdict == verdict


def test_a_run_differs_in_nothing_from_itself():
    assert document.find_differences(RUN, RUN) == []


def test_what_makes_two_runs_incomparable_is_named():
    other = RUN._replace(
        machine={**MACHINE, "cpu": "Another", "torch": "2.6.0"},
        accelerator={**DEVICE, "driver": None},
        quick=True,
    )
    assert document.find_differences(other, RUN) == [
        "the CPU was Another in the earlier run, but is Some 9000 in this run",
        "torch was 2.6.0 in the earlier run, but is 2.13.0 in this run",
        "the driver was unknown in the earlier run, but is card 5.1 in this run",
        "the earlier run used --quick, but this run did not",
    ]


FIGURES = [
    (2.134e10, "21.3 GB/s"), (9.996e11, "1.00 TB/s"), (999.4e9, "999 GB/s"), (1.0, "1.00 B/s"),
    (9.999e-7, "1.00 uB/s"), (1e-13, "0.00 nB/s"), (1.5e16, "15000 TB/s"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "words"), FIGURES)
def test_figures_have_three_digits(value, words):
    assert format_with_prefix(value, "B/s") == words


@pytest.mark.parametrize(
    ("amount", "words"),
    [(100, "100 B"), (5 * 2**28, "1.25 GiB"), (1234568 * 1024, "1234568 KiB")],
)
def test_sizes_are_exact(amount, words):
    assert format_bytes(amount) == words
