"""A pytest plugin that reports the results of checks from a child process to `accel verify`.

The plugin writes a line of JSON when a check begins, and another line when the check has ended. Each line is
written immediately, because the process may crash in the next check.
"""

from __future__ import annotations

import json
import re
from typing import IO, Any

import pytest

from accel_testing.conformance.claims import NOT_CLAIMED

__all__ = ["pytest_addoption"]

_MAX_MESSAGE = 2000
_results_file: IO[str] | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--accel-results` to pytest."""
    parser.addoption(
        "--accel-results",
        metavar="FILE",
        help="File from which accel verify reads the results of the checks.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Open the file for the results of the checks."""
    global _results_file
    _results_file = open(config.getoption("--accel-results"), "a", encoding="utf-8")  # noqa: PTH123, SIM115


def _write_record(**line: object) -> None:
    """Write a line of JSON, and flush the file."""
    assert _results_file is not None
    _results_file.write(json.dumps(line) + "\n")
    _results_file.flush()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Record the start of a check."""
    _write_record(begins=_node_in_file(nodeid))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Record the result of the setup, call or teardown of a check."""
    outcome = yield
    report = outcome.get_result()
    result = _outcome_name(report)
    if result:
        _write_record(
            ended=_node_in_file(item.nodeid),
            outcome=result,
            message=_message(report, call),
            seconds=report.duration,
            is_lost=_is_connection_lost(report, call),
        )


def _node_in_file(nodeid: str) -> str:
    """Return a pytest node id without its file."""
    return nodeid.partition("::")[2]


def _outcome_name(report: pytest.TestReport) -> str:
    """Return the `records.Outcome` value for a report, or an empty string if a later report has it."""
    if report.when != "call" and not report.skipped:
        return "not run" if report.failed else ""
    if hasattr(report, "wasxfail"):
        return "expected failure" if report.skipped else "unexpected pass"
    if report.skipped:
        return "not claimed" if NOT_CLAIMED in _skip_reason(report) else "skipped"
    if report.failed and str(report.longrepr).startswith("[XPASS(strict)]"):
        return "unexpected pass"
    return report.outcome


def _is_connection_lost(report: pytest.TestReport, call: pytest.CallInfo[None]) -> bool:
    """Return whether the check failed because the connection to the device was lost."""
    error = call.excinfo.value if call.excinfo and report.failed else None
    while error is not None:
        if isinstance(error, ConnectionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _skip_reason(report: pytest.TestReport) -> str:
    """Return the reason why a check was skipped."""
    location_and_reason = report.longrepr
    if isinstance(location_and_reason, tuple):
        text = location_and_reason[2]
    else:
        text = str(location_and_reason or "")
    return text.removeprefix("Skipped: ")


def _message(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    """Return why a check did not pass, or an empty string if it did.

    The text of an error or skip is cut to `_MAX_MESSAGE` characters.
    """
    if report.passed and not hasattr(report, "wasxfail"):
        return ""
    if getattr(report, "wasxfail", ""):
        return str(report.wasxfail)
    if report.skipped:
        return _skip_reason(report).removeprefix(NOT_CLAIMED)[:_MAX_MESSAGE]
    error = call.excinfo.value if call.excinfo else None
    if error is None:
        return str(report.longrepr or "")[:_MAX_MESSAGE]
    error_text = str(error).strip()
    message = error_text
    if type(error).__name__ != "BrokenPromise":
        message = f"{type(error).__name__}: {error_text}"
    return message[:_MAX_MESSAGE] + _missing_function(error_text)


#: Messages of Python, and of FSDP's handle (torch 2.13, torch/distributed/fsdp/_common_utils.py), about a
#: function that is missing in the device's torch module.
_MISSING_FUNCTION = re.compile(
    r"(?:module|not implement) 'torch\.(\w+)(?:' has no attribute '|\.)(\w+)'"
)


def _missing_function(error_text: str) -> str:
    """Return a hint if the device's module lacks a function that torch calls, or an empty string."""
    match = _MISSING_FUNCTION.search(error_text)
    if match is None or not _is_device(match[1]):
        return ""
    return f". torch calls this function in the device's module: add {match[2]} to torch.{match[1]}"


def _is_device(name: str) -> bool:
    """Return whether torch has a device type named `name`."""
    import torch  # imported here, because level 0 does not need torch

    try:
        return torch.device(name).type == name
    except RuntimeError:
        return False
