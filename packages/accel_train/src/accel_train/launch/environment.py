"""The variables that a launcher must pass to ranks on other hosts, in the formats that launchers read."""

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
    "difference",
    "exported_by",
    "for_ranks",
    "for_shell",
    "forwarded",
    "kept_from_others",
    "pin_of",
    "text_of",
    "why_kept",
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
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
    backend = accelerator if isinstance(accelerator, Backend) else accelerator.backend
    missing = missing_defaults(backend, env)
    if isinstance(accelerator, Backend):
        exported, visible = (
            list(accelerator.environment.forward),
            list(accelerator.visibility.variables),
        )
    else:
        exported = exported_by(accelerator.name, accelerator.export_envs())
        visible = accelerator.visible_devices_envs()
    prefixes = (*COMMON, *exported)
    own = {*visible, DS_ACCELERATOR.name}
    kept = {
        name: value
        for name, value in env.items()
        # What is no identifier (a shell's exported function) no shell and no file could set again.
        if name.startswith(prefixes) and name not in own and _NAME.fullmatch(name)
    }
    return dict(
        sorted({**missing, **kept, DS_ACCELERATOR.name: pin_of(accelerator)}.items())
    )


def exported_by(name: str, prefixes: Iterable[str]) -> list[str]:
    """Return the export prefixes of accelerator `name`, checked: a class is not validated like a declaration.

    Raises `LaunchError` for a prefix that would send most of the environment to other hosts.
    """
    found = [prefixes] if isinstance(prefixes, str) else list(prefixes)
    for prefix in found:
        if not isinstance(prefix, str) or not is_variable_prefix(prefix):
            raise LaunchError(
                f"export_envs() of {name} has {prefix!r}, {EXPECTED_PREFIX}. Nothing was forwarded. Report "
                "this to the maintainers of its plugin."
            )
    return found


def kept_from_others(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return variables that stop the ranks' torch from loading packages, but not from an activation.

    Use it if `autoload_conflicts` finds packages: they would break `import torch` on every rank.
    `PYTHONPATH` keeps its value from `environ`, by default this process's environment.
    """
    before = (os.environ if environ is None else environ).get("PYTHONPATH", "")
    entries = [
        entry
        for entry in before.split(os.pathsep)
        if entry and entry != startup.AT_START
    ]
    return {AUTOLOAD: "0", "PYTHONPATH": os.pathsep.join([startup.AT_START, *entries])}


def for_ranks(
    backend: Backend,
    spoilers: Sequence[AutoloadConflict],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the variables with which `import torch` brings the chosen device in every rank.

    `ACCEL_IMPORT` names the vendor's package: torch loads only packages that announce themselves, and none
    at all where another vendor's would break it, which `spoilers` names.
    """
    env = os.environ if environ is None else environ
    variables = kept_from_others(env) if spoilers else {}
    package = _package_to_import(backend, autoload=not spoilers)
    if package:
        before = [name.strip() for name in env.get(startup.IMPORTED, "").split(",")]
        names = dict.fromkeys(name for name in (*before, package) if name)
        variables[startup.IMPORTED] = ",".join(names)
    return variables


def _package_to_import(backend: Backend, *, autoload: bool) -> str:
    """The name for `ACCEL_IMPORT` that brings the backend's device; empty if `import torch` does."""
    installed = installed_imports(backend)
    vendor = installed[0] if installed else backend.vendor_imports[0]
    if vendor != "torch":
        return vendor
    if (
        backend.name == builtin.GENERIC.name
        and backend.provenance is not None
        and not autoload
    ):
        return backend.provenance.value  # the entry point that torch would load
    return ""


def difference(
    variables: Mapping[str, str], environ: Mapping[str, str], backend: Backend
) -> str:
    """Return a sentence on each set variable that `variables` leave out, and why, and on what they set."""
    visibility = backend.visibility
    own = (*visibility.filters, *visibility.variables)
    prefixes = (*COMMON, *backend.environment.forward)
    left: dict[str, list[str]] = {}
    for name in sorted(environ.keys() - variables.keys()):
        left.setdefault(_why_left_out(name, own, prefixes), []).append(name)
    added = [
        f"{name}={value}"
        for name, value in variables.items()
        if environ.get(name) != value
    ]
    clauses = [f"{', '.join(names)} ({why})" for why, names in left.items()]
    return (
        f"left out for other hosts: {'; '.join(clauses) or 'nothing'}; "
        f"added: {', '.join(added) or 'nothing'}"
    )


def _why_left_out(name: str, own: Sequence[str], prefixes: tuple[str, ...]) -> str:
    """Return why a variable that is set is not passed on, as a clause."""
    if name in own:
        return "each host has its own devices"
    if not _NAME.fullmatch(name):
        return "no shell could set a variable of that name"
    if name.startswith(prefixes):
        return "this format leaves it out"
    return "no prefix is the backend's or every backend's; to pass one on, set it there"


def why_kept(spoilers: Sequence[AutoloadConflict]) -> str:
    """Return a sentence for people: what is set for the ranks, and which packages make it necessary."""
    return f"{AUTOLOAD}=0 is set for the ranks: {'; '.join(spoiler.reason for spoiler in spoilers)}."


def pin_of(accelerator: Accelerator | Backend) -> str:
    """Return the value of `DS_ACCELERATOR` that means exactly this accelerator, or declaration.

    It is the bare name, which other readers of the variable (DeepSpeed) know too; if several installed
    distributions declare the name, it is `name@distribution`.
    """
    from accel_core import discover

    backend = accelerator if isinstance(accelerator, Backend) else accelerator.backend
    distribution = backend.distribution
    distributions = {c.distribution for c in discover() if c.name == accelerator.name}
    if (
        accelerator.name == builtin.GENERIC.name
        and distribution != builtin.OWN.distribution
    ):
        distributions.discard(
            builtin.OWN.distribution
        )  # `generic` alone means a package first
    return (
        f"{accelerator.name}@{distribution}"
        if len(distributions) > 1
        else accelerator.name
    )


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
    parts = re.split(
        rb"([\x80-\xff]+)", os.fsencode(value)
    )  # at odd places what is beyond ASCII
    octal = ["".join(f"\\{byte:03o}" for byte in part) for part in parts]
    return "".join(
        f"\"$(printf '{octal[at]}')\""
        if at % 2
        else shlex.quote(part.decode())
        if part
        else ""
        for at, part in enumerate(parts)
    )


def text_of(value: str) -> str | None:
    """Return the value; `None` if it holds bytes that are not UTF-8 (in Python lone surrogates)."""
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
    stands = (
        value == value.strip()
        and len(value.splitlines()) <= 1
        and text_of(value) is not None
    )
    return stands and not re.search(r'["$`\\!,\r\n]', value)
