"""Write the table of `torch.accelerator` in docs/reference/accelerator.md; `--check` only compares.

torch_accelerator.json, in this folder, lists the functions of `torch.accelerator`, the member that does the
same, and the first release of torch that has the function. `./dev docs` checks the table and
`./dev docs --write` writes it. torch is not imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from generated import settled, wants_check

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/reference/accelerator.md"
BEGIN = "<!-- torch.accelerator: written by tools/member_page.py -->"
END = "<!-- end of torch.accelerator -->"
FACTS = Path(__file__).with_name("torch_accelerator.json")
#: Attributes of an instance, which `dir()` of the class does not list.
INSTANCE = {"backend", "name"}


def facts() -> dict[str, Any]:
    """Give what is known of torch."""
    known: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return known


def members() -> set[str]:
    """Return the names of the interface's public members."""
    from accel_core.interface import Accelerator

    return INSTANCE | {name for name in dir(Accelerator) if not name.startswith("_")}


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


def table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    return "\n".join(
        "| " + " | ".join(line) + " |" for line in [head, ("---",) * len(head), *lines]
    )


def section(known: dict[str, Any], count: int) -> str:
    """Write the section; `count`: the number of members of the interface."""
    lines = []
    for function, since in sorted(known["since"].items()):
        members = [
            f"`{name}`" for name, same in known["members"].items() if same == function
        ]
        cell = ", ".join(members) or "deprecated by torch"
        lines.append((f"`torch.accelerator.{function}`", cell, since))
    head = ("torch", "accel", "since torch")
    elsewhere = [
        (f"`{function}`", f"`{name}`")
        for name, function in sorted(known["elsewhere"].items())
    ]
    return f"""\
{len(known["members"])} of the {count} members correspond to a function of `torch.accelerator`. On a device
that is built into torch (`cuda`, `xpu`, `mps`), a corresponding member is torch's function. On all other
devices, the corresponding members call the vendor's functions. If the vendor's function is missing or raises
an error, the member calls torch's function, and `acc.refused` contains the vendor's error. Three members
call the vendor's function on every device: `device_count`, `current_stream`, and `memory_stats`. If the
installed torch is older than the release in the table, the member uses the vendor's function or
accel's default.

{table(head, lines)}

The column "since torch" was read from {known["source"]}.

Functions and classes outside `torch.accelerator` correspond to the members in this table:

{table(("torch", "accel"), elsewhere)}"""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(__doc__, arguments)
    known, names = facts(), members()
    wrong = faults(known, names)
    wanted = {}
    if not wrong:
        page = (root / PAGE).read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        after = rest.partition(END)[2]
        wanted[root / PAGE] = (
            f"{before}{BEGIN}\n\n{section(known, len(names))}\n\n{END}{after}"
        )
    return settled(
        wanted, wrong, root, f"{PAGE} lists the members as they are", check=check
    )


if __name__ == "__main__":
    raise SystemExit(main())
