"""Where the sessions' torch comes from: what `accel setup` answers for this machine; and its size.

`accel_tools.setup` runs from the source tree, with neither torch nor an installed distribution of ours.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
for _source in ("src", "packages/accel_tools/src"):
    sys.path.append(str(ROOT / _source))

from accel_tools.setup import builds, machines, planning  # noqa: E402 - found by the lines above

#: Stands for the name of a build, `cpu` or `cu130`, in the address of an index.
BUILD = "{build}"
#: Seconds within which the index must answer.
PATIENCE = 5.0


class Source(NamedTuple):
    """Where torch comes from."""

    #: The address of an index; empty for what pip is configured with.
    index: str
    #: For people: `"the build cpu from https://download.pytorch.org/whl/cpu"`.
    why: str
    #: Whether the right build's index does not answer.
    is_second_best: bool = False


def source(
    torch: str, on_disk: str = "", machine: machines.Machine | None = None
) -> Source:
    """Choose where that version of torch comes from.

    `on_disk`: the version that lies in a folder which pip is configured with, `"2.13.0+cpu"`, or empty.
    `DEV_TORCH_INDEX`: an index to take it from; with `{build}` in its address, a mirror of all of PyTorch's.
    """
    named = os.environ.get("DEV_TORCH_INDEX", "")
    if named and BUILD not in named:
        return Source(named, f"from {named}, as DEV_TORCH_INDEX says")
    machine = machine or machines.here()
    plan = planning.make_plan(machine, torch=torch)
    but = ""
    if plan.why_no_command:
        but = f", as none for the {plan.target} is known to fit: {plan.why_no_command}"
        plan = planning.make_plan(machine, "cpu", torch)
    build = plan.torch_backend
    of_build = f"the build for the {plan.target}{but}"
    if not build:
        return Source("", f"{of_build}, from where pip takes packages")
    if on_disk == f"{torch}+{build}":
        return Source("", f"{of_build}, from a wheel on this disk")
    index = (named or builds.index_url(BUILD)).replace(BUILD, build)
    if trouble := silence(f"{index}/torch/"):
        why = f"from where pip takes packages; {of_build} is at {index}, which does not answer: {trouble}"
        return Source("", why, is_second_best=True)
    return Source(index, f"{of_build}, from {index}")


def options(source: Source, *, with_uv: bool) -> list[str]:
    """Return the option that makes uv or pip take torch, and what torch needs, from its index alone.

    Beside PyPI, either could bring any name in a higher version.
    """
    return (
        ["--default-index" if with_uv else "--index-url", source.index]
        if source.index
        else []
    )


def silence(address: str) -> str:
    """Return why an address does not answer within `PATIENCE`; empty if it does."""
    trouble = [f"nothing came in {PATIENCE:.0f} s"]

    def ask() -> None:
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE):
                trouble[0] = ""
        except (OSError, ValueError) as error:
            trouble[0] = str(getattr(error, "reason", error))

    asking = threading.Thread(
        target=ask, daemon=True
    )  # looking up a name has no timeout of its own
    asking.start()
    asking.join(PATIENCE)
    return trouble[0]


def on_disk(uv: str, torch: str) -> str:
    """Return the version of torch that uv finds without any index, `"2.13.0+cpu"`; empty if there is none."""
    return re.sub(
        "^torch==",
        "",
        _compiled(uv, f"torch=={torch}", "--no-deps", "--no-index").strip(),
    )


def weight(uv: str, requirements: Sequence[str], constraints: Path) -> str:
    """Return a sentence on what the index has to send for these requirements."""
    options = ("--constraints", str(constraints), "--format", "pylock.toml")
    lock = _compiled(uv, "\n".join(requirements), *options)
    sizes = re.findall(r"(?m)^wheels = \[\s*\{[^}]*?\bsize = (\d+)", lock)
    if not sizes:
        return (
            "to download: nobody can say how much; PyPI's torch for Linux is about 3 GB"
        )
    size = sum(map(int, sizes)) / 1e9
    return f"to download: {size:.1f} GB. From another index: export DEV_TORCH_INDEX=ADDRESS"


def _compiled(uv: str, requirements: str, *options: str) -> str:
    command = [
        uv,
        "pip",
        "compile",
        "-",
        "--quiet",
        "--no-header",
        "--no-annotate",
        *options,
    ]
    command += ["--python", sys.executable]
    done = subprocess.run(
        command, input=requirements, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""
