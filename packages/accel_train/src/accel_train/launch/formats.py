"""Forms in which other launchers take the variables that ranks need: Ray, Slurm, Docker; Transformers' tests.

DeepSpeed's file and a shell's lines are in `environment`.
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
from accel_train.launch.environment import for_shell, text_of

__all__ = ["as_docker", "as_ray", "as_slurm", "as_transformers_spec", "container_flags"]

#: Search paths of this host, which an image has its own of.
_OF_THE_HOST = ("LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH")


def as_ray(variables: Mapping[str, str]) -> str:
    """One JSON object for `ray.init(runtime_env=...)`, and for jobs that are submitted.

    Raises `LaunchError` for values that would arrive altered: Ray (2.60.0, `_private/utils.py:1674`) replaces
    `$NAME` and `${NAME}` in each, without a way to quote them, and takes text alone.
    """
    _refuse(
        variables,
        lambda value: text_of(value) is None or re.search(r"\$(\w|\{)", value),
        "Ray replaces $NAME in values, and takes no bytes that are not UTF-8",
    )
    return json.dumps({"env_vars": dict(variables)}, indent=2)


def as_slurm(variables: Mapping[str, str]) -> str:
    """A line for the head of a batch script; `sbatch` and `srun` take the option behind `#SBATCH` too.

    Raises `LaunchError` for values that need quotes: a line of a script and `--export` treat them
    differently, from one release of Slurm to another too.
    """
    _refuse(
        variables,
        lambda value: not re.fullmatch(r"[\w%+./:=@-]*", value, re.ASCII),
        "--export of Slurm holds words without spaces, commas, quotes and the like",
    )
    return "#SBATCH --export=" + ",".join(["ALL", *(f"{name}={value}" for name, value in variables.items())])


def as_docker(variables: Mapping[str, str], backend: Backend) -> str:
    """Options of `docker run` as a shell's words: the devices, as the declaration knows them, and variables.

    Search paths stay out, as the image has its own.
    """
    words = [f"-e {name}={for_shell(v)}" for name, v in variables.items() if name not in _OF_THE_HOST]
    return " ".join([*map(shlex.quote, container_flags(backend)), *words])


def container_flags(backend: Backend) -> list[str]:
    """The options of `docker run` by which a container gets the devices, from the declaration.

    It names one device; all those of this host stand in its place.
    """
    flags: list[str] = []
    for word in shlex.split(backend.granted.docker):
        pattern = next((p for p in backend.hardware.nodes if fnmatch(word, p)), "")
        nodes = sorted(glob(pattern)) if flags[-1:] == ["--device"] else []
        flags += nodes[:1] or [word]
        for other in nodes[1:]:
            flags += ["--device", other]
    return flags


def as_transformers_spec(name: str) -> str:
    """A Python file for `TRANSFORMERS_TEST_DEVICE_SPEC`, which Transformers' tests import by its bare name.

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


def _refuse(variables: Mapping[str, str], is_faulty: Callable[[str], object], why: str) -> None:
    faulty = sorted(name for name, value in variables.items() if is_faulty(value))
    if faulty:
        raise LaunchError(f"{', '.join(faulty)}: {why}. Unset it, or use --format shell.")
