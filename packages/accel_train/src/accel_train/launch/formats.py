"""Format the ranks' environment variables for Ray, Slurm and Docker, and a device for Transformers' tests.

The formats of DeepSpeed and of a shell are in `environment`.
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
from accel_train.launch.environment import SEARCH_PATHS, is_utf8, quote_for_shell

__all__ = [
    "as_docker",
    "as_ray",
    "as_slurm",
    "as_transformers_spec",
    "container_flags",
    "variables_in_format",
]

#: The prefixes of variables that a format leaves out. A container image has search paths of its own, Slurm's
#: `--export=ALL` includes every variable, and DeepSpeed's launcher gets these prefixes from the accelerator.
#: A path may also have characters that the format cannot represent, such as the spaces in Windows' paths.
_EXCLUDED_PREFIXES = {
    "docker": (*SEARCH_PATHS, "PYTHONHOME", "PYTHONPATH"),
    "slurm": SEARCH_PATHS,
    "deepspeed": SEARCH_PATHS,
}


def variables_in_format(
    output_format: str, variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables that a format (such as `"docker"`) passes to ranks."""
    excluded_prefixes = _EXCLUDED_PREFIXES.get(output_format, ())
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith(excluded_prefixes)
    }


def as_ray(variables: Mapping[str, str]) -> str:
    """Format the variables as a JSON object for Ray.

    The object suits `ray.init(runtime_env=...)` and `ray job submit --runtime-env-json`. Raises `LaunchError`
    if Ray would change a value. Ray (2.60.0, `_private/utils.py:1674`) replaces `$NAME` and `${NAME}` in each
    value, provides no way to quote them, and accepts only UTF-8 text.
    """
    _check_values(
        variables, _fits_ray, "Ray replaces $NAME in values, and accepts only UTF-8"
    )
    return json.dumps({"env_vars": dict(variables)}, indent=2)


def _fits_ray(value: str) -> bool:
    """Return whether Ray leaves the value unchanged."""
    # Matches the beginning of $NAME and of ${NAME}.
    has_variable = re.search(r"\$(\w|\{)", value) is not None
    return is_utf8(value) and not has_variable


def as_slurm(variables: Mapping[str, str]) -> str:
    """Format the variables as a `#SBATCH` line for a batch script.

    The option in this line also works for `sbatch` and `srun`. Raises `LaunchError` if a value needs quotes,
    because batch scripts, `--export` and different Slurm releases treat quotes differently.
    """
    _check_values(
        variables,
        _fits_slurm,
        "Slurm's --export does not accept spaces, commas, quotes or similar characters in values",
    )
    assignments = [f"{name}={value}" for name, value in variables.items()]
    return "#SBATCH --export=" + ",".join(["ALL", *assignments])


def _fits_slurm(value: str) -> bool:
    """Return whether the value needs no quotes in `--export`."""
    # Matches a value of letters, digits and punctuation that no shell interprets.
    return re.fullmatch(r"[\w%+./:=@-]*", value, re.ASCII) is not None


def as_docker(variables: Mapping[str, str], backend: Backend) -> str:
    """Return options for `docker run`, quoted for a shell: the backend's devices and the variables."""
    devices = [shlex.quote(flag) for flag in container_flags(backend)]
    assignments = [
        f"-e {name}={quote_for_shell(value)}" for name, value in variables.items()
    ]
    return " ".join([*devices, *assignments])


def container_flags(backend: Backend) -> list[str]:
    """Return the declared `docker run` options that give a container access to the backend's devices.

    Each `--device` option in the declaration names one device node. The result has a `--device` option for
    each node on this host that matches the same pattern in `backend.hardware.nodes`. If there is no such
    node, the result has the declared option.
    """
    flags: list[str] = []
    previous_word = ""
    for word in shlex.split(backend.request.docker):
        nodes: list[str] = []
        if previous_word == "--device":
            nodes = _matching_device_nodes(word, backend)
        if nodes:
            # The first node follows the `--device` that is in the list already.
            first_node, *other_nodes = nodes
            flags.append(first_node)
            for node in other_nodes:
                flags += ["--device", node]
        else:
            flags.append(word)
        previous_word = word
    return flags


def _matching_device_nodes(node: str, backend: Backend) -> list[str]:
    """Return this host's device nodes that match the same declared pattern as `node`, sorted."""
    for pattern in backend.hardware.nodes:
        if fnmatch(node, pattern):
            return sorted(glob(pattern))
    return []


def as_transformers_spec(name: str) -> str:
    """Return the text of a Python file for `TRANSFORMERS_TEST_DEVICE_SPEC`, for the accelerator `name`.

    Transformers' tests import this file, and read `DEVICE_NAME` and three functions from it (5.23.0,
    `testing_utils.py:3545-3596`).
    """
    return f'''\
"""The accelerator {name!r} for the tests of Transformers.

Run the tests in the folder of this file: TRANSFORMERS_TEST_DEVICE_SPEC=NAME_OF_THIS_FILE.py pytest ...
"""

import accel_core

_accelerator = accel_core.accelerator({name!r})

DEVICE_NAME = _accelerator.device_type
MANUAL_SEED_FN = _accelerator.manual_seed
EMPTY_CACHE_FN = _accelerator.empty_cache
DEVICE_COUNT_FN = _accelerator.device_count'''


def _check_values(
    variables: Mapping[str, str], fits: Callable[[str], bool], reason: str
) -> None:
    """Raise `LaunchError` with `reason` if a value does not fit the format.

    The error names the variables of such values. `fits` returns whether a value fits the format.
    """
    faulty = sorted(name for name, value in variables.items() if not fits(value))
    if faulty:
        raise LaunchError(
            f"{', '.join(faulty)}: {reason}. Unset the variable, or use --format shell."
        )
