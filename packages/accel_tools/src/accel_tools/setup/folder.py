"""Read and write a folder with one environment per build of torch.

`FOLDER/environments/NAME` is an environment, and `FOLDER/environments/NAME.lock` lists its packages. The file
`environment.cfg` in the environment shows that it is complete. `FOLDER/bin` has a launcher for each program.
`FOLDER/lib` has the module that chooses an environment, and the table of accelerators that it reads.
"""

from __future__ import annotations

import os
import py_compile
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from accel_core.errors import SettingError
from accel_core.hardware import vendors
from accel_tools.setup import builds, choice
from accel_tools.setup.hardware import INTEL_BEFORE_ARC, RANKED
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Plan, for_installation
from accel_tools.setup.planning import planned

__all__ = [
    "Wanted",
    "base_python",
    "describe_running_environment",
    "is_whole",
    "mark",
    "mark_of",
    "own_folder",
    "problem",
    "remove",
    "wanted",
    "write_atomically",
    "write_hardware",
    "write_launchers",
]

#: How to give the version of a toolkit for hardware that this machine does not have.
_TOOLKITS = {
    "cuda": "name it cuda=VERSION, with the version of CUDA that nvidia-smi shows on a node that has the GPU",
    "rocm": "name it rocm=VERSION, with the version in /opt/rocm/.info/version on a node that has the GPU",
}
_LAUNCHER = """\
#!/bin/sh
# Written by `accel setup --into`: starts this program in the environment that fits this machine.
self=$0
if [ -L "$self" ]; then self=$(readlink -f -- "$self"); fi
if [ ! -x {python} ]; then
    echo "Error: $self was made with the Python at "{python}", which this machine lacks. Next step:" \\
        "install that Python, or make the folder with a Python that every machine has." >&2
    exit 127
fi
exec {python} -I -S -c 'import sys
sys.path.insert(0, sys.argv[1].rpartition("/")[0] + "/../lib")
import accel_choice
accel_choice.main()' "$self" "$@"
"""
#: `site` runs this line when an environment's Python starts.
_START_FILE = "import accel_tools.setup.at_start as a; a.begin()\n"


class Wanted(NamedTuple):
    """An environment to make."""

    #: The environment's name, such as `"cuda"`, or `"cuda-12.6-torch-2.13.0"` if the versions of the
    #: toolkit and of torch were given.
    name: str
    plan: Plan


def wanted(
    names: Iterable[str], machine: Machine, torch: str = "", driver: str = ""
) -> list[Wanted]:
    """Return the environments to make for names such as `cuda`, `rocm=7.2` and `cpu`.

    `torch` and `driver` are versions, or empty strings. Raises `SettingError`, whose message lists
    each name for which no build is known.
    """
    found, problems = [], []
    for given in dict.fromkeys(names):
        name, _, toolkit = given.partition("=")
        with_driver = driver if name == "cuda" and not toolkit else ""
        plan = planned(machine, name, torch, driver=with_driver, toolkit=toolkit)
        if plan.unknown:
            step = _TOOLKITS.get(name, f"see {plan.url}")
            problems.append(f"{given}: {plan.unknown}. Next step: {step}")
        plan = for_installation(plan, is_new=True)
        release = f"-torch-{torch}" if torch else ""
        found.append(Wanted(given.replace("=", "-") + release, plan))
    if problems:
        raise SettingError("\n".join(problems))
    return found


def base_python() -> str:
    """Return the path of the Python that made the running environment, such as `"/usr/bin/python3.11"`."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def problem(folder: Path, requirements: str) -> str:
    """Return why environments with the packages `requirements` cannot be added to the folder.

    The string is empty if environments can be added.
    """
    if sys.platform != "linux":
        return "accel setup --into works only on Linux, where files show the machine's hardware"
    kept = folder / "requirements.txt"
    if kept.is_file() and requirements and kept.read_text("utf-8") != requirements:
        return (
            f"all environments of {folder} must have the same packages, which {kept} lists, but different "
            "packages were given. Next step: leave the packages out, or make a new folder"
        )
    launcher = folder / "bin" / "python"
    if (
        launcher.is_file()
        and f" {shlex.quote(base_python())} " not in launcher.read_text("utf-8")
    ):
        return (
            f"{folder} was made with a Python other than {base_python()}: {launcher} contains its path. "
            "Next step: run accel with that Python, or make a new folder"
        )
    return ""


def own_folder() -> Path | None:
    """Return the folder that contains the running environment.

    Returns `None` if the running Python's environment is not in a folder of `accel setup --into`.
    """
    place = Path(sys.prefix)
    return place.parent.parent if is_whole(place) else None


def describe_running_environment() -> str:
    """Describe the running environment of a folder, and why it is chosen, as a sentence.

    The string is empty if the running Python's environment is not in a folder of
    `accel setup --into`.
    """
    into = own_folder()
    if into is None:
        return ""
    running = Path(sys.prefix).name
    try:
        chosen = choice.choose(str(into), os.environ)
    except LookupError as error:
        return f"{running} of {into}. {error.args[0]}"
    name = chosen.environment["name"]
    if name == running:
        return f"{running} of {into}: {chosen.reason}"
    return f"{running} of {into}; {into}/bin/python would take {name}: {chosen.reason}"


# --- Environments -----------------------------------------------------------------------


def is_whole(path: Path) -> bool:
    """Return whether the environment at `path` was installed completely."""
    return (path / choice.MARK).is_file()


def mark_of(plan: Plan, torch: str, architecture: str) -> dict[str, str]:
    """Return the content of an environment's file `environment.cfg`.

    It has the version of torch and the hardware for which the build is. `torch` is the installed
    version, such as `"2.13.0+cu130"`.
    """
    build = plan.torch_backend
    labels = [v.label for v in vendors.VENDORS if v.backend == plan.backend]
    if plan.backend == "cuda":
        labels = [plan.target]  # The backend `cuda` drives AMD GPUs too.
    is_cuda, is_rocm = build.startswith("cu"), build.startswith("rocm")
    return {
        "torch": torch,
        "backend": plan.backend,
        "serves": ", ".join(labels),
        "oldest_driver": builds.oldest_driver_of(build) if is_cuda else "",
        "gfx": " ".join(builds.gpus_of(build)) if is_rocm else "",
        "no_code_for": " ".join(_without_code(plan, architecture)),
    }


def _without_code(plan: Plan, architecture: str) -> list[str]:
    """Return the ranges of PCI device ids for which the build has no code, such as `["0000-1dff"]`."""
    if plan.target == "NVIDIA GPU":
        if architecture == "aarch64":
            return ["0000-207f", "2180-21ff"]  # These GPUs are older than Ampere.
        return ["0000-1dff" if builds.lacks_volta(plan.torch_backend) else "0000-133f"]
    if plan.backend == "xpu":
        return [f"{byte:02x}00-{byte:02x}ff" for byte in sorted(INTEL_BEFORE_ARC)]
    return []


def mark(path: Path, record: Mapping[str, str]) -> None:
    """Write an environment's start file, and then the file that marks the environment as complete."""
    for site in path.glob("lib/python*/site-packages"):
        (site / "choice.pth").write_text(_START_FILE, "utf-8")
    write_atomically(path / choice.MARK, _block(record))


def _block(record: Mapping[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in record.items())


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that a process that reads it gets either the old text or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, "utf-8")
    part.chmod(mode)
    part.replace(path)


# --- The launchers ----------------------------------------------------------------------


def write_hardware(folder: Path) -> None:
    """Write the module that chooses an environment, compiled, and its table of accelerators."""
    library = folder / "lib"
    ranked = sorted(vendors.VENDORS, key=lambda vendor: RANKED.index(vendor.label))
    rows = [_block(_row(vendor)) for vendor in ranked if not vendor.platform]
    write_atomically(folder / choice.HARDWARE, "\n".join(rows))
    module = library / "accel_choice.py"
    write_atomically(module, Path(choice.__file__).read_text("utf-8"))
    # The compiled file is not checked against the source's time, so it stays valid if the folder is
    # copied.
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(module), doraise=True, invalidation_mode=unchecked)


def _row(vendor: vendors.Vendor) -> dict[str, str]:
    setup = "" if vendor.backend == "cuda" else vendor.backend
    others: tuple[str, ...] = ()
    if vendor.label == "AMD GPU":
        others = vendors.AMD_CONSOLES
    if vendor.label == "Intel discrete GPU":
        others = (vendors.INTEL_INTEGRATED,)
    return {
        "label": vendor.label,
        "backend": vendor.backend,
        "setup": {"NVIDIA GPU": "cuda", "AMD GPU": "rocm"}.get(vendor.label, setup),
        "nodes": " ".join(vendor.nodes),
        "pci": " ".join(vendor.pci),
        "at": vendors.INTEL_INTEGRATED if vendor.is_integrated else "",
        "not": " ".join(others),
        "integrated": "yes" if vendor.is_integrated else "no",
    }


def write_launchers(folder: Path) -> None:
    """Write `bin/python`, and a launcher for each program that all complete environments have."""
    programs = []
    for record in choice.environments(str(folder)):
        scripts = Path(record["path"], "bin").iterdir()
        programs.append({script.name for script in scripts if _is_program(script)})
    text = _LAUNCHER.format(python=shlex.quote(base_python()))
    for name in {"python", "python3", *set.intersection(*programs)}:
        write_atomically(folder / "bin" / name, text, 0o755)


def _is_program(script: Path) -> bool:
    """Return whether a program is a Python script other than pip.

    pip is excluded, because it would change only one of the environments.
    """
    if script.name.startswith(("pip", "python")) or not os.access(script, os.X_OK):
        return False
    with script.open("rb") as file:
        start = file.read(256)
    return start.startswith(b"#!") and b"python" in start


def remove(path: Path) -> None:
    """Remove an incomplete environment."""
    shutil.rmtree(path, ignore_errors=True)
