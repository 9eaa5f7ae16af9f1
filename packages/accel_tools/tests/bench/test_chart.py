"""A run's measurements as bars of text, alone and beside an earlier run."""

import pytest

from accel_tools.bench import chart
from accel_tools.bench.records import Measurement, Outcome

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


def drawn(path, before=None):
    """What the file has that a chart of the three is drawn to."""
    rows = (COPY, ABSENT, LAUNCH)
    chart.draw(path, "title & <$words", "sub\x1btitle", rows, before)
    return path.read_text("utf-8")


@pytest.mark.parametrize(
    "words",
    [
        "title & <$words",
        "20.0 GB/s",
        "2.00 us",
        "not measured: no <such> thing",
        "launch, in a row",
    ],
)
def test_bars_have_the_title_and_every_row(tmp_path, words):
    assert words in drawn(tmp_path / "chart.txt")


def test_bars_have_no_control_characters(tmp_path):
    assert "\x1b" not in drawn(tmp_path / "chart.txt")


def test_without_an_earlier_run_none_is_drawn(tmp_path):
    assert "before" not in drawn(tmp_path / "chart.txt")


@pytest.fixture
def beside_earlier(tmp_path):
    """The lines of a chart beside an earlier run: a copy was twice as fast, a launch had another unit."""
    before = {"copy.on_device": COPY._replace(value=4e10), "launch.queued": COPY}
    return drawn(tmp_path / "chart.txt", before).splitlines()


def test_an_earlier_run_is_drawn_below_on_one_scale(beside_earlier):
    [now] = [line for line in beside_earlier if "20.0 GB/s, before 40.0 GB/s" in line]
    [earlier] = [line for line in beside_earlier if line.startswith("  before")]
    assert earlier.count("█") == 40
    assert now.count("█") == 20


def test_an_earlier_value_of_another_unit_is_not_drawn(beside_earlier):
    [launch] = [line for line in beside_earlier if "2.00 us" in line]
    assert "before" not in launch
