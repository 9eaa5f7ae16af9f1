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
#: Of a status, readable on a white and on a black page; others are orange.
COLOURS = {
    "usable": "#2e9d57",
    "not_installed": "#7a7f87",
    "no_device": "#7a7f87",
    "not_probed": "#7a7f87",
}
#: Columns of the terminal: on a phone, more of them could not be read.
WIDTH = 54
#: Each command, and how many lines of its output are shown.
COMMANDS = {"accel list": 9, "accel why npu": 7}
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
    """Draw the backends in the order in which they are probed: priority, name, and status."""
    row = 26
    height = row * (len(backends) + 1) + 12
    columns = {"priority": 60, "backend": 90, "status": 240}
    size = f'viewBox="0 0 420 {height}" width="420" height="{height}"'
    font = 'font-family="system-ui, sans-serif" font-size="14" fill="#7a7f87"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        "<title>Backends in order of priority, on a simulated machine</title>",
        f'<text x="{columns["priority"]}" y="18" text-anchor="end" font-weight="600">priority</text>',
        *(
            f'<text x="{columns[name]}" y="18" font-weight="600">{name}</text>'
            for name in ("backend", "status")
        ),
    ]
    for place, backend in enumerate(backends, start=1):
        bottom = 18 + row * place
        colour = COLOURS.get(backend["status"], "#c25a1c")
        weight = ' font-weight="700"' if backend["marked"] else ""
        status = backend["status"].replace("_", " ")
        if backend["marked"]:
            status += ": chosen"
        parts += [
            f'<text x="{columns["priority"]}" y="{bottom}" text-anchor="end">{backend["priority"]}</text>',
            f'<text x="{columns["backend"]}" y="{bottom}"{weight}>{backend["name"]}</text>',
            f'<circle cx="{columns["status"] - 12}" cy="{bottom - 5}" r="5" fill="{colour}"/>',
            f'<text x="{columns["status"]}" y="{bottom}"{weight} fill="{colour}">{status}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        environ = machine(Path(folder))
        for command, lines in COMMANDS.items():
            done = subprocess.run(
                command.split(),
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
            console.print(Text(f"$ {command}", style="bold"))
            shown = done.stdout.replace(folder, "/…").splitlines()[:lines]
            console.print(
                Text.from_ansi("\n".join([*shown, ""])),
                overflow="ellipsis",
                no_wrap=True,
            )
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
