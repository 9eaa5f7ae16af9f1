"""Write docs/explanation/simulated-frameworks.md from what was recorded; `--check` only compares.

`./dev frameworks` records (tools/framework_runs.py). `./dev docs` checks, `./dev docs --write` writes.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from generated import settled, wants_check

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs/explanation/simulated-frameworks.json"
PAGE = ROOT / "docs/explanation/simulated-frameworks.md"
COLUMNS = (("cuda", 1), ("cuda", 2), ("acme", 1), ("acme", 2))

TITLE = """\
# Frameworks on simulated devices

<!-- Written by tools/framework_page.py from simulated-frameworks.json; ./dev docs --write -->
"""
HEAD = (
    "Software that nobody here wrote, as its wheels bring it, on two simulated devices of "
    "[accel-simulated](../howto/simulate.md). On `cuda` it runs by its own rules, with no word of ours but "
    "`accel simulate cuda:2 --` before its command: `accelerate launch`, `torchrun`, Lightning's launcher. "
    "On `acme`, which none of them knows, it runs with what [Lightning, Accelerate and "
    "Transformers](../trainers.md) tells users to write."
)
WHAT = """\
- Accelerate: the scripts of `accelerate.test_utils.scripts` (those in `external_deps` want the hub).
- Transformers: `Trainer` on a GPT-2 that is made on the spot: trains, evaluates, resumes a checkpoint to the
  bit, in float32 and bfloat16; a worker loads its batches. One process on `cuda` with two devices is
  `torch.nn.DataParallel`.
- Lightning: the models of `lightning.pytorch.demos`; fit, and BoringModel validates, tests and predicts.
- torch.utils.data: workers that are forked, spawned and served, page-locked batches.
"""
#: Why a run does not pass, where that is the software's own doing: words of its error, and what is behind.
REASONS = {
    "expects that two GPUs": "the script asserts that it has two ranks",
    "at least two devices": "its data stay on the host, and one rank has no DDP that moves them",
    "inject a (distributed) sampler": "the demo's own sampler, which Lightning cannot share among ranks",
    "StatefulDataLoader": "a part of the script needs the package torchdata",
    "BF16 all reduce communication hook": "torch has this hook for the names nccl and xccl alone",
    "fp16 mixed precision requires": "Accelerate's list of vendors",
    "doesn't support bf16": "Transformers' list of vendors",
    "Torch not compiled with CUDA": "the script takes each device that it does not know for CUDA's",
}


def filled(text: str) -> str:
    """Give a paragraph in lines of the documents' length."""
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def page(record: dict[str, Any]) -> str:
    """Write the whole page."""
    runs = record["runs"]
    rows: dict[tuple[str, str], dict[tuple[str, int], str]] = {}
    notes: dict[str, int] = {}
    for name, told in runs.items():
        framework, what, device, ranks = name.split()
        cell = "✓"
        if told["status"]:
            cell = f"✗ {notes.setdefault(_note(told), len(notes) + 1)}"
        rows.setdefault((framework, what), {})[device, int(ranks)] = cell
    passed = sum(not told["status"] for told in runs.values())
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    table = [
        f"| {framework} | `{what}` | {' | '.join(cells.get(column, '') for column in COLUMNS)} |"
        for (framework, what), cells in rows.items()
    ]
    titles = " | ".join(f"{device}, {ranks} rank{'s' * (ranks > 1)}" for device, ranks in COLUMNS)
    lines = [
        TITLE,
        filled(HEAD),
        "",
        WHAT,
        filled(f"{passed} of {len(runs)} runs pass, with {versions}."),
        "",
        f"| | | {titles} |",
        f"|---|---|{':---:|' * len(COLUMNS)}",
        *table,
    ]
    if notes:
        lines += ["", "What does not pass:", "", *(f"{number}. {note}" for note, number in notes.items())]
    return "\n".join(lines) + "\n"


def _note(told: dict[str, Any]) -> str:
    """Say why, and where: the place in a package, of its release above."""
    if "said" not in told:
        return str(told["status"])
    reason = next((why for words, why in REASONS.items() if words in told["said"]), "")
    places = list(dict.fromkeys(place for place in (told["asked by"], told["at"]) if place))
    where = ", by way of ".join(f"`{place}`" for place in reversed(places))
    said = told["said"].replace("|", "\\|").replace("<", "&lt;")
    return f"{said}{f' ({where})' if where else ''}{f': {reason}' if reason else ''}"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page."""
    check = wants_check(__doc__, arguments)
    wanted = {PAGE: page(json.loads(RECORD.read_text(encoding="utf-8")))}
    return settled(wanted, [], ROOT, "the frameworks' page is as recorded", check=check)


if __name__ == "__main__":
    raise SystemExit(main())
