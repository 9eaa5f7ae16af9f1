"""The variables that a launcher must give to ranks on other hosts, and how launchers want them written."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accel_core._support import startup
from accel_core._support.torch_import import AUTOLOAD
from accel_core.accelerators.vendor_defaults import missing_defaults
from accel_core.backend import Backend
from accel_core.errors import LaunchError
from accel_core.settings import ACCEL_VENDOR_DEFAULTS, DS_ACCELERATOR

if TYPE_CHECKING:
    from accel_core.accelerators.interface import Accelerator
    from accel_core.detection.autoload import Spoiler

__all__ = ["COMMON", "as_deepspeed", "as_shell", "forwarded", "kept_from_others", "pin_of", "why_kept"]

#: Prefixes that every backend forwards: our settings, Python's, torch's, OpenMP's, gloo's.
COMMON = ("ACCEL_", "GLOO_", "OMP_", "PYTHON", "TORCH_")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def forwarded(accelerator: Accelerator | Backend, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables in `environ` (the process's by default) that ranks elsewhere need, sorted by name.

    `accelerator` may be the declaration, where it cannot be built, as on a login node without its torch.
    Those whose name begins with one of `COMMON` or of `accelerator.export_envs()`, and always
    `DS_ACCELERATOR` with the accelerator's own name, so that every host makes the same choice. Those that
    the vendor wants set and that are not, unless `ACCEL_VENDOR_DEFAULTS=0`. The
    visible-devices variables are left out: which devices a host may use is that host's matter.
    """
    env = os.environ if environ is None else environ
    backend = accelerator if isinstance(accelerator, Backend) else accelerator.backend
    missing = missing_defaults(backend, env) if ACCEL_VENDOR_DEFAULTS.read(env) else {}
    if isinstance(accelerator, Backend):
        exported, visible = list(accelerator.export_envs), list(accelerator.visible_devices)
    else:
        exported, visible = accelerator.export_envs(), accelerator.visible_devices_envs()
    prefixes = (*COMMON, *exported)
    own = {*visible, DS_ACCELERATOR.name}
    kept = {
        name: value
        for name, value in env.items()
        # What is no identifier (a shell's exported function) no shell and no file could set again.
        if name.startswith(prefixes) and name not in own and _NAME.fullmatch(name)
    }
    return dict(sorted({**missing, **kept, DS_ACCELERATOR.name: pin_of(accelerator)}.items()))


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
    from accel_core.detection.discovery import discover

    distributions = {c.distribution for c in discover() if c.name == accelerator.name}
    backend = accelerator if isinstance(accelerator, Backend) else accelerator.backend
    distribution = backend.distribution
    return f"{accelerator.name}@{distribution}" if len(distributions) > 1 else accelerator.name


def as_shell(variables: Mapping[str, str]) -> str:
    """Lines for a POSIX shell: `export NAME='any value'`."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def as_deepspeed(variables: Mapping[str, str]) -> str:
    """Lines for DeepSpeed's `.deepspeed_env`: `NAME=value`.

    Raises `LaunchError` for values that the file cannot hold: DeepSpeed reads it line by line, strips each
    value, and puts it between double quotes for a shell without escaping anything.
    """
    faulty = [name for name, value in variables.items() if re.search(r'["$`\\!\r\n]', value)]
    faulty += [name for name, value in variables.items() if value != value.strip()]
    if faulty:
        raise LaunchError(
            f"{', '.join(sorted(set(faulty)))}: .deepspeed_env cannot hold a line end, quotes, a dollar "
            "sign, a backslash, or space at either end. Unset it, or use --format shell or json."
        )
    return "\n".join(f"{name}={value}" for name, value in variables.items())
