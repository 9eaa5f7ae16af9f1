"""Check in a child process that torch can be imported."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from typing import NamedTuple

from accel_core import torch_build
from accel_core.exceptions import PLUGIN_ERRORS, root_cause, root_place
from accel_core.sandbox import child
from accel_core.text import one_line
from accel_tools.doctor.damage import find_damage, find_damage_of_import
from accel_tools.doctor.defects import find_stale_metadata
from accel_tools.doctor.installed_package import VendorPackage, find_vendor_package
from accel_tools.doctor.records import Finding, Level
from accel_tools.doctor.vendor_package import describe_unmet, package_unmet_dependencies

__all__ = ["import_in_child", "torch_import_finding"]

_CODE = "candidates.torch"


def torch_import_finding(
    environ: Mapping[str, str], timeout: float, *, is_known_to_work: bool
) -> Finding:
    """Return the finding about whether torch can be imported.

    Args:
        environ: The environment variables that affect the search for libraries.
        timeout: The time limit of the child process in seconds.
        is_known_to_work: Whether torch is known to work, because a backend works with torch. In this case,
            no child process imports torch.
    """
    build = torch_build()
    if build is None:
        return _missing_torch_finding()
    version = build.version
    package = find_vendor_package("torch")
    facts = {"torch": version}
    if package is not None:
        facts["torch"] = f"{version} in {package.folder}"
    result = _ImportResult()  # The import has not failed.
    if not is_known_to_work:
        result = _import_in_child_process(timeout)
    if result.timed_out or result.start_failed:
        return _unknown_import_finding(version, result, facts)
    if result.failure:
        return _failed_import_finding(version, result, package, facts, environ)
    stale = find_stale_metadata("torch", version)
    if stale:
        what = (
            f"torch {version} can be imported, but metadata of another torch version remains: "
            f"{', '.join(stale)}"
        )
        step = f"rm -r {shlex.join(stale)}"
        return Finding(Level.WARNING, _CODE, what, step, facts=facts)
    return Finding(Level.OK, _CODE, f"torch {version} can be imported", facts=facts)


def _missing_torch_finding() -> Finding:
    """Return the finding that torch is not installed, or that its installed files are damaged."""
    damage = find_damage("torch")
    if damage is not None:
        return Finding(Level.ERROR, _CODE, damage.what, damage.step)
    what = "torch is not installed"
    leftover = _folder_without_init("torch")
    if leftover:
        what += f", but {leftover} exists without __init__.py, probably because pip was interrupted"
    return Finding(Level.ERROR, _CODE, what, "accel setup")


def _folder_without_init(module: str) -> str:
    """Return the folder that Python imports as a namespace package, or an empty string."""
    # A folder without __init__.py is a namespace package, which has folders but no origin.
    spec = PathFinder.find_spec(module)
    if spec is None or spec.origin is not None or not spec.submodule_search_locations:
        return ""
    return next(iter(spec.submodule_search_locations))


def _unknown_import_finding(
    version: str, result: _ImportResult, facts: Mapping[str, str]
) -> Finding:
    """Return the finding that a child process could not be started, or did not end in time."""
    failure = result.failure
    what = f"could not determine whether torch {version} can be imported"
    if result.timed_out:
        # On a slow or busy disk, a timeout is not necessarily a problem.
        what = f"{what}: {failure}"
        step = "allow more time: --timeout 300"
        return Finding(Level.WARNING, _CODE, what, step, facts=facts)
    what = f"{what}, because no process could be started"
    step = _step_without_process(failure)
    return Finding(Level.ERROR, _CODE, what, step, facts=facts, cause=failure)


def _failed_import_finding(
    version: str,
    result: _ImportResult,
    package: VendorPackage | None,
    known_facts: Mapping[str, str],
    environ: Mapping[str, str],
) -> Finding:
    """Return the finding that torch cannot be imported, with the error and missing libraries."""
    facts = dict(known_facts)
    if result.place:
        facts["raised by"] = result.place
    if package is not None:
        unmet = package_unmet_dependencies(package, environ)
        missing = describe_unmet(unmet)
        if missing:
            facts["missing libraries"] = missing
    finding = Finding(
        Level.ERROR,
        _CODE,
        f"torch {version} cannot be imported",
        _step_after_error(result.failure),
        facts=facts,
        cause=result.failure,
    )
    damage = find_damage_of_import("torch", f"{result.failure} {result.place}")
    if damage is not None:
        return finding._replace(step=damage.step, proof=damage.what)
    return finding


#: The next step by the pattern of an error, for errors whose cause no experiment can prove.
_STEPS_BY_ERROR = {
    r"executable stack": (
        "pip install --upgrade torch: this system rejects libraries that require an "
        "executable stack"
    ),
    r"Cannot allocate memory|failed to map|MemoryError": (
        "give the process more memory: its limit may be set by `ulimit` (`ulimit -a` lists the limits), "
        "the control group or the job"
    ),
}


def _step_after_error(failure: str) -> str:
    """Return the next step after an error of torch's import.

    Returns an empty string if no next step is known.
    """
    for pattern, step in _STEPS_BY_ERROR.items():
        if re.search(pattern, failure):
            return step
    return ""


def _step_without_process(failure: str) -> str:
    """Return the next step after a child process could not be started.

    Returns an empty string if no step is known.
    """
    if "File too large" in failure:
        return "run `ulimit -f unlimited` where the limit is set"
    if "no temporary file" in failure:
        return (
            "export TMPDIR=FOLDER, where FOLDER has free space and you may write to it"
        )
    if "temporarily unavailable" in failure:  # EAGAIN of fork(2)
        return (
            "raise the limit on processes: `ulimit -u` of this user, or `pids.max` of "
            "the container's control group"
        )
    return ""


class _ImportResult(NamedTuple):
    """The result of an attempt to import torch in a child process."""

    #: The reason why the import failed, or an empty string if the import succeeded.
    failure: str = ""
    #: The file and line that raised the error, or an empty string if unknown.
    place: str = ""
    timed_out: bool = False
    #: Whether no process could be started; `failure` is the reason.
    start_failed: bool = False


def _import_in_child_process(timeout: float) -> _ImportResult:
    """Import torch in a child process, and return the result."""
    try:
        report = child.run(import_in_child, {}, timeout)
    except OSError as error:
        return _ImportResult(one_line(str(error)), start_failed=True)
    if report.answer is not None:
        answer = report.answer
        return _ImportResult(
            failure=one_line(str(answer["root_cause"])),
            place=one_line(str(answer["place"])),
        )
    if report.timed_out:
        return _ImportResult(f"no response within {report.timeout:g} s", timed_out=True)
    return _ImportResult(one_line(f"its process {report.ending}{report.last_words}"))


def import_in_child(
    _: dict[str, object], stage: Callable[[str], None]
) -> dict[str, object]:
    """Import torch in a child process, and return the root cause and the location of an error.

    Both values are empty strings if the import succeeds.
    """
    stage("import of torch")
    try:
        import torch  # noqa: F401
    except PLUGIN_ERRORS as error:
        return {"root_cause": root_cause(error), "place": root_place(error)}
    return {"root_cause": "", "place": ""}
