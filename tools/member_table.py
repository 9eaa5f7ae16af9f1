"""Write docs/evidence/members-by-backend.md: which code implements each member on each backend.

Read from the plugins' classes, accel-core's table of bindings and the vendors' surfaces; no vendor's package
is needed.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from generated import settled, wants_check

from accel_core import Accelerator, Backend, TorchAccelerator
from accel_core.interface.torch_device import FORWARDED, STREAM_MEMBERS
from accel_core.plugins import declared_backends, hooks_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from accel_tests import surfaces  # noqa: E402

PAGE = "docs/evidence/members-by-backend.md"
#: Members of which a method of `TorchAccelerator` asks the vendor, under that name.
ASKED = dict.fromkeys(("Event", "Stream", "set_per_process_memory_fraction"), "")
ASKED |= dict.fromkeys(
    ("is_bf16_supported", "is_fp16_supported", "is_fp8_supported", "set_rng_state"), ""
)
ASKED |= {"memory_stats": "memory_stats", "mem_get_info": "get_memory_info"}
ASKED |= {"empty_host_cache": "empty_host_cache"}
#: The columns of the page, by what `serving` returns.
COLUMNS = {
    "vendor": "vendor's function",
    "torch": "torch.accelerator",
    "plugin": "plugin",
    "default": "accel's default",
}
HEAD = """# Members by backend

This table shows which code implements each member of the accelerator on each backend, if the vendor's
package has every function of the recorded release.

- **vendor's function**: the function of that name in `torch.<device_type>`
- **torch.accelerator**: torch's function, if the vendor's module does not have one
- **plugin**: an override in the plugin's class
- **accel's default**: built on other members; raises `UnsupportedError` if the device does not support it

"""


def serving(backend: Backend) -> dict[str, str]:
    """Return what implements each member of `backend`: a key of `COLUMNS`."""
    module, _, name = (backend.accelerator or "accel_core:TorchAccelerator").partition(
        ":"
    )
    kind = getattr(importlib.import_module(module), name)
    own = {
        each
        for base in kind.__mro__[: kind.__mro__.index(TorchAccelerator)]
        for each in vars(base)
    }
    own |= {"is_fp16_supported"} if kind._has_fp16_on_every_device else set()
    own |= {"range_push", "range_pop"} if kind._range_module else set()
    surface = surfaces.for_backend(backend)
    vendors = surface.modules[f"torch.{backend.device_type}"] if surface else {}
    # torch.accelerator's streams are no use beside a device without them.
    streams = "Stream" in vendors
    bound = ASKED | {
        name: torchs if streams or name not in STREAM_MEMBERS else ""
        for name, torchs in FORWARDED.items()
    }

    def who(member: str) -> str:
        if member in own:
            return "plugin"
        if member in bound and member in vendors:
            return "vendor"
        return "torch" if bound.get(member) else "default"

    return {
        member: who(member) for member in dir(Accelerator) if not member.startswith("_")
    }


def reports() -> list[dict[str, Any]]:
    """Return what implements each member on each backend of the plugins, highest priority first."""
    projects = sorted(ROOT.glob("plugins/accel_*/pyproject.toml"))
    # A distribution that declares no backend has nothing to ask.
    names = [
        p.parent.name
        for p in projects
        if '"accel.backends"' in p.read_text(encoding="utf-8")
    ]
    backends = [
        backend
        for name in names
        for backend in declared_backends(hooks_of(importlib.import_module(name)))
    ]
    found = [
        {"backend": b.name, "priority": b.priority, "serves": serving(b)}
        for b in backends
    ]
    return sorted(found, key=lambda report: (-report["priority"], report["backend"]))


def by_column_name(found: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Return what implements each member, by backend; a second declaration that differs has its own name."""
    columns: dict[str, dict[str, str]] = {}
    for report in found:
        name, serves = report["backend"], report["serves"]
        if name in columns and columns[name] != serves:
            name = f"{name} ({report['priority']})"
        columns[name] = serves
    return columns


def row(member: str, columns: dict[str, dict[str, str]]) -> str:
    """Return the line of a member: under each column, the backends."""
    cells = []
    for source in COLUMNS:
        names = [name for name, serves in columns.items() if serves[member] == source]
        if len(names) == len(columns):
            cells.append("all")
        elif len(names) > len(columns) / 2:
            cells.append("all others")
        else:
            cells.append(", ".join(names))
    return f"| `{member}` | " + " | ".join(cells) + " |"


def page(found: list[dict[str, Any]]) -> str:
    """Return the page: a table of what differs between backends, and a list of what does not."""
    columns = by_column_name(found)
    members = sorted(
        set().union(*columns.values()), key=lambda name: (name.lower(), name)
    )
    same = [
        member
        for member in members
        if all(serves[member] == "default" for serves in columns.values())
    ]
    lines = [
        "| member | " + " | ".join(COLUMNS.values()) + " |",
        "|---|" + "---|" * len(COLUMNS),
        *(row(member, columns) for member in members if member not in same),
        "",
        "accel's default implements these members on every backend: "
        + ", ".join(f"`{member}`" for member in same)
        + ".",
    ]
    return HEAD + "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(__doc__, arguments)
    said = f"{PAGE} lists every member"
    return settled({root / PAGE: page(reports())}, [], root, said, check=check)


if __name__ == "__main__":
    raise SystemExit(main())
