"""Collect the variables that a launcher must pass to ranks on other hosts, and write them in its format."""

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
    "checked_prefixes",
    "difference",
    "for_ranks",
    "for_shell",
    "forwarded",
    "isolation_env",
    "isolation_reason",
    "pin_of",
    "text_of",
]

#: `LD_LIBRARY_PATH` and `PATH`: a shell that ssh starts reads no profile, and the hosts of a job have the
#: same installation. DeepSpeed's launcher (0.19.8) forwards both for most vendors, CUDA among them.
SEARCH_PATHS = ("LD_LIBRARY", "PATH")
#: Prefixes that every backend forwards: our settings, Python's, torch's, OpenMP's, gloo's.
COMMON = (
    "ACCEL_",
    "GLOO_",
    "OMP_",
    "PYTHON",
    "PYTORCH_ALLOC_CONF",
    "TORCH_",
    *SEARCH_PATHS,
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def forwarded(
    accelerator: Accelerator | Backend, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables in `environ` that ranks on other hosts need, sorted by name.

    `environ` is this process's environment by default. `accelerator` may be the declaration, for a host where
    the accelerator cannot be built (a login node without its torch). The result has the variables whose names
    begin with one of `COMMON` or of `accelerator.export_envs()`. It always has `DS_ACCELERATOR` with the
    accelerator's own name, so that every host makes the same choice. It has the variables that the vendor
    wants set, if they are not set. It leaves out the visible-devices variables: each host decides which of
    its devices it uses. Raises `LaunchError` if the accelerator's class exports an invalid prefix, or one
    that matches too much.
    """
    env = os.environ if environ is None else environ
    if isinstance(accelerator, Backend):
        backend = accelerator
        vendor_prefixes = list(backend.environment.forward)
        excluded = {*backend.visibility.variables, DS_ACCELERATOR.name}
    else:
        backend = accelerator.backend
        vendor_prefixes = checked_prefixes(accelerator.name, accelerator.export_envs())
        excluded = {*accelerator.visible_devices_envs(), DS_ACCELERATOR.name}
    prefixes = (*COMMON, *vendor_prefixes)
    variables = dict(missing_defaults(backend, env))
    for name, value in env.items():
        # A name that is not an identifier (a shell's exported function) could not be set again.
        is_settable = _IDENTIFIER.fullmatch(name) is not None
        if is_settable and name.startswith(prefixes) and name not in excluded:
            variables[name] = value
    variables[DS_ACCELERATOR.name] = pin_of(accelerator)
    return dict(sorted(variables.items()))


def checked_prefixes(name: str, prefixes: Iterable[str]) -> list[str]:
    """Return the prefixes that `export_envs()` of accelerator `name` returned, as a list.

    Raises `LaunchError` for a prefix that would send most of the environment to other hosts. A class is not
    validated as a declaration is.
    """
    prefix_list = [prefixes] if isinstance(prefixes, str) else list(prefixes)
    for prefix in prefix_list:
        if not isinstance(prefix, str) or not is_variable_prefix(prefix):
            raise LaunchError(
                f"export_envs() of {name} has {prefix!r}, {EXPECTED_PREFIX}. Nothing was forwarded. Report "
                "this to the maintainers of its plugin."
            )
    return prefix_list


def isolation_env(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return variables that stop torch from loading other vendors' packages in the ranks.

    Use it if `autoload_conflicts` returns packages: they would break `import torch` on every rank.
    Integrations are still activated, by a folder that is put first in `PYTHONPATH`; its other entries are
    those of `environ`, by default this process's environment.
    """
    env = os.environ if environ is None else environ
    entries = env.get("PYTHONPATH", "").split(os.pathsep)
    entries = [entry for entry in entries if entry and entry != startup.AT_START]
    return {AUTOLOAD: "0", "PYTHONPATH": os.pathsep.join([startup.AT_START, *entries])}


def for_ranks(
    backend: Backend,
    import_breakers: Sequence[AutoloadConflict],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the variables by which `import torch` makes the chosen device available in every rank.

    `ACCEL_IMPORT` names the vendor's package: torch loads only packages that have an entry point for it, and
    none at all if `import_breakers`, packages of other vendors, would break the import.
    """
    env = os.environ if environ is None else environ
    variables = isolation_env(env) if import_breakers else {}
    package = _package_to_import(backend, autoload=not import_breakers)
    if package:
        names = [name.strip() for name in env.get(startup.IMPORTED, "").split(",")]
        names.append(package)
        without_duplicates = dict.fromkeys(name for name in names if name)
        variables[startup.IMPORTED] = ",".join(without_duplicates)
    return variables


def _package_to_import(backend: Backend, *, autoload: bool) -> str:
    """Return the package that `ACCEL_IMPORT` has to name for the backend's device; empty if torch has it.

    `autoload`: whether torch loads packages by their entry points.
    """
    installed = installed_imports(backend)
    vendor_package = installed[0] if installed else backend.vendor_imports[0]
    if vendor_package != "torch":
        return vendor_package
    is_generic = backend.name == builtin.GENERIC.name
    if is_generic and backend.provenance is not None and not autoload:
        return backend.provenance.value  # the entry point that torch would load
    return ""


def difference(
    variables: Mapping[str, str], environ: Mapping[str, str], backend: Backend
) -> str:
    """Return a sentence: which variables of `environ` are not in `variables`, and why, and which are new."""
    visibility = backend.visibility
    device_variables = (*visibility.filters, *visibility.variables)
    prefixes = (*COMMON, *backend.environment.forward)
    names_by_reason: dict[str, list[str]] = {}
    for name in sorted(environ.keys() - variables.keys()):
        reason = _left_out_reason(name, device_variables, prefixes)
        names_by_reason.setdefault(reason, []).append(name)
    added = [
        f"{name}={value}"
        for name, value in variables.items()
        if environ.get(name) != value
    ]
    left_out = [
        f"{', '.join(names)} ({reason})" for reason, names in names_by_reason.items()
    ]
    return (
        f"left out for other hosts: {'; '.join(left_out) or 'nothing'}; "
        f"added: {', '.join(added) or 'nothing'}"
    )


def _left_out_reason(
    name: str, device_variables: Sequence[str], prefixes: tuple[str, ...]
) -> str:
    """Return why a variable that is set is not passed on, as a clause."""
    if name in device_variables:
        return "each host has its own devices"
    if not _IDENTIFIER.fullmatch(name):
        return "no shell could set a variable of that name"
    if name.startswith(prefixes):
        return "this format leaves it out"
    return "no prefix is the backend's or every backend's; to pass one on, set it there"


def isolation_reason(import_breakers: Sequence[AutoloadConflict]) -> str:
    """Return a sentence for users: what is set for the ranks, and which packages make it necessary."""
    reasons = "; ".join(breaker.reason for breaker in import_breakers)
    return f"{AUTOLOAD}=0 is set for the ranks: {reasons}."


def pin_of(accelerator: Accelerator | Backend) -> str:
    """Return the value of `DS_ACCELERATOR` that selects exactly this accelerator, or declaration.

    It is the backend's name, which DeepSpeed understands too; if several installed distributions declare
    that name, it is `name@distribution`.
    """
    from accel_core import discover

    backend = accelerator if isinstance(accelerator, Backend) else accelerator.backend
    distribution = backend.distribution
    distributions = {
        candidate.distribution
        for candidate in discover()
        if candidate.name == accelerator.name
    }
    is_generic = accelerator.name == builtin.GENERIC.name
    if is_generic and distribution != builtin.OWN.distribution:
        # The name `generic` alone selects a package before accel_core's own.
        distributions.discard(builtin.OWN.distribution)
    if len(distributions) > 1:
        return f"{accelerator.name}@{distribution}"
    return accelerator.name


def as_shell(variables: Mapping[str, str]) -> str:
    """Return lines for a POSIX shell: `export NAME='any value'`.

    The text is ASCII, so that no locale changes it: other bytes are written as octal for `printf`, which
    restores them.
    """
    return "\n".join(
        f"export {name}={for_shell(value)}" for name, value in variables.items()
    )


def for_shell(value: str) -> str:
    """Return `value` as one word for a POSIX shell, in ASCII."""
    if value.isascii():
        return shlex.quote(value)
    quoted = []
    for part in re.split(rb"([\x80-\xff]+)", os.fsencode(value)):
        if not part:
            continue
        if part.isascii():
            quoted.append(shlex.quote(part.decode()))
        else:
            octal = "".join(f"\\{byte:03o}" for byte in part)
            quoted.append(f"\"$(printf '{octal}')\"")
    return "".join(quoted)


def text_of(value: str) -> str | None:
    """Return the value; `None` if it has bytes that are not UTF-8 (in Python: lone surrogates)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def as_deepspeed(variables: Mapping[str, str]) -> str:
    """Return lines for DeepSpeed's `.deepspeed_env`: `NAME=value`.

    Raises `LaunchError` for values that the file cannot hold. DeepSpeed (0.19.8, `launcher/runner.py`) reads
    it as text, line by line, and strips each value. It puts the value between double quotes for a shell
    without escaping anything, and joins all values by commas for Slurm's `srun --export`.
    """
    faulty = sorted(
        name for name, value in variables.items() if not _fits_deepspeed(value)
    )
    if faulty:
        raise LaunchError(
            f"{', '.join(faulty)}: .deepspeed_env cannot hold a line end, quotes, a dollar sign, a "
            "backslash, a comma (its launcher for Slurm splits there), bytes that are not UTF-8, or "
            "space at either end. Unset it, or use --format shell."
        )
    return "\n".join(f"{name}={value}" for name, value in variables.items())


def _fits_deepspeed(value: str) -> bool:
    """Return whether a line of `.deepspeed_env` can hold the value unchanged."""
    is_one_line = value == value.strip() and len(value.splitlines()) <= 1
    if not is_one_line or text_of(value) is None:
        return False
    return not re.search(r'["$`\\!,\r\n]', value)
