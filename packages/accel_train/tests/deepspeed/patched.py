"""Copies of the installed DeepSpeed with a patch of lab/contrib/, which need no `activate()`."""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

CONTRIB = Path(__file__).parents[4] / "lab/contrib"
#: The patches, by what they let DeepSpeed ask.
PATCHES = {
    name: CONTRIB / f"deepspeed-{name.replace(' ', '-')}.patch"
    for name in ("entry points", "native")
}


def copied(patch, folder):
    """Copy DeepSpeed into `folder`, which is empty, and patch it; returns `folder`, for `PYTHONPATH`."""
    found = find_spec(
        "deepspeed"
    )  # imported in children only: it chooses an accelerator
    assert found is not None
    assert found.origin is not None
    shutil.copytree(Path(found.origin).parent, folder / "deepspeed")
    # In DeepSpeed's repository its package is at the top; `deepspeed/accelerator` is a link to it.
    command = ["git", "apply", "--verbose", str(PATCHES[patch])]
    subprocess.run(
        command, cwd=folder / "deepspeed", check=True, capture_output=True, text=True
    )
    return folder


def with_path(environ, *folders):
    """Return the variables of a process that finds packages in these folders first: a copy as DeepSpeed."""
    path = os.pathsep.join(
        filter(None, (*map(str, folders), environ.get("PYTHONPATH")))
    )
    return {**environ, "PYTHONPATH": path}
