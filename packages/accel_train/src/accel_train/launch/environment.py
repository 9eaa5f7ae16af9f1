"""Collect the variables that a launcher must pass to ranks on other hosts.

The variables are also formatted for a shell and for DeepSpeed's launcher.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import accel_train_startup as startup
from accel_core import Backend, builtin
from accel_core.backend import EXPECTED_PREFIX, is_variable_prefix
from accel_core.checks import installed_imports
from accel_core.errors import LaunchError
from accel_core.interface.devices import missing_defaults
from accel_core.settings import DS_ACCELERATOR
from accel_core.torch_import import AUTOLOAD

if TYPE_CHECKING:
    from accel_core import Accelerator
    from accel_core.explain.autoload import AutoloadConflict

__all__ = [
    "COMMON",
    "SEARCH_PATHS",
    "as_deepspeed",
    "as_shell",
    "describe_difference",
    "forwarded",
    "import_variables",
    "is_utf8",
    "isolation_env",
    "isolation_reason",
    "pin_of",
    "quote_for_shell",
    "validate_prefixes",
]

#: The prefixes of `LD_LIBRARY_PATH` and `PATH`. They are forwarded because the hosts of a job have the same
#: installation, and a shell that ssh starts reads no profile. DeepSpeed's launcher (0.19.8) forwards them
#: for most vendors, CUDA among them.
SEARCH_PATHS = ("LD_LIBRARY", "PATH")
#: Prefixes of variables that are forwarded for every backend: settings of accel, gloo, OpenMP, Python and
#: torch.
COMMON = (
    "ACCEL_",
    "GLOO_",
    "OMP_",
    "PYTHON",
    "PYTORCH_ALLOC_CONF",
    "TORCH_",
    *SEARCH_PATHS,
)
#: Matches the names of variables that a shell can set.
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def forwarded(
    accelerator: Accelerator | Backend, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment variables that ranks on other hosts need, sorted by name.

    On a host on which the accelerator cannot be created, such as a login node, `accelerator` may be a
    declaration (`Backend`). `environ` defaults to this process's environment.

    The result contains the variables in `environ` whose names begin with a prefix in `COMMON` or in
    `accelerator.export_envs()`. For variables that are not set, the result contains the declaration's default
    values. The result always contains `DS_ACCELERATOR`, set to the accelerator's name, so that every host
    makes the same choice. Visible-devices variables are left out, because the devices differ between hosts.

    Raises `LaunchError` if `export_envs()` returns an invalid prefix, or a prefix that matches too many
    variables.
    """
    env = os.environ if environ is None else environ
    if isinstance(accelerator, Backend):
        backend = accelerator
        vendor_prefixes = list(backend.environment.forward)
        excluded = {*backend.visibility.variables, DS_ACCELERATOR.name}
    else:
        backend = accelerator.backend
        vendor_prefixes = validate_prefixes(accelerator.name, accelerator.export_envs())
        excluded = {*accelerator.visible_devices_envs(), DS_ACCELERATOR.name}
    prefixes = (*COMMON, *vendor_prefixes)
    # First the declaration's default values of variables that are not set.
    variables = dict(missing_defaults(backend, env))
    for name, value in env.items():
        # A shell could not set a name that is not an identifier, such as that of an exported function.
        is_settable = _IDENTIFIER.fullmatch(name) is not None
        if is_settable and name.startswith(prefixes) and name not in excluded:
            variables[name] = value
    variables[DS_ACCELERATOR.name] = pin_of(accelerator)
    return dict(sorted(variables.items()))


def validate_prefixes(name: str, prefixes: Iterable[str]) -> list[str]:
    """Validate the prefixes that the accelerator's `export_envs()` returned, and return them as a list.

    `name` is the accelerator's name for error messages. Raises `LaunchError` if a prefix is invalid, or would
    send most of the environment to other hosts.
    """
    # A plugin may return a single prefix instead of a list.
    prefix_list = [prefixes] if isinstance(prefixes, str) else list(prefixes)
    for prefix in prefix_list:
        if not isinstance(prefix, str) or not is_variable_prefix(prefix):
            raise LaunchError(
                f"export_envs() of {name} returned the prefix {prefix!r}, {EXPECTED_PREFIX}. No variable was "
                f"forwarded. Report this to the maintainers of {name}'s plugin."
            )
    return prefix_list


def isolation_env(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables that stop torch from loading other vendors' packages in the ranks.

    The variables are needed if another vendor's package breaks `import torch`. A `sitecustomize` module then
    loads accel-train's integrations, so its folder is the first entry of `PYTHONPATH` in the result. The
    other entries are those in `environ`, which defaults to this process's environment.
    """
    env = os.environ if environ is None else environ
    # Python imports `sitecustomize` from this folder when it starts.
    folders = [startup.STARTUP_FOLDER]
    for folder in env.get("PYTHONPATH", "").split(os.pathsep):
        if folder and folder != startup.STARTUP_FOLDER:
            folders.append(folder)
    return {AUTOLOAD: "0", "PYTHONPATH": os.pathsep.join(folders)}


def import_variables(
    backend: Backend,
    conflicts: Sequence[AutoloadConflict],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment variables that make `import torch` load the backend's device in every rank.

    `conflicts` are packages of other vendors that break `import torch`. If there are any, the variables stop
    torch from loading packages by entry points. `ACCEL_IMPORT` names the vendor's package, because torch may
    not load it. `environ` defaults to this process's environment.
    """
    env = os.environ if environ is None else environ
    variables: dict[str, str] = {}
    if conflicts:
        variables.update(isolation_env(env))
    package = _package_to_import(backend, autoload=not conflicts)
    if package:
        user_packages = env.get(startup.IMPORT_VARIABLE, "").split(",")
        packages: list[str] = []
        for part in [*user_packages, package]:
            name = part.strip()
            if name and name not in packages:
                packages.append(name)
        variables[startup.IMPORT_VARIABLE] = ",".join(packages)
    return variables


def _package_to_import(backend: Backend, *, autoload: bool) -> str:
    """Return the package that `ACCEL_IMPORT` must name for the backend's device.

    Returns an empty string if none is needed. `autoload` is True if torch loads packages by their entry
    points.
    """
    packages = installed_imports(backend) or backend.vendor_imports
    vendor_package, *_ = packages
    if vendor_package != "torch":  # If it is torch, torch itself contains the device.
        return vendor_package
    is_generic = backend.name == builtin.GENERIC.name
    if is_generic and backend.provenance is not None and not autoload:
        # The device's package declares an entry point, whose value is the package's name.
        return backend.provenance.value
    return ""


def describe_difference(
    variables: Mapping[str, str], environ: Mapping[str, str], backend: Backend
) -> str:
    """Return a sentence about the differences between the forwarded `variables` and `environ`.

    The sentence lists the variables in `environ` that are not forwarded, grouped by reason, and the variables
    that were added or changed.
    """
    visibility = backend.visibility
    device_variables = (*visibility.filters, *visibility.variables)
    prefixes = (*COMMON, *backend.environment.forward)
    names_by_reason: dict[str, list[str]] = {}
    for name in sorted(environ.keys() - variables.keys()):
        reason = _exclusion_reason(name, device_variables, prefixes)
        names_by_reason.setdefault(reason, []).append(name)
    left_out = [
        f"{', '.join(names)} ({reason})" for reason, names in names_by_reason.items()
    ]
    added = []
    for name, value in variables.items():
        if environ.get(name) != value:
            added.append(f"{name}={value}")
    left_out_text = "; ".join(left_out) or "nothing"
    added_text = ", ".join(added) or "nothing"
    return (
        f"variables that other hosts do not get: {left_out_text}; added or changed variables: "
        f"{added_text}"
    )


def _exclusion_reason(
    name: str, device_variables: Sequence[str], prefixes: tuple[str, ...]
) -> str:
    """Return the reason why a variable is not forwarded, such as `"each host has its own devices"`."""
    if name in device_variables:
        return "each host has its own devices"
    if not _IDENTIFIER.fullmatch(name):
        return "a shell cannot set a variable with this name"
    if name.startswith(prefixes):
        return "the output format leaves out these variables"
    return "not among the forwarded prefixes; set these variables on the other hosts if needed"


def isolation_reason(conflicts: Sequence[AutoloadConflict]) -> str:
    """Return a sentence that explains why torch loads no vendor packages automatically in the ranks."""
    reasons = "; ".join(conflict.reason for conflict in conflicts)
    return f"{AUTOLOAD}=0 is set for the ranks, because {reasons}."


def pin_of(accelerator: Accelerator | Backend) -> str:
    """Return the value of `DS_ACCELERATOR` that selects exactly this accelerator or declaration.

    The value is the backend's name, which DeepSpeed accepts too. If several installed distributions declare
    that name, the value is `name@distribution`.
    """
    from accel_core import discover

    backend = accelerator if isinstance(accelerator, Backend) else accelerator.backend
    distribution = backend.distribution
    distributions = set()
    for candidate in discover():
        if candidate.name == accelerator.name:
            distributions.add(candidate.distribution)
    is_generic = accelerator.name == builtin.GENERIC.name
    if is_generic and distribution != builtin.OWN.distribution:
        # Without a distribution, the name `generic` prefers any other distribution to accel_core's.
        distributions.discard(builtin.OWN.distribution)
    if len(distributions) > 1:
        return f"{accelerator.name}@{distribution}"
    return accelerator.name


def as_shell(variables: Mapping[str, str]) -> str:
    """Format the variables as lines for a POSIX shell, such as `export NAME='any value'`.

    The text is ASCII, so it does not depend on the locale. Bytes that are not ASCII are written in octal as
    an argument of the shell's `printf`, which prints the original bytes.
    """
    return "\n".join(
        f"export {name}={quote_for_shell(value)}" for name, value in variables.items()
    )


def quote_for_shell(value: str) -> str:
    """Quote `value` as a single word for a POSIX shell, using only ASCII characters."""
    if value.isascii():
        return shlex.quote(value)
    quoted = []
    # The parts are in turn ASCII text, which may be empty, and bytes that are not ASCII.
    for part in re.split(rb"([\x80-\xff]+)", os.fsencode(value)):
        if not part:
            continue
        if part.isascii():
            quoted.append(shlex.quote(part.decode()))
        else:
            octal = "".join(f"\\{byte:03o}" for byte in part)
            quoted.append(f"\"$(printf '{octal}')\"")
    return "".join(quoted)


def is_utf8(value: str) -> bool:
    """Return whether the value of an environment variable is valid UTF-8."""
    # Python reads a byte that is not UTF-8 as a lone surrogate, which cannot be encoded.
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_deepspeed(variables: Mapping[str, str]) -> str:
    """Format the variables as lines for DeepSpeed's file `.deepspeed_env`, such as `NAME=value`.

    DeepSpeed (0.19.8, `launcher/runner.py`) reads the file as text, line by line, and strips each value. For
    a shell, DeepSpeed puts the value between double quotes without escapes. For Slurm's `srun --export`,
    DeepSpeed joins all values with commas. Raises `LaunchError` if these steps would change a value.
    """
    faulty = sorted(
        name for name, value in variables.items() if not _fits_deepspeed(value)
    )
    if faulty:
        raise LaunchError(
            f"{', '.join(faulty)}: values in .deepspeed_env cannot contain newlines, double quotes, "
            "backquotes, $, !, backslashes, commas, non-UTF-8 bytes, or leading or trailing spaces. Unset "
            "the variable, or use --format shell."
        )
    return "\n".join(f"{name}={value}" for name, value in variables.items())


def _fits_deepspeed(value: str) -> bool:
    """Return whether DeepSpeed reads the value unchanged from a line of `.deepspeed_env`."""
    has_outer_spaces = value != value.strip()
    has_several_lines = len(value.splitlines()) > 1
    has_special_characters = re.search(r'["$`\\!,\r\n]', value) is not None
    if has_outer_spaces or has_several_lines or has_special_characters:
        return False
    return is_utf8(value)
