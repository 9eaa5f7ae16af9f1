"""Code that runs at every `import torch`, as an entry point of torch's group `torch.backends`.

An activation (`accel_train.deepspeed.activate()`) must also hold in child processes: spawned workers and
launched ranks are new interpreters, which inherit only environment variables. This module applies the
activation there. It does nothing unless the variable is set, and it never raises: if an entry point of this
group fails, torch cannot be imported.

It is a package of its own, because `import torch` must not import accel-train, and must not fail with it. An
entry point in group `accel.integrations` names the function to call for an integration.
"""

from __future__ import annotations

import os
import warnings

__all__ = ["AT_START", "GROUP", "VARIABLE", "autoload", "names"]

#: A folder that on `PYTHONPATH` has this called where torch's autoload is off.
AT_START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "at_start")  # noqa: PTH100, PTH118, PTH120

#: Set by `activate()` for child processes: frameworks to hand ours to, by comma.
VARIABLE = "ACCEL_INTEGRATIONS"
#: Entry points named as the framework: `deepspeed = "accel_train.deepspeed:prepare"`.
GROUP = "accel.integrations"
_ERRORS = (Exception, SystemExit)


def names(text: str) -> tuple[str, ...]:
    """Return the names in the variable's comma-separated list, in lower case."""
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def autoload() -> None:
    """Prepare the integrations that `ACCEL_INTEGRATIONS` names; errors become one warning.

    Preparing imports neither the framework nor a vendor's package, and chooses no accelerator.
    """
    # Read here first: nearly every process that imports torch is none of our business.
    text = os.environ.get(VARIABLE)
    if not text:
        return
    try:
        problems = _prepare(names(text))
    except _ERRORS as error:  # metadata of somebody's that cannot be read
        problems = [_described(error)]
    if problems:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # where warnings are errors this must not become one
            warnings.warn(
                f"{VARIABLE}={text!r} cannot be applied: {'; '.join(problems)}. "
                f"Correct it, or unset {VARIABLE}.",
                RuntimeWarning,
                stacklevel=2,
            )


def _prepare(wanted: tuple[str, ...]) -> list[str]:
    """Call what is announced under each name; the sentences say what cannot be done."""
    from accel_core.toolkit import entry_points  # 30 ms, where torch has not loaded it already

    announced = {entry_point.name.lower(): entry_point for entry_point in reversed(entry_points(GROUP))}
    problems = []
    for name in wanted:
        if name not in announced:
            known = ", ".join(sorted(announced)) or "none; install accel-train again"
            problems.append(f"no installed distribution provides an integration {name!r} (known: {known})")
            continue
        try:
            announced[name].load()()
        except _ERRORS as error:
            problems.append(f"{name}: {_described(error)}")
    return problems


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
