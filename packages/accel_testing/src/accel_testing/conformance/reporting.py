"""A pytest plugin with which a child process of `accel verify` reports the results of its checks.

It writes a line of JSON when a check begins and another when it has ended, at once, because the process may
crash in the next check.
"""

from __future__ import annotations

import json
import re
from typing import IO, Any

import pytest

from accel_testing.conformance.claims import NOT_CLAIMED

__all__ = ["pytest_addoption"]

_LONGEST = 2000
_channel: IO[str] | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--accel-results`."""
    parser.addoption(
        "--accel-results",
        metavar="FILE",
        help="Where accel verify reads what comes of the checks.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Open the file."""
    global _channel
    _channel = open(config.getoption("--accel-results"), "a", encoding="utf-8")  # noqa: PTH123, SIM115


def _say(**line: object) -> None:
    assert _channel is not None
    _channel.write(json.dumps(line) + "\n")
    _channel.flush()


def pytest_runtest_logstart(nodeid: str) -> None:
    """A check begins."""
    _say(begins=_node(nodeid))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Return a part of a check has ended: its set-up, itself, or its tear-down."""
    outcome = yield
    report = outcome.get_result()
    found = _outcome(report)
    if found:
        _say(
            ended=_node(item.nodeid),
            outcome=found,
            message=_message(report, call),
            seconds=report.duration,
        )


def _node(nodeid: str) -> str:
    return nodeid.partition("::")[2]


def _outcome(report: pytest.TestReport) -> str:
    """In the words of `records.Outcome`; empty where the last word is not spoken yet."""
    if report.when == "call" or report.skipped:
        if hasattr(report, "wasxfail"):
            return "expected failure" if report.skipped else "unexpected pass"
        if report.skipped:
            return "not claimed" if NOT_CLAIMED in _reason(report) else "skipped"
        if report.failed and str(report.longrepr).startswith("[XPASS(strict)]"):
            return "unexpected pass"
        return report.outcome
    return "not run" if report.failed else ""


def _reason(report: pytest.TestReport) -> str:
    found = report.longrepr
    text = found[2] if isinstance(found, tuple) else str(found or "")
    return text.removeprefix("Skipped: ")


def _message(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    if report.passed and not hasattr(report, "wasxfail"):
        return ""
    if getattr(report, "wasxfail", ""):
        return str(report.wasxfail)
    if report.skipped:
        return _reason(report).removeprefix(NOT_CLAIMED)[:_LONGEST]
    error = call.excinfo.value if call.excinfo else None
    if error is None:
        return str(report.longrepr or "")[:_LONGEST]
    name = type(error).__name__
    words = str(error).strip()
    return (words if name == "BrokenPromise" else f"{name}: {words}")[
        :_LONGEST
    ] + _asked_for(words)


#: Python's words, and those of FSDP's handle (torch 2.13, torch/distributed/fsdp/_common_utils.py).
_LACKS = re.compile(
    r"(?:module|not implement) 'torch\.(\w+)(?:' has no attribute '|\.)(\w+)'"
)


def _asked_for(words: str) -> str:
    """The class or function that torch asks a device's module for, and does not find there; else nothing."""
    asked = _LACKS.search(words)
    if asked is None or not _is_device(asked[1]):
        return ""
    return (
        f". torch asks the device's module for it: give torch.{asked[1]} a {asked[2]}"
    )


def _is_device(name: str) -> bool:
    import torch  # here, as level 0 has no need of it

    try:
        return torch.device(name).type == name
    except RuntimeError:
        return False
