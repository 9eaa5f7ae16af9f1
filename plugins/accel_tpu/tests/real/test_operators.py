"""torch's database of operators on the real TorchTPU: what is recorded of one comes again."""

import json
import os
from pathlib import Path

from accel_tests.children import run_python

ROOT = Path(__file__).parents[4]
RECORD = ROOT / "lab/records/tpu-operators.json"


def test_what_is_recorded_comes_again(tmp_path):
    """Random numbers are not compared, and an error that does not come is seen."""
    again = tmp_path / "again.json"
    tool = [str(ROOT / "lab/opinfo.py"), "--device", "tpu", "--jobs", "1"]
    done = run_python(
        [*tool, "--only", "uniform", "--record", str(again)], os.environ, timeout=300
    )
    assert again.is_file(), done.stderr
    recorded, seen = (
        json.loads(file.read_text(encoding="utf-8")) for file in (RECORD, again)
    )
    assert seen["cells"]["operators"] == {
        "uniform": recorded["cells"]["operators"]["uniform"]
    }, done.stdout
    assert [each[3] for each in seen["failures"]] == ["errors"]
