"""The score card of the real TorchTPU over XLA's library for the CPU, as `accel verify tpu` gives it.

`.nox/tpu-real/bin/python plugins/accel_tpu/tests/real/tpu_card.py` writes the record that the docs' page of
scores tells, and that `test_card.py` compares.
"""

import json
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[3] / "tests" / "support")]

from accel_tests.cards import RECORDS, run_card  # noqa: E402 - found through the line above
from accel_tests.children import without  # noqa: E402

from accel_tpu.trial import environment  # noqa: E402

#: Of the record.
NAME = "tpu-real"


def variables():
    """Give the environment of a child, as `accel try tpu` makes it; TorchTPU's warnings are not shown."""
    return {**without("ACCEL_"), **environment()[0], "PYTHONWARNINGS": "ignore"}


def card():
    """Run the checks; what fails is expected, with reasons."""
    found = run_card("tpu", variables(), HERE / "expected.toml")
    packages = " and ".join(
        f"`{n}` {metadata.version(n)}" for n in ("torch_tpu", "fastatomstruct-xla-cpu")
    )
    return {
        **found,
        "device": f"the real {packages}: TorchTPU on XLA's library for the CPU",
    }


if __name__ == "__main__":
    text = json.dumps(card(), indent=1, ensure_ascii=False)
    (RECORDS / f"{NAME}.json").write_text(f"{text}\n", encoding="utf-8", newline="\n")
