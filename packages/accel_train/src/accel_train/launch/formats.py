"""Variables for ranks, in the formats of Ray, Slurm and Docker, and for Transformers' tests.

The formats for DeepSpeed and for a shell are in `environment`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from glob import glob

from accel_core import Backend
from accel_core.errors import LaunchError
from accel_train.launch.environment import SEARCH_PATHS, for_shell, text_of

__all__ = [
    "as_docker",
    "as_ray",
    "as_slurm",
    "as_transformers_spec",
    "container_flags",
    "written",
]

#: Search paths that a form leaves out: an image has its own, `--export=ALL` has every variable, and
#: DeepSpeed's launcher asks the accelerator. Their forms could not hold each: Windows' folders have spaces.
_LEFT_OUT = {
    "docker": (*SEARCH_PATHS, "PYTHONHOME", "PYTHONPATH"), "slurm": SEARCH_PATHS, "deepspeed": SEARCH_PATHS,
}  # fmt: skip


def written(form: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a form writes."""
    left_out = _LEFT_OUT.get(form, ())
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith(left_out)
    }


def as_ray(variables: Mapping[str, str]) -> str:
    """Return one JSON object for `ray.init(runtime_env=...)`, and for jobs that are submitted.

    Raises `LaunchError` for values that Ray would change: Ray (2.60.0, `_private/utils.py:1674`) replaces
    `$NAME` and `${NAME}` in each value, has no way to quote them, and accepts text only.
    """
    _refuse(
        variables,
        lambda value: text_of(value) is None or re.search(r"\$(\w|\{)", value),
        "Ray replaces $NAME in values, and accepts UTF-8 only",
    )
    return json.dumps({"env_vars": dict(variables)}, indent=2)


def as_slurm(variables: Mapping[str, str]) -> str:
    """Return a `#SBATCH` line for a batch script; its option also works for `sbatch` and `srun`.

    Raises `LaunchError` for values that need quotes: scripts and `--export` treat quotes differently, and so
    do releases of Slurm.
    """
    _refuse(
        variables,
        lambda value: not re.fullmatch(r"[\w%+./:=@-]*", value, re.ASCII),
        "Slurm's --export accepts no spaces, commas, quotes and the like in values",
    )
    return "#SBATCH --export=" + ",".join(
        ["ALL", *(f"{name}={value}" for name, value in variables.items())]
    )


def as_docker(variables: Mapping[str, str], backend: Backend) -> str:
    """Return options of `docker run`, quoted for a shell: the backend's devices and the variables."""
    words = [f"-e {name}={for_shell(v)}" for name, v in variables.items()]
    return " ".join([*map(shlex.quote, container_flags(backend)), *words])


def container_flags(backend: Backend) -> list[str]:
    """Return the options of `docker run` that give a container the devices, from the declaration.

    The declaration's options name one device; here they name all devices of this host.
    """
    flags: list[str] = []
    for word in shlex.split(backend.request.docker):
        pattern = next((p for p in backend.hardware.nodes if fnmatch(word, p)), "")
        nodes = sorted(glob(pattern)) if flags[-1:] == ["--device"] else []
        flags += nodes[:1] or [word]
        for other in nodes[1:]:
            flags += ["--device", other]
    return flags


def as_transformers_spec(name: str) -> str:
    """Return the text of a Python file for `TRANSFORMERS_TEST_DEVICE_SPEC`, which Transformers' tests import.

    They read `DEVICE_NAME` and three functions (5.23.0, `testing_utils.py:3545-3596`).
    """
    return f'''\
"""The accelerator {name!r} for the tests of Transformers.

Run them in the folder of this file: TRANSFORMERS_TEST_DEVICE_SPEC=NAME_OF_THIS_FILE.py pytest ...
"""

import accel_core

_accelerator = accel_core.accelerator({name!r})

DEVICE_NAME = _accelerator.device_type
MANUAL_SEED_FN = _accelerator.manual_seed
EMPTY_CACHE_FN = _accelerator.empty_cache
DEVICE_COUNT_FN = _accelerator.device_count'''


def _refuse(
    variables: Mapping[str, str], is_faulty: Callable[[str], object], why: str
) -> None:
    faulty = sorted(name for name, value in variables.items() if is_faulty(value))
    if faulty:
        raise LaunchError(
            f"{', '.join(faulty)}: {why}. Unset it, or use --format shell."
        )
