"""Write docs/backends/*.md and the tables in docs/reference/backends.md.

A page combines the plugin's declaration, docs/backends/notes/<name>.md and the program
docs/backends/notes/train.py. `./dev docs` checks the pages, `./dev docs --write` writes
them; `--check` only compares. The plugins and pluggy must be importable; neither torch
nor a vendor's package is imported.
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
#: The program that every page shows, in the folder of notes.
PROGRAM = "train.py"
TABLE = "docs/reference/backends.md"
BEGIN = "<!-- backends: written by tools/backend_pages.py -->"
END = "<!-- end of backends -->"
#: The sections that each file of notes needs.
SECTIONS = (
    "Tested on",
    "Install",
    "Train",
    "Limits",
    "Environment variables",
    "Detection",
    "Import side effects",
)
NONE = "—"
BUILDS = {"cuda": "CUDA", "hip": "ROCm", "xpu": "XPU"}
#: The names of those that a `ResourceRequest` is for, by its fields.
REQUESTS = {
    "docker": "Docker",
    "kubernetes": "Kubernetes",
    "slurm": "Slurm",
    "apptainer": "Apptainer",
    "podman": "Podman",
    "ray": "Ray",
    "ray_noset": "Ray sets no visible devices if this variable is set",
}


class Shipped(NamedTuple):
    """A backend, and the distribution that declares it."""

    backend: Backend
    distribution: str

    @property
    def page(self) -> str:
        """Backends of one family share a page: `xpu.external` is on the page of `xpu`."""
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

    found = [Shipped(c.backend, "accel-core") for c in builtin_verdicts()]
    for project in sorted(root.glob("plugins/*/pyproject.toml")):
        text = project.read_text(encoding="utf-8")
        distribution = re.findall(
            r'^name = "(.+)"', section(text, "project"), re.MULTILINE
        )[0]
        points = section(text, f'project.entry-points."{ENTRY_POINT_GROUP}"')
        for module in re.findall(r'= "([\w.]+)"', points):
            # The pages describe Linux: on Windows cuda has another communication backend.
            with patch.object(sys, "platform", "linux"):
                declared = importlib.import_module(module).accel_backends()
            each = [declared] if isinstance(declared, Backend) else declared
            found += [Shipped(backend, distribution) for backend in each]
    # The order of `accel list`, which considers takeovers.
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
    if backend.name == "generic":
        return "reported by torch"
    return f"`{backend.device_type}`"


def communication(backend: Backend) -> str:
    if backend.communication_backend:
        return f"`{backend.communication_backend}`"
    return "reported by torch"


def pci(pci_id: str) -> str:
    """Describe a PCI id: `"10de/03"` becomes "`10de`, class 03"."""
    ids, _, kind = pci_id.partition("/")
    if not kind:
        return f"`{ids}`"
    return f"`{ids}` (class {kind})"


def prose(text: str) -> str:
    """Escape text that Markdown takes for a tag: without that, `GPU-<uuid>` shows as `GPU-`."""
    parts = text.split("`")  # every second part is code, in which nothing is a tag
    return "`".join(
        part if number % 2 else part.replace("<", "\\<")
        for number, part in enumerate(parts)
    )


def visible_devices(backend: Backend) -> str:
    from accel_core.hardware import visible_devices

    variables = backend.visibility.variables
    if not variables:
        return ""
    grammar = prose(visible_devices.describe_grammar(backend.visibility.grammar))
    if len(variables) == 1:
        return f"{code(variables)}: {grammar}"
    return f"the first variable that is set of {code(variables)}: {grammar}"


def requests(backend: Backend) -> str:
    """List how to request the device, one line for each scheduler or container runtime."""
    lines = []
    for field, words in asdict(backend.request).items():
        if words:
            lines.append(f"\n  - {REQUESTS[field]}: `{words}`")
    return "".join(lines)


def rows(backend: Backend) -> dict[str, str]:
    """Describe the declared fields that users need and that the headings do not show.

    A field whose description is empty is left out.
    """
    torch = backend.torch_integration
    hardware = backend.hardware
    slot = " (PrivateUse1, which a process can use once)" if torch.private_use1 else ""
    compiler = "`inductor` if it supports the device, else `aot_eager`"
    if backend.compile_backend:
        compiler = f"`{backend.compile_backend}`"
    fields = {
        "priority": str(backend.priority),
        "docs": f"<{backend.url}>" if backend.url else "",
        "vendor module": code(backend.vendor_imports),
        "requires": code(backend.requires),
        "release must match torch's": code(torch.same_version),
        "torch builds": " or ".join(BUILDS[name] for name in torch.builds),
        "torch device type": device_type(backend) + slot,
        "takes over": f"`torch.{torch.takes_over}`" if torch.takes_over else "",
        "defers while this module is imported": code(torch.taken_over_by),
        "communication backend": communication(backend),
        "compile backend": compiler,
        "platforms": code(hardware.platforms),
        "device nodes": code(hardware.nodes),
        "device nodes shared with other vendors": code(hardware.shared_nodes),
        "PCI ids": ", ".join(map(pci, hardware.pci_ids)),
        "request": requests(backend),
        "visible devices": visible_devices(backend),
        "visible devices, filtered before": code(backend.visibility.filters),
        "forwarded to other nodes": code(backend.environment.forward, "*"),
        "set by `activate()` and `accel run`": code(backend.environment.defaults),
    }
    return {name: text for name, text in fields.items() if text not in ("", NONE, "``")}


def table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    head = list(head)
    cells = [head, ["---"] * len(head), *lines]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in cells
    )


# ---------------------------------------------------------------------------- notes


class Notes(NamedTuple):
    """A file of notes: its title, the text below the title, and its sections."""

    title: str
    introduction: str
    sections: dict[str, str]

    @property
    def missing(self) -> list[str]:
        """The sections that the file lacks; its title counts as one."""
        missing = [f"## {name}" for name in SECTIONS if name not in self.sections]
        return missing if self.title else ["# a title", *missing]

    def tested_on(self, backend: Backend) -> str:
        """Return the summary of the section "Tested on" for one declaration.

        A page of several kinds of hardware has an item for each, `- AMD GPU: …`; the
        summary of any other page is the first sentence.
        """
        text = self.sections["Tested on"]
        items = re.findall(r"^- (.+?): (.+?)$", text, re.MULTILINE)
        summary = dict(items).get(backend.hardware.name)
        if summary is None:
            first_paragraph = text.partition("\n\n")[0].replace("\n", " ")
            # The space distinguishes the end of a sentence from a version such as 0.2.0.
            summary = first_paragraph.partition(". ")[0]
        return summary.removesuffix(".")


def read_notes(file: Path) -> Notes:
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    before, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, introduction = before.strip().partition("\n")
    sections = {}
    for part in parts:
        name, _, body = part.partition("\n")
        sections[name.strip()] = body.strip()
    if not title.startswith("# "):
        return Notes("", before.strip(), sections)
    return Notes(title.removeprefix("# "), introduction.strip(), sections)


# ---------------------------------------------------------------------------- writing


#: How to get the right torch and the vendor's package, by the page's name.
SETUP = """\
[`accel setup {name}`](../install.md#install-the-right-torch) (in accel-tools) prints the commands that
install the right torch and the vendor's packages on your machine. If the backend cannot be used,
`accel why {name}` shows the reason.
"""
TRAIN = """\
Save this program as `train.py`:

```python
{program}
```

{command}

If the backend that `DS_ACCELERATOR` names cannot be used, [accel raises an
error](../howto/pin.md#one-backend-or-an-error). To start one process per device, use
[`accel run`](../howto/multinode.md)."""
DIFFERENCES = """\
### Known numerical differences

On this device, these operations return wrong results without raising an error:

{items}
"""
DECLARATION = """\
`accel declarations {name}` (in accel-tools) prints all
[fields](../reference/plugin.md#backend) of the backend's declaration as JSON."""
PAGE = """\
<!-- Written by tools/backend_pages.py from the declaration, notes/{name}.md and notes/train.py.
     Edit those, then run `./dev docs --write`. -->

# {title}

{introduction}
"""


def install(family: list[Shipped]) -> str:
    """Return the commands that install the plugin, and how to get the vendor's packages."""
    from accel_core.hardware import vendors

    first = family[0]
    folder = vendors.FOLDERS[first.distribution] or "."
    # The core is in the same command: without it, pip would look for it on PyPI.
    folders = "." if folder == "." else f". {folder}"
    text = f"In a clone of accel's repository, run:\n\n    pip install {folders}\n"
    if first.backend.install_hint:
        text += "\n" + SETUP.format(name=first.page)
    return text


def known_differences(family: list[Shipped]) -> str:
    """List results that differ without an error, each with the check of `accel verify`."""
    known = dict.fromkeys(row for s in family for row in s.backend.known_differences)
    items = [f"- {prose(words)} (check `{check}`)." for check, words in known]
    return DIFFERENCES.format(items="\n".join(items)) if items else ""


def declaration(family: list[Shipped]) -> str:
    """List what each backend declares; after the first backend, only what differs."""
    parts = [DECLARATION.format(name=family[0].backend.name)]
    first = rows(family[0].backend)
    for number, one in enumerate(family):
        declared = rows(one.backend)
        if len(family) > 1:
            parts.append(f"### `{one.backend.name}`: {one.backend.description}")
        if number:
            parts.append(
                "Fields that are not listed have the same values as in the first"
                " declaration."
            )
            declared = {**dict.fromkeys(first, NONE), **declared}
            declared = {k: v for k, v in declared.items() if first.get(k) != v}
        lines = [f"- {field}: {value}" for field, value in declared.items()]
        # A value that is a list begins on the next line.
        parts.append("\n".join(lines).replace(": \n", ":\n"))
    return "\n\n".join(parts)


def page(name: str, family: list[Shipped], notes: Notes, program: str) -> str:
    """Return the page of one family of backends."""
    written = notes.sections
    training = TRAIN.format(program=program.strip(), command=written["Train"])
    texts = {
        "Tested on": [written["Tested on"]],
        "Install": [install(family), written["Install"]],
        "Train": [training],
        "Limits": [written["Limits"], known_differences(family)],
        "Environment variables": [written["Environment variables"]],
        "Detection": [written["Detection"]],
        "Import side effects": [written["Import side effects"]],
        "Declaration": [declaration(family)],
    }
    title, introduction = notes.title, notes.introduction
    parts = [PAGE.format(name=name, title=title, introduction=introduction)]
    for heading, paragraphs in texts.items():
        body = "\n\n".join(text.strip() for text in paragraphs if text.strip())
        parts.append(f"## {heading}\n\n{body}\n")
    return "\n".join(parts)


def all_of_them(all_shipped: list[Shipped], notes: dict[str, Notes]) -> str:
    """Two tables of every backend: one would be wider than the page."""
    links = [f"[`{s.backend.name}`](../backends/{s.page}.md)" for s in all_shipped]
    first = [
        [
            link,
            str(s.backend.priority),
            prose(s.backend.description),
            notes[s.page].tested_on(s.backend),
        ]
        for link, s in zip(links, all_shipped, strict=True)
    ]
    second = [
        [
            link,
            f"`{s.distribution}`",
            ", ".join(
                dict.fromkeys((device_type(s.backend), communication(s.backend)))
            ),
            code(s.backend.vendor_imports),
            code(s.backend.visibility.variables),
        ]
        for link, s in zip(links, all_shipped, strict=True)
    ]
    second_head = (
        "backend",
        "plugin",
        "in torch",
        "vendor module",
        "visible devices",
    )
    return f"""\
{table(("backend", "priority", "description", "tested on"), first)}

The next table shows the plugin of each backend. The column "in torch" contains the device type and the
communication backend. The column "visible devices" contains the environment variables that select devices.

{table(second_head, second)}"""


def texts(
    all_shipped: list[Shipped], root: Path = ROOT
) -> tuple[dict[Path, str], list[str]]:
    """Return the text of each generated file, and the faults of the files that people write."""
    wanted: dict[Path, str] = {}
    faults = []
    families: dict[str, list[Shipped]] = {}
    for each in all_shipped:
        families.setdefault(each.page, []).append(each)
    folder = root / PAGES / "notes"
    program = (folder / PROGRAM).read_text(encoding="utf-8")
    notes = {}
    for name, family in families.items():
        file = folder / f"{name}.md"
        notes[name] = read_notes(file)
        if notes[name].missing:
            missing = ", ".join(notes[name].missing)
            faults.append(f"{file.relative_to(root).as_posix()}: lacks {missing}")
        else:
            text = page(name, family, notes[name], program)
            wanted[root / PAGES / f"{name}.md"] = text
    for file in sorted((root / PAGES).rglob("*.md")):
        if file.stem not in families:
            where = file.relative_to(root).as_posix()
            faults.append(f"{where}: no backend has this name, delete it")
    if faults:
        return wanted, faults
    together = root / TABLE
    before, begin, rest = together.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        tables = all_of_them(all_shipped, notes)
        wanted[together] = f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"
    else:
        faults.append(f"{TABLE}: lacks the lines {BEGIN} and {END}")
    return wanted, faults


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(__doc__, arguments)
    wanted, faults = texts(shipped(), root)
    summary = f"checked {len(wanted)} files against the backends' declarations"
    return settled(wanted, faults, root, summary, check=check)


if __name__ == "__main__":
    raise SystemExit(main())
