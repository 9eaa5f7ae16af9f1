"""Write docs/pictures: `accel list` and `accel why npu` on a simulated machine, and the ranking there.

The machine is simulated (eight device nodes of Ascend NPUs, a `torch_npu` whose library is missing, a device
"acme" with a plugin of its own); the commands are the real ones. Run it where the plugins are installed:
`.nox/docs/bin/python lab/pictures.py`.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/pictures/accel.svg"
RANKING = ROOT / "docs/pictures/ranking.svg"
COLOURS = {
    "usable": "#2e7d32",
    "not_installed": "#b0bec5",
    "no_device": "#90a4ae",
    "not_probed": "#cfd8dc",
}
WIDTH = 84
COMMANDS = ("accel list", "accel why npu")
#: Read by every Python below: the folders of the machine are made up, what reads them is not.
MACHINE = """
from accel_core.hardware import bus
_real = bus.device_nodes
def _nodes(patterns, root="/"):
    made_up = tuple(f"/dev/davinci{n}" for n in range(8)) if any("davinci" in p for p in patterns) else ()
    return made_up or _real(patterns, root)
bus.device_nodes = _nodes
"""
VENDOR = """
raise OSError("libhccl.so: cannot open shared object file: No such file or directory")
"""
DEVICE = """
import types, torch
torch.acme = types.SimpleNamespace(device_count=lambda: 2, current_device=lambda: 0)
"""
PLUGIN = """
from accel_core import Backend, hookimpl

@hookimpl
def accel_backends():
    return Backend(name="acme", priority=150, device_type="acme", vendor_import="torch_acme",
                   description="the Acme 100")
"""
DISTRIBUTIONS = {
    "torch_npu-2.13.0": "Name: torch-npu\nVersion: 2.13.0\n",
    "accel_acme-1.0": "Name: accel-acme\nVersion: 1.0\n",
}


def machine(folder: Path) -> dict[str, str]:
    """The environment of a process on the simulated machine, whose packages are written into `folder`."""
    for name, text in {
        "sitecustomize": MACHINE, "torch_npu": VENDOR, "torch_acme": DEVICE, "accel_acme": PLUGIN,
    }.items():  # fmt: skip
        (folder / f"{name}.py").write_text(text)
    for name, text in DISTRIBUTIONS.items():
        info = folder / f"{name}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\n{text}")
    (folder / "accel_acme-1.0.dist-info/entry_points.txt").write_text(
        "[accel.backends]\nacme = accel_acme\n"
    )
    scripts = str(Path(sys.executable).parent)
    return {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ACCEL_", "DS_"))
        },
        "PATH": os.pathsep.join((scripts, os.environ["PATH"])),
        "PYTHONPATH": str(folder),
        "FORCE_COLOR": "1",
        "COLUMNS": str(WIDTH),
    }


def ranking(backends: list[dict[str, Any]]) -> str:
    """The order in which backends are asked, as an SVG: a bar for each priority, coloured by its verdict."""
    row, left, scale = 26, 150, 0.42
    height = row * len(backends) + 40
    note = "Asked from top to bottom; the bar is the priority. A simulated machine."
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" font-family="sans-serif">',
        "<title>The ranking on a simulated machine</title>",
        f'<rect width="900" height="{height}" rx="8" fill="#ffffff"/>',
        f'<g font-size="14"><text x="20" y="24" fill="#444" font-size="13">{note}</text>',
    ]
    for place, backend in enumerate(backends):
        top = 36 + row * place
        colour = COLOURS.get(backend["status"], "#c44e52")
        weight = ' font-weight="700"' if backend["marked"] else ""
        told = f"{backend['priority']}, {backend['status'].replace('_', ' ')}"
        told += ": chosen" if backend["marked"] else ""
        width = max(3, backend["priority"] * scale)
        parts += [
            f'<text x="20" y="{top + 16}"{weight}>{backend["name"]}</text>',
            f'<rect x="{left}" y="{top + 3}" width="{width:g}" height="18" rx="3" fill="{colour}"/>',
            f'<text x="{left + width + 8:g}" y="{top + 16}" fill="#444">{told}</text>',
        ]
    return "\n".join([*parts, "</g></svg>"]) + "\n"


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        environ = machine(Path(folder))
        for command in COMMANDS:
            done = subprocess.run(
                command.split(),
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text.from_ansi(done.stdout))
        told = subprocess.run(
            ["accel", "list", "--json"], env=environ, capture_output=True, check=True
        )
        RANKING.write_text(
            ranking(json.loads(told.stdout)["backends"]), encoding="utf-8"
        )
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    svg = console.export_svg(title="a simulated machine", unique_id="accel")
    # The font is the reader's: rich would fetch one from the network.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    PICTURE.write_text(svg, encoding="utf-8")
    print(PICTURE.relative_to(ROOT), RANKING.relative_to(ROOT))


if __name__ == "__main__":
    main()
