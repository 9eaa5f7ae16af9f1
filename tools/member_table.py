"""Write docs/reference/members-by-backend.md: who serves each member on which backend.

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

PAGE = "docs/reference/members-by-backend.md"
#: Members of which a method of `TorchAccelerator` asks the vendor, under that name.
ASKED = dict.fromkeys(("Event", "Stream", "set_per_process_memory_fraction"), "")
ASKED |= dict.fromkeys(
    ("is_bf16_supported", "is_fp16_supported", "is_fp8_supported", "set_rng_state"), ""
)
ASKED |= {"memory_stats": "memory_stats", "mem_get_info": "get_memory_info"}
ASKED |= {"empty_host_cache": "empty_host_cache"}
SIGNS = {"plugin": "P", "vendor": "V", "torch": "T", "default": "·"}
HEAD = """# Members by backend

Who serves each member, if the device is there and its vendor's package has everything that its surface
(`surfaces/` of accel-simulated) records: read from the plugin's class, from accel-core's table of bindings
and from the surface.
`tools/member_table.py` writes this page; `./dev docs` compares.

| sign | who |
|---|---|
| V | the vendor's module, `torch.<device_type>`, has a function of that name |
| T | `torch.accelerator`, which stands in where the vendor's module lacks it |
| P | the plugin's class overrides or sets it, and says why |
| · | accel-core's default, built on the other members; `UnsupportedError` if the device has none |

"""


def serving(backend: Backend) -> dict[str, str]:
    """Who serves each member of `backend`."""
    module, _, name = (backend.accelerator or "accel_core:TorchAccelerator").partition(
        ":"
    )
    kind = getattr(importlib.import_module(module), name)
    own = {
        each
        for base in kind.__mro__[: kind.__mro__.index(TorchAccelerator)]
        for each in vars(base)
    }
    own |= {"is_fp16_supported"} if kind._fp16_on_every_device else set()
    own |= {"range_push", "range_pop"} if kind._vendor_ranges else set()
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
    """What serves what on each backend of our plugins, highest priority first."""
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


def page(found: list[dict[str, Any]]) -> str:
    """The page: a table of what differs between backends, and a list of what does not."""
    columns: dict[str, dict[str, str]] = {}
    for (
        report
    ) in found:  # a backend that is declared twice has two columns where they differ
        name = report["backend"]
        if report["serves"] not in (
            columns.get(name),
            columns.get(f"{name} ({report['priority']})"),
        ):
            columns[f"{name} ({report['priority']})" if name in columns else name] = (
                report["serves"]
            )
    members = sorted(
        set().union(*columns.values()), key=lambda name: (name.lower(), name)
    )
    same = [
        member
        for member in members
        if all(serves[member] == "default" for serves in columns.values())
    ]
    lines = [
        "| member | " + " | ".join(columns) + " |",
        "|---|" + ":-:|" * len(columns),
    ]
    lines += [
        f"| `{member}` | "
        + " | ".join(SIGNS[serves[member]] for serves in columns.values())
        + " |"
        for member in members
        if member not in same
    ]
    counts = [
        sum(serve == "default" for serve in serves.values())
        for serves in columns.values()
    ]
    lines += [
        "",
        f"Of {len(members)} members, {min(counts)} to {max(counts)} are accel-core's own, by backend.",
        "",
    ]
    lines += [
        "accel-core's default serves these on every backend: "
        + ", ".join(f"`{m}`" for m in same)
        + "."
    ]
    return HEAD + "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(__doc__, arguments)
    said = f"{PAGE} tells who serves each member"
    return settled({root / PAGE: page(reports())}, [], root, said, check=check)


if __name__ == "__main__":
    raise SystemExit(main())
