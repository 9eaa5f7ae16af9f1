"""Write docs/backends/*.md and the table in docs/reference/backends.md.

A page is what the plugin declares and docs/backends/notes/<name>.md, which people write. `./dev docs` checks,
`./dev docs --write` writes; `--check` only compares. The plugins need not be installed, only importable, and
pluggy with them: neither torch nor a vendor's package is imported.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from generated import settled, wants_check

if TYPE_CHECKING:
    from accel_core import Backend

ROOT = Path(__file__).resolve().parent.parent
PAGES = "docs/backends"
TABLE = "docs/reference/backends.md"
BEGIN = "<!-- backends: written by tools/backend_pages.py -->"
END = "<!-- end of backends -->"
#: What the notes on every backend must tell.
HEADINGS = (
    "## Detection",
    "## Variables",
    "## Importing it",
    "## Known limits",
    "## Run on",
)
NONE = "—"
BUILDS = {"cuda": "CUDA", "hip": "ROCm", "xpu": "XPU"}


class Shipped(NamedTuple):
    """A backend, and of the distribution that declares it what the pages tell."""

    backend: Backend
    distribution: str
    #: The requirements of its extra `vendor`; empty where no registry has the vendor's package.
    vendor: tuple[str, ...]

    @property
    def page(self) -> str:
        """A family has one page: `xpu.external` is told beside `xpu`."""
        return self.backend.name.partition(".")[0]


# ---------------------------------------------------------------------------- reading


def section(text: str, header: str) -> str:
    """Give the lines of one table of a pyproject.toml: Python 3.10 has no parser of its own."""
    found = re.search(
        rf"^\[{re.escape(header)}\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL
    )
    return found[1] if found else ""


def shipped(root: Path = ROOT) -> list[Shipped]:
    """Read every backend of this tree, in rank order."""
    from accel_core import Backend
    from accel_core.backend import ENTRY_POINT_GROUP, Provenance
    from accel_core.builtin import builtin_verdicts
    from accel_core.plugins import rank
    from accel_core.verdict import Verdict

    found = [Shipped(c.backend, "accel-core", ()) for c in builtin_verdicts()]
    for project in sorted(root.glob("plugins/*/pyproject.toml")):
        text = project.read_text(encoding="utf-8")
        distribution = re.findall(
            r'^name = "(.+)"', section(text, "project"), re.MULTILINE
        )[0]
        extras = section(text, "project.optional-dependencies")
        extra = re.search(r"^vendor = \[(.*)\]", extras, re.MULTILINE)
        vendor = tuple(re.findall(r'"([^"]+)"', extra[1])) if extra else ()
        points = section(text, f'project.entry-points."{ENTRY_POINT_GROUP}"')
        for module in re.findall(r'= "([\w.]+)"', points):
            # On Windows cuda declares another communication backend; the pages tell Linux's.
            with patch.object(sys, "platform", "linux"):
                declared = importlib.import_module(module).accel_backends()
            each = [declared] if isinstance(declared, Backend) else declared
            found += [Shipped(backend, distribution, vendor) for backend in each]
    # The order that `accel list` has, takeovers included.
    sources = [Provenance(s.distribution, "") for s in found]
    verdicts = {
        Verdict(s.backend.name, source, replace(s.backend, provenance=source)): s
        for s, source in zip(found, sources, strict=True)
    }
    return [verdicts[verdict] for verdict in rank(verdicts)]


# ---------------------------------------------------------------------------- words


def code(items: Iterable[str], suffix: str = "") -> str:
    return ", ".join(f"`{item}{suffix}`" for item in items) or NONE


def device_type(backend: Backend) -> str:
    return "asked of torch" if backend.name == "generic" else f"`{backend.device_type}`"


def communication(backend: Backend) -> str:
    return (
        f"`{backend.communication_backend}`"
        if backend.communication_backend
        else "asked of torch"
    )


def bus(pci_id: str) -> str:
    """`"10de/03"` in words."""
    ids, _, kind = pci_id.partition("/")
    return f"`{ids}`{f' of class {kind}' if kind else ''}"


def grammar(backend: Backend) -> str:
    from accel_core.hardware import visible_devices

    return prose(visible_devices.describe_grammar(backend.visibility.grammar))


def prose(text: str) -> str:
    """Escape what Markdown would read as a tag: of `GPU-<uuid>` the site would show `GPU-`."""
    parts = text.split("`")  # every second one is code, where nothing is a tag
    return "`".join(
        part if number % 2 else part.replace("<", "\\<")
        for number, part in enumerate(parts)
    )


def path_to(backend: Backend) -> str:
    """Tell the ways to one device apart in a heading: `xpu` by IPEX from `xpu` by torch."""
    return f"`{backend.name}` {backend.priority}"


def rows(backend: Backend) -> dict[str, str]:
    """Everything declared that a user can meet."""
    seen = ""
    if backend.visibility.variables:
        first = (
            "the first that is set of " if len(backend.visibility.variables) > 1 else ""
        )
        seen = f"{first}{code(backend.visibility.variables)}: {grammar(backend)}"
    filters = code(backend.visibility.filters) if backend.visibility.filters else ""
    slot = (
        ", torch's PrivateUse1, of which a process has one"
        if backend.torch_integration.private_use1
        else ""
    )
    stolen = (
        f"`torch.{backend.torch_integration.takes_over}`, so it ranks before it"
        if backend.torch_integration.takes_over
        else ""
    )
    aside = (
        f"while {code(backend.torch_integration.taken_over_by)} is imported"
        if backend.torch_integration.taken_over_by
        else ""
    )
    return {
        "`DS_ACCELERATOR`": f"`{backend.name}`",
        "priority": str(backend.priority),
        "description": prose(backend.description),
        "vendor module": code(backend.vendor_imports),
        "torch device type": device_type(backend) + slot,
        "takes over": stolen,
        "defers": aside,
        "needs": code(backend.requires) if backend.requires else "",
        "made for one torch": code(backend.torch_integration.same_version)
        if backend.torch_integration.same_version
        else "",
        "torch built with": " or ".join(
            BUILDS[name] for name in backend.torch_integration.builds
        ),
        "platforms": code(backend.hardware.platforms)
        if backend.hardware.platforms
        else "any",
        "hardware": prose(backend.hardware.name),
        "device nodes": code(backend.hardware.nodes),
        "nodes that others have too": code(backend.hardware.shared_nodes)
        if backend.hardware.shared_nodes
        else "",
        "PCI ids": ", ".join(map(bus, backend.hardware.pci_ids)) or NONE,
        "there when the driver is loaded": code([backend.hardware.driver_file])
        if backend.hardware.driver_file
        else "",
        "without its driver": prose(backend.hardware.driver_step),
        "request": ", ".join(
            f"{by} `{word}`" for by, word in asdict(backend.request).items() if word
        ),
        "visible devices": seen or NONE,
        "filtered before by": filters,
        "forwarded to other nodes": code(backend.environment.forward, "*"),
        "set by `activate()` and `accel run`": code(backend.environment.defaults)
        if backend.environment.defaults
        else "",
        "communication": communication(backend),
        "compilation": f"`{backend.compile_backend}`"
        if backend.compile_backend
        else "`inductor` where it generates code for the device, else `aot_eager`",
        "class": f"`{backend.accelerator}`",
        "docs": f"<{backend.url}>" if backend.url else "",
    }


def table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    head = list(head)
    cells = [head, ["---"] * len(head), *lines]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in cells
    )


# ---------------------------------------------------------------------------- writing


def install(family: list[Shipped]) -> str:
    from accel_core.hardware import vendors

    first = family[0]
    folder = vendors.FOLDERS[first.distribution] or "."
    # With the core in the same command: alone, pip would look for it in a registry.
    core = "" if folder == "." else ". "
    text = f"In a checkout of accel, as no registry has it yet:\n\n    pip install {core}{folder}\n"
    if first.distribution == "accel-core":
        return text + "\nNothing more: accel-core brings it. It needs torch.\n"
    if first.vendor:
        text += f'    pip install {core}"{folder}[vendor]"    # with {", ".join(first.vendor)}\n'
    hints = [
        (s.backend.install_hint, path_to(s.backend))
        for s in family
        if s.backend.install_hint
    ]
    several = len({hint for hint, _ in hints}) > 1
    steps = [(prose(hint), where) for hint, where in hints]
    told = list(
        dict.fromkeys(
            f"- {where}: {hint}" if several else f"- {hint}" for hint, where in steps
        )
    )
    return (
        text
        + "\nWhere the vendor's part is missing, `accel why` says:\n\n"
        + "\n".join(told)
        + "\n"
    )


def otherwise(family: list[Shipped]) -> str:
    """What gives another result without an error, each with the check of `accel verify` that shows it."""
    known = dict.fromkeys(row for s in family for row in s.backend.known_differences)
    told = "".join(f"- {prose(words)} (check `{check}`).\n" for check, words in known)
    return f"## Known to compute otherwise\n\n{told}\n" if told else ""


def page(name: str, family: list[Shipped], notes: str) -> str:
    """The page of one family of backends."""
    told = [rows(s.backend) for s in family]
    if len(family) == 1:
        head = ["declared", ""]
        lines = [[key, value] for key, value in told[0].items() if value]
    else:
        head = ["declared", *(path_to(s.backend) for s in family)]
        keys = [key for key in told[0] if any(each[key] for each in told)]
        lines = []
        for key in keys:
            first, *others = [each[key] or NONE for each in told]
            alike = len(first) > 20 and all(other == first for other in others)
            lines.append(
                [key, first, *(["the same"] * len(others) if alike else others)]
            )
    names = sorted({f"`{s.backend.name}`" for s in family})
    before, heading, after = notes.strip().partition(HEADINGS[0])
    after, run_on, tried = after.partition(HEADINGS[-1])
    return f"""\
<!-- Written by tools/backend_pages.py from the plugin's declaration and notes/{name}.md.
     Edit those, then run `./dev docs --write`. -->

# The backend{"s" if len(names) > 1 else ""} {" and ".join(names)}

## Install

{install(family)}
{before.strip()}

## Declaration

{table(head, lines)}

{heading}{after}{otherwise(family)}{run_on}{tried}
"""


def all_of_them(all_shipped: list[Shipped]) -> str:
    """Two tables of every backend: one would be wider than the page."""
    links = [f"[`{s.backend.name}`](../backends/{s.page}.md)" for s in all_shipped]
    asked = [
        [
            link,
            str(s.backend.priority),
            prose(s.backend.description),
            f"`{s.distribution}`",
        ]
        for link, s in zip(links, all_shipped, strict=True)
    ]
    names = [
        [
            link,
            ", ".join(
                dict.fromkeys((device_type(s.backend), communication(s.backend)))
            ),
            code(s.backend.vendor_imports),
            code(s.backend.visibility.variables),
        ]
        for link, s in zip(links, all_shipped, strict=True)
    ]
    return f"""\
{table(("backend", "priority", "drives", "plugin"), asked)}

The names that torch has for each (device type, communication backend), the vendor's module, and the
variables that select devices:

{table(("backend", "in torch", "imports", "visible devices"), names)}"""


def texts(
    all_shipped: list[Shipped], root: Path = ROOT
) -> tuple[dict[Path, str], list[str]]:
    """What each generated file must hold, and what is wrong with what people write."""
    wanted: dict[Path, str] = {}
    faults = []
    families: dict[str, list[Shipped]] = {}
    for each in all_shipped:
        families.setdefault(each.page, []).append(each)
    for name, family in families.items():
        file = root / PAGES / "notes" / f"{name}.md"
        notes = file.read_text(encoding="utf-8") if file.is_file() else ""
        missing = [heading for heading in HEADINGS if heading not in notes.splitlines()]
        if missing:
            faults.append(
                f"{file.relative_to(root).as_posix()}: lacks {', '.join(missing)}"
            )
        else:
            wanted[root / PAGES / f"{name}.md"] = page(name, family, notes)
    left = [
        file
        for file in sorted((root / PAGES).rglob("*.md"))
        if file.stem not in families
    ]
    faults += [
        f"{file.relative_to(root).as_posix()}: no backend has this name, delete it"
        for file in left
    ]
    together = root / TABLE
    before, begin, rest = together.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        wanted[together] = (
            f"{before}{BEGIN}\n\n{all_of_them(all_shipped)}\n\n{END}{after}"
        )
    else:
        faults.append(f"{TABLE}: lacks the lines {BEGIN} and {END}")
    return wanted, faults


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(__doc__, arguments)
    wanted, faults = texts(shipped(), root)
    said = f"checked {len(wanted)} files against the backends' declarations"
    return settled(wanted, faults, root, said, check=check)


if __name__ == "__main__":
    raise SystemExit(main())
