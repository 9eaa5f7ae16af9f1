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
from accel_tools.setup.plan import Plan, add_accel_packages
from accel_tools.setup.planning import make_plan

__all__ = [
    "PlannedEnvironment",
    "base_python",
    "describe_running_environment",
    "environment_record",
    "find_conflict",
    "folder_of_running_environment",
    "is_complete",
    "mark_complete",
    "name_for_setup",
    "plan_environments",
    "remove_environment",
    "write_atomically",
    "write_hardware_and_choice_module",
    "write_launchers",
]

#: The next step if the requested hardware is missing from this machine, by the requested name.
_STEPS_FOR_TOOLKIT = {
    "cuda": "pass cuda=VERSION: on a node with the GPU, nvidia-smi shows the version of CUDA",
    "rocm": "pass rocm=VERSION: on a node with the GPU, /opt/rocm/.info/version contains the version",
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


class PlannedEnvironment(NamedTuple):
    """An environment that `accel setup --into` will create, and the packages to install in it."""

    #: The environment's name, such as `"cuda"`, or `"cuda-12.6-torch-2.13.0"` if the versions of the
    #: toolkit and of torch were given.
    name: str
    plan: Plan


def plan_environments(
    requests: Iterable[str], machine: Machine, torch: str = "", driver: str = ""
) -> list[PlannedEnvironment]:
    """Plan an environment for each requested name, such as `cuda`, `rocm=7.2` or `cpu`.

    `torch` and `driver` are versions, or empty strings. Raises `SettingError` if no build of torch is known
    for some of the names. The message lists these names.
    """
    environments, problems = [], []
    without_duplicates = dict.fromkeys(requests)
    for request in without_duplicates:
        name, _, toolkit = request.partition("=")
        # The option --driver does not apply to a request with a version of CUDA.
        driver_for_plan = driver if name == "cuda" and not toolkit else ""
        plan = make_plan(machine, name, torch, driver=driver_for_plan, toolkit=toolkit)
        if plan.why_no_command:
            step = _STEPS_FOR_TOOLKIT.get(name, f"see {plan.url}")
            problems.append(f"{request}: {plan.why_no_command}. Next step: {step}")
        plan = add_accel_packages(plan, is_new_environment=True)
        torch_suffix = f"-torch-{torch}" if torch else ""
        environment_name = request.replace("=", "-") + torch_suffix
        environments.append(PlannedEnvironment(environment_name, plan))
    if problems:
        raise SettingError("\n".join(problems))
    return environments


def base_python() -> str:
    """Return the path of the Python from which the running virtual environment was created.

    Outside of a virtual environment, this is the path of the running Python.
    """
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def find_conflict(folder: Path, requirements: str) -> str:
    """Return why `accel setup --into` cannot add environments to a folder, and the next step.

    Returns an empty string if environments can be added. `requirements` is the text of a requirements file
    with the packages of the new environments.
    """
    if sys.platform != "linux":
        return "accel setup --into works only on Linux, where files show the machine's hardware"
    requirements_file = folder / "requirements.txt"
    if requirements and requirements_file.is_file():
        has_other_packages = requirements_file.read_text("utf-8") != requirements
        if has_other_packages:
            return (
                f"all environments of {folder} must have the packages that {requirements_file} lists, but "
                "different packages were given. Next step: leave the packages out, or create a new folder"
            )
    launcher = folder / "bin" / "python"
    uses_this_python = True
    if launcher.is_file():
        # The launcher contains the path of the Python with which the folder was created.
        python_argument = f" {shlex.quote(base_python())} "
        uses_this_python = python_argument in launcher.read_text("utf-8")
    if not uses_this_python:
        return (
            f"{folder} was created with a different Python than {base_python()}. Next step: use the Python "
            f"that {launcher} starts, or create a new folder"
        )
    return ""


def folder_of_running_environment() -> Path | None:
    """Return the `accel setup --into` folder that contains the running Python's environment.

    Returns `None` if the environment is not in such a folder.
    """
    environment = Path(sys.prefix)
    # The path of an environment is FOLDER/environments/NAME.
    return environment.parent.parent if is_complete(environment) else None


def describe_running_environment() -> str:
    """Describe the running Python's environment: its name, its folder, and why it was chosen.

    An example is `"cuda of /opt/torch: detected NVIDIA GPU (/dev/nvidia0)"`. Returns an empty string if the
    environment is not in a folder of `accel setup --into`.
    """
    folder = folder_of_running_environment()
    if folder is None:
        return ""
    running_name = Path(sys.prefix).name
    try:
        chosen = choice.choose(str(folder), os.environ)
    except LookupError as error:
        return f"{running_name} of {folder}. {error.args[0]}"
    chosen_name = chosen.environment["name"]
    if chosen_name == running_name:
        return f"{running_name} of {folder}: {chosen.reason}"
    return (
        f"{running_name} of {folder}, but {folder}/bin/python would start the environment "
        f"{chosen_name}: {chosen.reason}"
    )


# --- Environments -----------------------------------------------------------------------


def is_complete(path: Path) -> bool:
    """Return whether the environment at `path` was installed completely."""
    return (path / choice.MARK).is_file()


def environment_record(plan: Plan, torch: str, architecture: str) -> dict[str, str]:
    """Return the content of the file `environment.cfg` for an environment with the plan's packages.

    The content is the torch version, and the hardware that this build of torch can use. `torch` is the
    installed version, such as `"2.13.0+cu130"`. `architecture` is the CPU architecture, such as
    `"aarch64"`.
    """
    build = plan.torch_backend
    if plan.backend == "cuda":
        labels = [plan.target]  # The backend cuda drives NVIDIA's and AMD's GPUs.
    else:
        labels = [v.label for v in vendors.VENDORS if v.backend == plan.backend]
    oldest_driver, amd_architectures = "", ""
    if build.startswith("cu"):
        oldest_driver = builds.oldest_driver_for_build(build)
    if build.startswith("rocm"):
        amd_architectures = " ".join(builds.amd_architectures_of(build))
    return {
        "torch": torch,
        "backend": plan.backend,
        "serves": ", ".join(labels),
        "oldest_driver": oldest_driver,
        "gfx": amd_architectures,
        "no_code_for": " ".join(_id_ranges_without_code(plan, architecture)),
    }


def _id_ranges_without_code(plan: Plan, architecture: str) -> list[str]:
    """Return the PCI device id ranges for which the build has no code, such as `["0000-1dff"]`.

    `architecture` is the CPU architecture, such as `"aarch64"`.
    """
    if plan.target == "NVIDIA GPU":
        if architecture == "aarch64":
            return ["0000-207f", "2180-21ff"]  # These GPUs are older than Ampere.
        if builds.lacks_code_for_volta(plan.torch_backend):
            return ["0000-1dff"]  # These GPUs are older than Turing.
        return ["0000-133f"]  # These GPUs are older than Maxwell.
    if plan.backend == "xpu":
        # The first byte of a device id determines the generation of the GPU.
        first_bytes = sorted(INTEL_BEFORE_ARC)
        return [f"{byte:02x}00-{byte:02x}ff" for byte in first_bytes]
    return []


def mark_complete(path: Path, record: Mapping[str, str]) -> None:
    """Mark the environment at `path` as complete by writing two files.

    Python runs the first file, `choice.pth`, when the interpreter starts. The second file,
    `environment.cfg`, contains `record`.
    """
    for site_packages in path.glob("lib/python*/site-packages"):
        (site_packages / "choice.pth").write_text(_START_FILE, "utf-8")
    # This file is written last, because an environment with the file counts as complete.
    write_atomically(path / choice.MARK, _format_block(record))


def _format_block(record: Mapping[str, str]) -> str:
    """Return the lines `key = value` of a record."""
    return "".join(f"{key} = {value}\n" for key, value in record.items())


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file atomically, so that a reader gets either the old text or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary_file = path.with_name(f".{path.name}.{os.getpid()}")
    temporary_file.write_text(text, "utf-8")
    temporary_file.chmod(mode)
    temporary_file.replace(path)


# --- The launchers ----------------------------------------------------------------------


def write_hardware_and_choice_module(folder: Path) -> None:
    """Write the files in `folder/lib`: the module that chooses an environment, and its hardware table.

    The module is also compiled to bytecode.
    """
    blocks = []
    for vendor in sorted(vendors.VENDORS, key=lambda v: RANKED.index(v.label)):
        # Apple's GPUs, which are part of a platform, are not in Linux machines.
        if not vendor.platform:
            blocks.append(_format_block(_hardware_row(vendor)))
    write_atomically(folder / choice.HARDWARE, "\n".join(blocks))
    module = folder / "lib" / "accel_choice.py"
    write_atomically(module, Path(choice.__file__).read_text("utf-8"))
    # The compiled file is not checked against the source's time, so it stays valid if the folder is
    # copied.
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(module), doraise=True, invalidation_mode=unchecked)


def name_for_setup(vendor: vendors.Vendor) -> str:
    """Return the name that users pass to `accel setup` for a vendor's hardware, such as `"rocm"`.

    Returns an empty string if the vendor builds torch itself.
    """
    if vendor.backend == "cuda":
        names = {"NVIDIA GPU": "cuda", "AMD GPU": "rocm"}
        # The backend cuda also drives the GPUs of vendors that build torch themselves.
        return names.get(vendor.label, "")
    return vendor.backend


def _hardware_row(vendor: vendors.Vendor) -> dict[str, str]:
    """Return the row for a vendor's accelerators in the file `lib/hardware.cfg`.

    `accel_choice.py` reads this row. The values of `nodes`, `pci`, `at` and `not` are patterns by which
    that module detects the accelerators.
    """
    excluded: tuple[str, ...] = ()
    if vendor.label == "AMD GPU":
        excluded = vendors.AMD_CONSOLES
    if vendor.label == "Intel discrete GPU":
        excluded = (vendors.INTEL_INTEGRATED,)
    return {
        "label": vendor.label,
        "backend": vendor.backend,
        "setup": name_for_setup(vendor),
        # The module accel_choice detects the vendor's devices by these four patterns.
        "nodes": " ".join(vendor.nodes),
        "pci": " ".join(vendor.pci),
        "at": vendors.INTEL_INTEGRATED if vendor.is_integrated else "",
        "not": " ".join(excluded),
        "integrated": "yes" if vendor.is_integrated else "no",
    }


def write_launchers(folder: Path) -> None:
    """Write launchers to `folder/bin`: one for Python, and one for each script that all environments have.

    Incomplete environments are ignored.
    """
    names_by_environment = []
    for environment in choice.complete_environments(str(folder)):
        paths = Path(environment["path"], "bin").iterdir()
        names = {path.name for path in paths if _needs_launcher(path)}
        names_by_environment.append(names)
    # A launcher starts the program in any of the environments, so all of them must have it.
    common_names = set.intersection(*names_by_environment)
    text = _LAUNCHER.format(python=shlex.quote(base_python()))
    for name in {"python", "python3", *common_names}:
        write_atomically(folder / "bin" / name, text, 0o755)


def _needs_launcher(script: Path) -> bool:
    """Return whether a file in an environment's folder `bin` is a Python script other than pip.

    pip is excluded, because it would change only one of the environments.
    """
    # pip would change only one of the environments. `write_launchers` adds python.
    if script.name.startswith(("pip", "python")) or not os.access(script, os.X_OK):
        return False
    with script.open("rb") as file:
        beginning = file.read(256)
    is_script = beginning.startswith(b"#!")
    return is_script and b"python" in beginning


def remove_environment(path: Path) -> None:
    """Remove the environment at `path`, if it exists."""
    shutil.rmtree(path, ignore_errors=True)
