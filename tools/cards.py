"""Run `accel verify` on every backend here, and keep the cards: tests/conformance/cards. `./dev cards`.

The simulated devices, and the processor. npu's on the real torch_npu is written in session npu_real.
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

from accel_testing.cards import RECORDS, SIMULATED, run_processor, run_simulated  # noqa: E402

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
            text = json.dumps(card, indent=1, ensure_ascii=False) + "\n"
            (RECORDS / f"{name}.json").write_text(text, encoding="utf-8", newline="\n")
            print(f"{name}: {card['score']}", flush=True)
    return 0


def _card(name: str) -> dict[str, Any]:
    return run_processor() if name == "cpu" else run_simulated(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
