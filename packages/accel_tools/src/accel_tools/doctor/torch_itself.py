"""Check that torch itself can be imported, in a child process, without the packages that it would load."""

from __future__ import annotations

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
        f"pip install --force-reinstall 'torch=={build.version}'",
        facts={name: value for name, value in facts.items() if value},
    )


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
        return _LATE, f"no answer within {report.waited:g} s"
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
