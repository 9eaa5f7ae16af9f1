"""Many choices in one process: the same answer, and nothing is left over."""

import sys
from pathlib import Path

import pytest
from accel_tests import children

#: Chooses many times in one process.
CHOOSE_AGAIN = Path(__file__).with_name("choose_again.py")


@pytest.mark.skipif(
    sys.platform != "linux", reason="what a process has open is read in /proc"
)
@pytest.mark.parametrize(
    ("warm", "count", "probe"),
    [(1_000, 10_000, ""), (20, 200, "isolated")],
    ids=["here", "isolated"],
)
def test_ten_thousand_choices_leak_nothing(several, warm, count, probe):
    """They keep at most 1 MiB, and nothing else is left over."""
    environ = {
        "ACCEL_PROBE_TIMEOUT": "60",
        "ACCEL_PROBE": probe,
        "CHOOSE_WARM": str(warm),
        "CHOOSE_COUNT": str(count),
    }
    program = CHOOSE_AGAIN.read_text("utf-8")
    end = children.run(
        program, several.path, environ, traced=False, strict=False, timeout=900
    )
    before, after, seconds = end.answer
    grown = after.pop("memory") - before.pop("memory")
    print(f"{count} choices {probe}: {seconds:.1f} s, {grown} bytes, {after}")
    assert after == before
    assert not [file for file in (several.root / "home").rglob("*") if file.is_file()]
    assert grown <= 1 << 20
