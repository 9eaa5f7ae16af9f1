"""Check that torch itself can be imported, in a child process, without the packages that it would load."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from accel_core import torch_build
from accel_core.exceptions import PLUGIN_ERRORS, root_cause, root_place
from accel_core.sandbox import child
from accel_core.text import one_line
from accel_tools.doctor.installed_package import vendor_package
from accel_tools.doctor.records import Finding, Level
from accel_tools.doctor.vendor_package import missing_libraries, unmet_libraries

__all__ = ["import_in_child", "torch_finding"]


#: What `_tried` says of a torch that takes too long: on a cold or busy disk that need not be a fault.
_LATE = "late"


def torch_finding(
    environ: Mapping[str, str], timeout: float, *, proven: bool
) -> Finding:
    """Return the finding on torch; `proven`: a backend works with torch, so it need not be tried.

    `timeout`: seconds for the child process.
    """
    build = torch_build()
    if build is None:
        return Finding(
            Level.ERROR, "candidates.torch", "torch is not installed", "accel setup"
        )
    package = vendor_package("torch")
    facts = {
        "torch": f"{build.version} in {package.folder}" if package else build.version
    }
    if proven:
        return Finding(
            Level.OK,
            "candidates.torch",
            f"torch {build.version} can be imported",
            facts=facts,
        )
    failure, place = _tried(timeout)
    if not failure:
        return Finding(
            Level.OK,
            "candidates.torch",
            f"torch {build.version} can be imported",
            facts=facts,
        )
    if failure == _LATE:
        what = f"whether torch {build.version} can be imported is not known: {place}"
        return Finding(
            Level.WARNING,
            "candidates.torch",
            what,
            "give it longer: --timeout 300",
            facts=facts,
        )
    facts |= {"root cause": failure, "raised by": place}
    if package is not None:
        facts["missing libraries"] = missing_libraries(
            unmet_libraries(package, environ)
        )
    return Finding(
        Level.ERROR,
        "candidates.torch",
        f"torch {build.version} cannot be imported: {failure}",
        _step(failure, build.version),
        facts={name: value for name, value in facts.items() if value},
    )


#: Causes that no experiment can show, by the error's text, and the next step.
_STEPS = (
    (
        r"executable stack",
        (
            "pip install --upgrade torch: this system refuses libraries that ask for an "
            "executable stack"
        ),
    ),
    (
        r"Cannot allocate memory|failed to map|MemoryError",
        (
            "give the process more memory: `ulimit -v`, the control group and the job "
            "may limit it"
        ),
    ),
)
#: A file of torch's own that is missing or damaged.
_OWN_FILE = r"No module named 'torch\.|lib(torch|c10|shm)\w*\.so"


def _step(failure: str, version: str) -> str:
    for pattern, step in _STEPS:
        if re.search(pattern, failure):
            return step
    if re.search(_OWN_FILE, failure):
        return f"pip install --force-reinstall 'torch=={version}'"
    return ""


def _tried(timeout: float) -> tuple[str, str]:
    """Why the import fails, and where; both empty where it does not; of a late one, how late."""
    try:
        report = child.run(import_in_child, {}, timeout)
    except OSError as error:
        return f"no process could be started to try it: {error}", ""
    if report.answer is not None:
        return one_line(str(report.answer["cause"])), one_line(
            str(report.answer["where"])
        )
    if report.timed_out:
        return _LATE, f"no response within {report.waited:g} s"
    return one_line(f"its process {report.ending}{report.last_words}"), ""


def import_in_child(
    _: dict[str, object], stage: Callable[[str], None]
) -> dict[str, object]:
    """In the child: import torch, as a program does."""
    stage("import of torch")
    try:
        import torch  # noqa: F401
    except PLUGIN_ERRORS as error:
        return {"cause": root_cause(error), "where": root_place(error)}
    return {"cause": "", "where": ""}
