"""Code that runs at every `import torch`, as an entry point of torch's group `torch.backends`.

It imports the packages that `ACCEL_IMPORT` names. In a rank of `accel run` that is the chosen vendor's, so
that torch has the device in an unchanged program and in the processes that it starts.

An activation (`accel_train.deepspeed.activate()`) must also hold in child processes: spawned workers and
launched ranks are new interpreters, which inherit only environment variables. This module applies the
activation there. It does nothing unless the variable is set, and it never raises: if an entry point of this
group fails, torch cannot be imported.

It is a package of its own, because `import torch` must not import accel-train, and must not fail with it. An
entry point in group `accel.integrations` names the function to call for an integration.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import warnings
from typing import Any

__all__ = [
    "AT_EXIT",
    "AT_START",
    "AUTO",
    "GROUP",
    "IMPORTED",
    "NONE",
    "VARIABLE",
    "autoload",
    "names",
    "with_auto",
]

#: A folder that on `PYTHONPATH` has this called where torch's autoload is off.
AT_START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "at_start")  # noqa: PTH100, PTH118, PTH120

#: Set by `activate()` for child processes: frameworks to hand ours to, by comma.
VARIABLE = "ACCEL_INTEGRATIONS"
#: Packages to import after torch, by comma; accel-core reads it too.
IMPORTED = "ACCEL_IMPORT"
_TORCHS_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: The word of `VARIABLE` for "each framework below, when it is imported".
AUTO = "auto"
#: Its word for a rank of `accel run --no-integrations`: nothing is prepared.
NONE = "none"
#: Modules of frameworks, and the integrations that are prepared when they are imported.
_AWAITED = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
    "lightning_fabric": "lightning",
    "pytorch_lightning": "lightning",
}
#: The pin, and the same for a process that has one and nothing else of ours.
_PIN, _PINNED = "DS_ACCELERATOR", {"deepspeed": "deepspeed_pin"}
#: Entry points named as the framework: `deepspeed = "accel_train.deepspeed:prepare"`.
GROUP = "accel.integrations"
#: Entry points of what is called at the end of a process.
AT_EXIT = "accel.at_exit"
_ERRORS = (Exception, SystemExit)


def names(text: str) -> tuple[str, ...]:
    """Return the names in the variable's comma-separated list, in lower case."""
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def with_auto(environ: dict[str, str] | os._Environ[str]) -> str:
    """Return the variable's value in `environ`, with `AUTO` in it."""
    return ",".join(dict.fromkeys((AUTO, *names(environ.get(VARIABLE, "")))))


def autoload() -> None:
    """Import what `ACCEL_IMPORT` names, and prepare the integrations that `ACCEL_INTEGRATIONS` names.

    Errors become warnings. Preparing imports neither the framework nor a vendor's package, and chooses no
    accelerator.
    """
    _import_named(os.environ.get(IMPORTED, ""))
    if _pid != os.getpid():
        _at_exit_of(os.getpid())
    # Read here first: nearly every process that imports torch is none of our business.
    wanted = names(os.environ.get(VARIABLE, ""))
    if wanted:
        _select_device_of_rank()
        _apply([name for name in wanted if name not in (AUTO, NONE)])
    awaited = _AWAITED if AUTO in wanted else _PINNED if os.environ.get(_PIN) else {}
    if awaited and not any(isinstance(finder, _Awaited) for finder in sys.meta_path):
        # One that is in sys.modules is importing torch just now.
        _apply([name for module, name in awaited.items() if module in sys.modules])
        sys.meta_path.insert(0, _Awaited(awaited))


def _import_named(text: str) -> None:
    """Import each package that the variable names.

    The function of `package:function` is also called, as torch's autoload would; it is left to torch if the
    autoload is on. A module that is already imported is skipped.
    """
    problems = []
    for name in filter(None, map(str.strip, text.split(","))):
        module, _, function = name.partition(":")
        if module in sys.modules or (
            function and os.environ.get(_TORCHS_AUTOLOAD, "1") == "1"
        ):
            continue
        try:
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        except _ERRORS as error:
            problems.append(f"{name}: {_described(error)}")
    if problems:
        _warn(IMPORTED, problems)


def _select_device_of_rank() -> None:
    """Have the device of this rank's `LOCAL_RANK` selected when the vendor's runtime starts.

    Vendors' modules that follow `torch.cuda` keep calls for that moment, and nothing is initialised here. So
    a script that selects no device does not share device 0 with the other ranks.
    """
    local_rank = os.environ.get("LOCAL_RANK", "")
    torch = sys.modules.get("torch")
    if not local_rank.isdecimal() or not hasattr(torch, "accelerator"):
        return
    with contextlib.suppress(*_ERRORS):
        device = torch.accelerator.current_accelerator()  # type: ignore[union-attr]
        if device is None:
            return
        namespace = getattr(torch, device.type)
        if hasattr(namespace, "_lazy_call"):
            namespace._lazy_call(lambda: _select(namespace, int(local_rank)))


def _select(namespace: Any, index: int) -> None:
    """Select a device of a torch namespace; with one device for each rank there is nothing to select."""
    if index < namespace.device_count():
        namespace.set_device(index)


class _Awaited:
    """A finder that finds nothing; it sees that a framework is about to be imported."""

    def __init__(self, awaited: dict[str, str]) -> None:
        self._left = {
            module: name
            for module, name in awaited.items()
            if module not in sys.modules
        }

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> None:
        if name in self._left:
            _apply([self._left.pop(name)])


_pid = 0


def _at_exit_of(pid: int) -> None:
    """Have this process say at its end whether the accelerator was used; a fork has its parent's handlers."""
    global _pid
    _pid = pid
    atexit.register(_at_exit)


def _at_exit() -> None:
    # After Ctrl-C an import here would make Python end with status 1, not by SIGINT: code that is evaluated,
    # as each named tuple's, clears its note of the interrupt.
    if issubclass(getattr(sys, "last_type", None) or object, KeyboardInterrupt):
        return
    if os.getpid() == _pid and (
        os.environ.get(VARIABLE) or "accel_core.current" in sys.modules
    ):
        _tell()


def _tell() -> None:
    with contextlib.suppress(*_ERRORS):
        from accel_core.settings import permitted_entry_points

        for entry_point in permitted_entry_points(AT_EXIT):
            entry_point.load()()


def _apply(wanted: list[str]) -> None:
    """Prepare these integrations; errors become one warning."""
    try:
        problems = _prepare(wanted) if wanted else []
    except _ERRORS as error:  # metadata of somebody's that cannot be read
        problems = [_described(error)]
    if problems:
        _warn(VARIABLE if os.environ.get(VARIABLE) else _PIN, problems)


def _warn(variable: str, problems: list[str]) -> None:
    """Warn that the value of a variable cannot be applied."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "default"
        )  # where warnings are errors this must not become one
        warnings.warn(
            f"{variable}={os.environ.get(variable)!r} cannot be applied: {'; '.join(problems)}. "
            f"Correct it, or unset {variable}.",
            RuntimeWarning,
            stacklevel=4,
        )


def _prepare(wanted: list[str]) -> list[str]:
    """Call what is announced under each name; the sentences say what cannot be done."""
    from accel_core.settings import (
        permitted_entry_points,
    )  # 30 ms, where torch has not loaded it already

    announced = {
        entry_point.name.lower(): entry_point
        for entry_point in reversed(permitted_entry_points(GROUP))
    }
    problems = []
    for name in wanted:
        if name not in announced:
            known = ", ".join(sorted(announced)) or "none; install accel-train again"
            problems.append(
                f"no installed distribution provides an integration {name!r} (known: {known})"
            )
            continue
        try:
            announced[name].load()()
        except _ERRORS as error:
            problems.append(f"{name}: {_described(error)}")
    return problems


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
