"""The variables that a launcher must give to ranks on other hosts, and how launchers want them written."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import accel_train_startup as startup
from accel_core import Backend
from accel_core.errors import LaunchError
from accel_core.toolkit import AUTOLOAD, DS_ACCELERATOR, EXPECTED_PREFIX, is_variable_prefix, missing_defaults

if TYPE_CHECKING:
    from accel_core import Accelerator
    from accel_core.toolkit import Spoiler

__all__ = [
    "COMMON",
    "as_deepspeed",
    "as_shell",
    "exported_by",
    "for_shell",
    "forwarded",
    "kept_from_others",
    "pin_of",
    "text_of",
    "why_kept",
]

#: Prefixes that every backend forwards: our settings, Python's, torch's, OpenMP's, gloo's.
COMMON = ("ACCEL_", "GLOO_", "OMP_", "PYTHON", "TORCH_")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def forwarded(accelerator: Accelerator | Backend, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables in `environ` (the process's by default) that ranks elsewhere need, sorted by name.

    `accelerator` may be the declaration, where it cannot be built, as on a login node without its torch.
    Those whose name begins with one of `COMMON` or of `accelerator.export_envs()`, and always
    `DS_ACCELERATOR` with the accelerator's own name, so that every host makes the same choice. Those that
    the vendor wants set and that are not. The visible-devices variables are left out: which devices a host
    may use is that host's matter. Raises `LaunchError` where the accelerator's class exports what is no
    prefix, or too much.
    """
    env = os.environ if environ is None else environ
    backend = accelerator if isinstance(accelerator, Backend) else accelerator.backend
    missing = missing_defaults(backend, env)
    if isinstance(accelerator, Backend):
        exported, visible = list(accelerator.environment.forward), list(accelerator.visibility.variables)
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
    return dict(sorted({**missing, **kept, DS_ACCELERATOR.name: pin_of(accelerator)}.items()))


def exported_by(name: str, prefixes: Iterable[str]) -> list[str]:
    """Check the exports of the class of accelerator `name`: unlike a declaration, a class is unchecked.

    Raises `LaunchError` for a prefix that would send the whole environment, or half of it, to other hosts.
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
    """The variables with which ranks' torch loads no package by itself, and yet hears of an activation.

    For where `detection.autoload.spoilers` finds some: they would break every rank's `import torch`.
    `PYTHONPATH` keeps what it holds in `environ`, the process's by default.
    """
    before = (os.environ if environ is None else environ).get("PYTHONPATH", "")
    entries = [entry for entry in before.split(os.pathsep) if entry and entry != startup.AT_START]
    return {AUTOLOAD: "0", "PYTHONPATH": os.pathsep.join([startup.AT_START, *entries])}


def why_kept(spoilers: Sequence[Spoiler]) -> str:
    """A sentence for people: what is set for the ranks, and which packages make it necessary."""
    return f"{AUTOLOAD}=0 is set for the ranks: {'; '.join(spoiler.reason for spoiler in spoilers)}."


def pin_of(accelerator: Accelerator | Backend) -> str:
    """The value of `DS_ACCELERATOR` that means this accelerator, or declaration, and no other.

    The bare name, which other readers of the variable (DeepSpeed) know too; `name@distribution` where
    several installed distributions declare the name.
    """
    from accel_core import discover

    distributions = {c.distribution for c in discover() if c.name == accelerator.name}
    backend = accelerator if isinstance(accelerator, Backend) else accelerator.backend
    distribution = backend.distribution
    return f"{accelerator.name}@{distribution}" if len(distributions) > 1 else accelerator.name


def as_shell(variables: Mapping[str, str]) -> str:
    """Lines for a POSIX shell: `export NAME='any value'`.

    All of it is ASCII, so that no locale on the way alters it: other bytes stand as octal for `printf`, which
    gives them back.
    """
    return "\n".join(f"export {name}={for_shell(value)}" for name, value in variables.items())


def for_shell(value: str) -> str:
    """One word for a POSIX shell, in ASCII."""
    if value.isascii():
        return shlex.quote(value)
    parts = re.split(rb"([\x80-\xff]+)", os.fsencode(value))  # at odd places what is beyond ASCII
    octal = ["".join(f"\\{byte:03o}" for byte in part) for part in parts]
    return "".join(
        f"\"$(printf '{octal[at]}')\"" if at % 2 else shlex.quote(part.decode()) if part else ""
        for at, part in enumerate(parts)
    )


def text_of(value: str) -> str | None:
    """The value, unless it holds bytes that are not UTF-8, which Python keeps as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def as_deepspeed(variables: Mapping[str, str]) -> str:
    """Lines for DeepSpeed's `.deepspeed_env`: `NAME=value`.

    Raises `LaunchError` for values that the file cannot hold: DeepSpeed (0.19.8, `launcher/runner.py`)
    reads it as text, line by line, strips each value, puts it between double quotes for a shell without
    escaping anything, and joins all of them by commas for Slurm's `srun --export`.
    """
    faulty = sorted(name for name, value in variables.items() if not _fits_deepspeed(value))
    if faulty:
        raise LaunchError(
            f"{', '.join(faulty)}: .deepspeed_env cannot hold a line end, quotes, a dollar sign, a "
            "backslash, a comma (its launcher for Slurm splits there), bytes that are not UTF-8, or "
            "space at either end. Unset it, or use --format shell."
        )
    return "\n".join(f"{name}={value}" for name, value in variables.items())


def _fits_deepspeed(value: str) -> bool:
    stands = value == value.strip() and len(value.splitlines()) <= 1 and text_of(value) is not None
    return stands and not re.search(r'["$`\\!,\r\n]', value)
