"""Check in a child process that torch can be imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from accel_core import torch_build
from accel_core.exceptions import PLUGIN_ERRORS, root_cause, root_place
from accel_core.sandbox import child
from accel_core.text import one_line
from accel_tools.doctor.damage import damage_behind, damage_of
from accel_tools.doctor.installed_package import VendorPackage, vendor_package
from accel_tools.doctor.records import Finding, Level
from accel_tools.doctor.vendor_package import missing_libraries, unmet_libraries

__all__ = ["import_in_child", "torch_finding"]

_CODE = "candidates.torch"


def torch_finding(
    environ: Mapping[str, str], timeout: float, *, proven: bool
) -> Finding:
    """Return the finding on the import of torch.

    Args:
        environ: The environment variables, for the search of libraries.
        timeout: The time limit of the child process in seconds.
        proven: Whether torch is known to work, because a backend works with it. The import is
            then not tried.
    """
    build = torch_build()
    if build is None:
        damage = damage_of("torch")
        if damage is not None:
            return Finding(Level.ERROR, _CODE, damage.what, damage.step)
        return Finding(Level.ERROR, _CODE, "torch is not installed", "accel setup")
    version = build.version
    package = vendor_package("torch")
    facts = {"torch": f"{version} in {package.folder}" if package else version}
    trial = _Trial() if proven else _try_import(timeout)
    if trial.failure and not trial.timed_out and not trial.is_unstarted:
        return _failure_finding(version, trial, package, facts, environ)
    level, what, step = Level.OK, f"torch {version} can be imported", ""
    if trial.timed_out:
        # On a slow or busy disk, a timeout is not necessarily a problem.
        level = Level.WARNING
        what = f"could not determine whether torch {version} can be imported: {trial.failure}"
        step = "allow more time: --timeout 300"
    elif trial.is_unstarted:
        level = Level.ERROR
        facts["root cause"] = trial.failure
        what = f"torch {version} was not tried, because no process could be started: {trial.failure}"
        step = _step_without_process(trial.failure)
    return Finding(level, _CODE, what, step, facts=facts)


def _failure_finding(
    version: str,
    trial: _Trial,
    package: VendorPackage | None,
    known: Mapping[str, str],
    environ: Mapping[str, str],
) -> Finding:
    """Return the finding on a torch that cannot be imported."""
    facts = {**known, "root cause": trial.failure, "raised by": trial.place}
    if package is not None:
        unmet = unmet_libraries(package, environ)
        facts["missing libraries"] = missing_libraries(unmet)
    facts = {name: value for name, value in facts.items() if value}
    what = f"torch {version} cannot be imported: {trial.failure}"
    damage = damage_behind("torch", f"{trial.failure} {trial.place}")
    if damage is not None:
        step, proof = damage.step, damage.what
        return Finding(Level.ERROR, _CODE, what, step, facts=facts, proof=proof)
    return Finding(Level.ERROR, _CODE, what, _step(trial.failure), facts=facts)


#: Patterns of errors whose cause no experiment can prove, and the next step for each.
_STEPS = {
    r"executable stack": (
        "pip install --upgrade torch: this system rejects libraries that require an "
        "executable stack"
    ),
    r"Cannot allocate memory|failed to map|MemoryError": (
        "give the process more memory: `ulimit -a` shows the shell's limits; the control "
        "group or the job may limit it, too"
    ),
}


def _step(failure: str) -> str:
    """Return the next step after an error; empty if no next step is known."""
    for pattern, step in _STEPS.items():
        if re.search(pattern, failure):
            return step
    return ""


def _step_without_process(failure: str) -> str:
    """Return the next step if no child process can be started; empty if none is known."""
    if "File too large" in failure:
        return "ulimit -f unlimited, where the limit is set"
    if "no temporary file" in failure:
        return "export TMPDIR=FOLDER, a folder that you may write to, with free space"
    if "temporarily unavailable" in failure:  # EAGAIN of fork(2)
        return (
            "raise the limit of processes: `ulimit -u` of this user, or `pids.max` of "
            "the container's control group"
        )
    return ""


class _Trial(NamedTuple):
    """Result of an attempt to import torch."""

    #: The reason why the import failed; empty if it succeeded.
    failure: str = ""
    #: The file and line that raised the error; empty if unknown.
    place: str = ""
    timed_out: bool = False
    #: Whether no process could be started; `failure` is the reason.
    is_unstarted: bool = False


def _try_import(timeout: float) -> _Trial:
    """Import torch in a child process, and return the result."""
    try:
        report = child.run(import_in_child, {}, timeout)
    except OSError as error:
        return _Trial(one_line(str(error)), is_unstarted=True)
    if report.answer is not None:
        cause, place = report.answer["cause"], report.answer["where"]
        return _Trial(one_line(str(cause)), one_line(str(place)))
    if report.timed_out:
        return _Trial(f"no response within {report.waited:g} s", timed_out=True)
    return _Trial(one_line(f"its process {report.ending}{report.last_words}"))


def import_in_child(
    _: dict[str, object], stage: Callable[[str], None]
) -> dict[str, object]:
    """Import torch as a program does, and return the cause and place of an error.

    Runs in a child process. Both values are empty if the import succeeds.
    """
    stage("import of torch")
    try:
        import torch  # noqa: F401
    except PLUGIN_ERRORS as error:
        return {"cause": root_cause(error), "where": root_place(error)}
    return {"cause": "", "where": ""}
