"""The score card on the real torch_npu, as `accel verify npu` gives it to who sourced CANN's `set_env.sh`.

`.nox/npu-real/bin/python plugins/accel_npu/tests/real/checks/card.py` writes the record that the docs' page
of scores
tells, and that `test_card.py` compares.
"""

import json
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path[:0] = map(str, (HERE, HERE.parents[3] / "tests" / "support"))

from accel_tests.cards import RECORDS, run_card  # noqa: E402 - found through the line above
from stand_in import build  # noqa: E402
from stand_in.children import variables  # noqa: E402

#: Of the record.
NAME = "npu-real"


def card(cann, *only):
    """Run the checks over CANN's stand-in in that folder; what fails there is expected, with reasons."""
    found = run_card("npu", variables(cann), HERE / "expected.toml", only)
    return {
        **found,
        "device": f"the real `torch_npu` {metadata.version('torch_npu')}, over a stand-in for CANN",
    }


if __name__ == "__main__":
    text = json.dumps(card(build.built()), indent=1, ensure_ascii=False)
    (RECORDS / f"{NAME}.json").write_text(f"{text}\n", encoding="utf-8", newline="\n")
