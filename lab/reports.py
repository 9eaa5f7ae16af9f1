"""Run `accel verify` on every backend here, and keep the cards in lab/records/reports. `./dev reports`.

Without arguments it also asks each simulated device what it can do, and keeps lab/records/simulated.json.
The simulated devices, and the CPU. npu's on the real torch_npu is written in session npu-real.
Names of simulated devices, or `cpu`, run those alone.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from accel_tests.cards import RECORDS, SIMULATED, run_processor, run_simulated  # noqa: E402
from accel_tests.on_simulated import run_on  # noqa: E402

from accel_simulated import DEVICES  # noqa: E402

ALL = [*SIMULATED, "cpu"]


def main(names: list[str]) -> int:
    """Two at a time: what a card waits for is mostly one core."""
    unknown = sorted(set(names) - set(ALL))
    if unknown:
        print(f"{', '.join(unknown)}: expected some of {', '.join(ALL)}")
        return 2
    RECORDS.mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        for name, card in zip(names or ALL, pool.map(_card, names or ALL), strict=True):
            _keep(RECORDS / f"{name}.json", card)
            print(f"{name}: {card['score']}", flush=True)
    if not names:
        check = "simulated_checks.capabilities:slow"
        names = [name for name, vendor in DEVICES.items() if not vendor.alias_of]
        told = {name: run_on(name, check, name, timeout=300).answer for name in names}
        _keep(ROOT / "lab/records/simulated.json", told)
    return 0


def _keep(path: Path, record: dict[str, Any]) -> None:
    path.write_text(
        json.dumps(record, indent=1, ensure_ascii=False) + "\n",
        encoding="utf-8",
        newline="\n",
    )


def _card(name: str) -> dict[str, Any]:
    return run_processor() if name == "cpu" else run_simulated(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
