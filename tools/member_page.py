"""Write docs/reference/torch-accelerator.md: each member beside torch's own; `--check` only compares.

Which function of `torch.accelerator` does the same, and since when, stands in torch_accelerator.json beside
this file; the members, and the section that each is in, are the interface's. `./dev docs` checks,
`./dev docs --write` writes. No torch is imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from generated import settled, wants_check

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/reference/torch-accelerator.md"
FACTS = Path(__file__).with_name("torch_accelerator.json")
NOTHING = "torch has nothing"
#: Of the instance; `dir()` of the class does not tell them.
INSTANCE = {"backend": "Base", "name": "Base"}


def facts() -> dict[str, Any]:
    """Give what is known of torch."""
    known: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return known


def sections() -> dict[str, list[str]]:
    """Give the public members by the section that defines them, in the order of the interface's bases."""
    from accel_core.interface import Accelerator

    homes = dict(INSTANCE)
    for kind in reversed(Accelerator.__mro__):
        homes |= {
            name: kind.__name__ for name in vars(kind) if not name.startswith("_")
        }
    found: dict[str, list[str]] = {
        kind.__name__: [] for kind in reversed(Accelerator.__mro__[:-1])
    }
    for name in sorted(homes):
        found[homes[name]].append(name)
    return {section: names for section, names in found.items() if names}


def faults(known: dict[str, Any], members: set[str]) -> list[str]:
    """Say where the facts and the interface do not fit together."""
    said, elsewhere, since = known["members"], known["elsewhere"], known["since"]
    covered = {*said.values(), *known["deprecated"]}
    return [
        *(
            f"{name}: is no member of the interface"
            for name in {*said, *elsewhere} - members
        ),
        *(f"{name}: is told of twice" for name in said.keys() & elsewhere.keys()),
        *(
            f"torch.accelerator.{name}: nobody says since when"
            for name in covered - since.keys()
        ),
        *(
            f"torch.accelerator.{name}: no member is said to do this"
            for name in since.keys() - covered
        ),
    ]


def torchs(member: str, known: dict[str, Any]) -> str:
    """Say in a cell what torch has for a member."""
    if (name := known["members"].get(member)) is not None:
        return f"the same as `torch.accelerator.{name}`, since torch {known['since'][name]}"
    if (path := known["elsewhere"].get(member)) is not None:
        return f"not in `torch.accelerator`; `{path}`"
    return NOTHING


def table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    return "\n".join(
        "| " + " | ".join(line) + " |" for line in [head, ("---",) * len(head), *lines]
    )


def page(known: dict[str, Any], members: dict[str, list[str]]) -> str:
    """Write the page."""
    rows = [
        (f"`{name}`", section, torchs(name, known))
        for section, names in members.items()
        for name in names
    ]
    same = len(known["members"])
    back = []
    for torch, since in sorted(known["since"].items()):
        ours = ", ".join(
            f"`{name}`"
            for name, of_torch in known["members"].items()
            if of_torch == torch
        )
        back.append(
            (f"`torch.accelerator.{torch}`", ours or "deprecated by torch", since)
        )
    return f"""\
<!-- Written by tools/member_page.py from the interface and tools/torch_accelerator.json.
     Edit those, then run `./dev docs --write`. -->

# Members, and `torch.accelerator`

Of {len(rows)} members {same} do what `torch.accelerator` has, under the name that DeepSpeed gave them where
it had one first. "The same": on a device that torch brings itself (cuda, xpu, mps) the member is torch's
function. Where a package brings the device its own function comes first, as
torch_npu's set what torch's do not, and torch's
serves where the vendor has none, or where the vendor's raises when it is first called: the accelerator's
`refused` keeps those words (TorchTPU keeps most of `torch.tpu` for torch). The vendor's comes first
everywhere for `device_count`, which torch's calls, and for `current_stream` and `memory_stats`, which tell
more there. With an older torch than the one named the vendor's serve, and after them the documented
default. The other members torch does not have for an accelerator as such: where something of torch's does a
part of it, it is named.

Arguments are torch's too: a device is an `int`, a `str`, a `torch.device` or `None` for the current one,
passed as `device_index`, as in DeepSpeed, or as `device`, as in torch. A missing device is an
`InvalidDeviceError` (a `ValueError`) that tells the range, and a value that names no device an
`InvalidArgumentError` (a `TypeError`); a function that is bound as it is keeps its vendor's checks.

accel-simulated's tests ask both on one device, `tests/test_member_page.py` holds the names against torch's,
and `tests/accelerators/test_signatures.py` the signatures.

Since when: {known["source"]}.

## From `torch.accelerator` to here

{table(("torch", "here", "since torch"), back)}

## Every member

{table(("member", "section", "in torch, for any accelerator"), rows)}
"""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(__doc__, arguments)
    known, members = facts(), sections()
    wrong = faults(known, {name for names in members.values() for name in names})
    wanted = {} if wrong else {root / PAGE: page(known, members)}
    return settled(
        wanted, wrong, root, f"{PAGE} tells of the members as they are", check=check
    )


if __name__ == "__main__":
    raise SystemExit(main())
