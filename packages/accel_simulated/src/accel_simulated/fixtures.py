"""Run tests on simulated devices: `pytest --accel acme:2`.

`--accel cuda,acme` runs the tests once for each device, and prints a table. accel-core has the option itself.
This plugin adds the fixtures `accelerator` and `simulated`, and the mark `accel("cuda", devices=2)`, which
skips a test if the accelerator has a different type or fewer devices. pytest imports this module in every
run, so the other modules of the package are imported only on use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from accel_core import Accelerator, Backend

__all__ = ["Simulated", "accelerator", "simulated"]

#: The variable that names the file for the results of one device's run, if tests run on several devices.
_OUTCOME = "ACCEL_SIMULATE_OUTCOME"
_COLUMNS = ("passed", "failed", "error", "skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark `accel`."""
    config.addinivalue_line(
        "markers",
        "accel(*types, devices=1): skip unless the accelerator has one of these torch device types, and at "
        "least this number of devices",
    )


def pytest_report_header() -> str | None:
    """Return a line about the simulation for pytest's header; `None` if nothing is simulated."""
    if "accel_simulated.at_start" not in sys.modules:
        return None
    from accel_simulated.request import current_request

    return f"simulated, no real device: {current_request()} by accel-simulated"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start the simulation before a conftest.py can import torch."""
    device = getattr(early_config.known_args_namespace, "accel", None)
    if isinstance(device, str) and device and "," not in device:
        _simulate(device)


def _simulate(text: str) -> None:
    """Simulate the device `text` in this process, unless this machine has the device.

    Raises `pytest.UsageError` if the simulation is not possible, or if this process already simulates a
    different device.
    """
    from accel_core import AccelError
    from accel_simulated import at_start, provider
    from accel_simulated.request import current_request

    if _is_real(text):
        return  # accel_testing.conformance also tests the machine's real accelerators
    try:
        current = current_request()
        if current is None and "torch" in sys.modules:
            raise pytest.UsageError(
                f"--accel {text}: a pytest plugin has already imported torch. "
                f"Run: accel simulate {text} -- pytest"
            )
        request, _ = provider.parse_device(text)
        variables = provider.environment(text) if current is None else {}
    except AccelError as error:
        raise pytest.UsageError(f"--accel: {error}") from error
    if current is None:
        os.environ.update(variables)  # for the processes that tests start, too
        at_start.begin()
        return
    is_other_count = ":" in text and current != request
    if current.vendor != request.vendor or is_other_count:
        raise pytest.UsageError(
            f"--accel {text}: this process already simulates {current}, by ACCEL_SIMULATE. Unset that "
            "variable, or leave --accel out."
        )


def _is_real(text: str) -> bool:
    """Return whether `text` is the name, without a count, of an installed backend that is not simulated.

    A backend whose declaration allows a simulation counts as real if its vendor's package is installed.
    """
    from accel_core import discover
    from accel_simulated import DEVICES

    name = text.strip().lower()
    if name in DEVICES:
        return False
    for candidate in discover():
        if candidate.name == name and not _can_be_simulated(candidate.backend):
            return True
    return False


def _can_be_simulated(backend: Backend | None) -> bool:
    """Return whether the declared device uses PrivateUse1, and its vendor's package is not installed."""
    from accel_core import is_installed

    if backend is None or not backend.torch_integration.private_use1:
        return False
    return not any(is_installed(package) for package in backend.vendor_imports)


# --- several devices -----------------------------------------------------------------------------------


class _Run(NamedTuple):
    """One run of the tests, on one device."""

    device: str
    exit_status: int
    #: The number of tests by outcome, and the list of failed tests under `not passed`; empty if the run wrote
    #: no results.
    outcome: dict[str, Any]
    seconds: float


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run the tests once per device and return the highest exit status; `None` for fewer than two devices."""
    option = config.getoption("--accel", None)
    if not isinstance(option, str) or "," not in option:
        return None
    arguments = _without_accel_option(list(map(str, config.invocation_params.args)))
    runs = []
    with TemporaryDirectory() as folder:
        for number, device in enumerate(_parse_devices(option)):
            print(f"\n--- on simulated {device}", flush=True)  # noqa: T201 - the title of the run's output
            runs.append(_run_on(device, arguments, Path(folder, str(number))))
    _print_summary(runs)
    return max(run.exit_status for run in runs)


def _run_on(device: str, arguments: list[str], outcome_file: Path) -> _Run:
    """Run pytest for one device in a separate process."""
    environ = {**os.environ, _OUTCOME: str(outcome_file)}
    environ.pop("ACCEL_SIMULATE", None)
    command = [sys.executable, "-m", "pytest", "--accel", device, *arguments]
    began = time.monotonic()
    exit_status = subprocess.run(command, env=environ, check=False).returncode
    seconds = time.monotonic() - began
    outcome = json.loads(outcome_file.read_text()) if outcome_file.exists() else {}
    return _Run(device, exit_status, outcome, seconds)


def _print_summary(runs: list[_Run]) -> None:
    """Print the tests that fail on only some of the devices, and a table with a row for each device."""
    for line in _differences(runs):
        print(line)  # noqa: T201 - the summary of the runs
    titles = "".join(f"{title:>10}" for title in (*_COLUMNS, "seconds", "status"))
    print(f"\n{'simulated':<16}{titles}")  # noqa: T201 - the summary of the runs
    for run in runs:
        counts = "".join(f"{run.outcome.get(column, '-'):>10}" for column in _COLUMNS)
        print(f"{run.device:<16}{counts}{run.seconds:>10.1f}{run.exit_status:>10}")  # noqa: T201


def _differences(runs: list[_Run]) -> list[str]:
    """Return lines about the tests that fail on some, but not on all devices."""
    devices_of_test: dict[str, list[str]] = {}
    for run in runs:
        for test in dict.fromkeys(run.outcome.get("not passed", [])):
            devices_of_test.setdefault(test, []).append(run.device)
    lines = [
        f"{test}: on {', '.join(devices)}"
        for test, devices in devices_of_test.items()
        if len(devices) < len({run.device for run in runs})
    ]
    if not lines:
        return []
    return ["", "fails on some only:", *lines]


def _parse_devices(option: str) -> list[str]:
    """Return the devices in the option `--accel`.

    Raises `pytest.UsageError` for an unknown device before any test runs.
    """
    from accel_core import SettingError
    from accel_simulated.provider import parse_device

    devices = [part.strip() for part in option.split(",") if part.strip()]
    try:
        for device in devices or [option]:
            if not _is_real(device):
                parse_device(device)
    except SettingError as error:
        raise pytest.UsageError(f"--accel: {error}") from error
    return devices


def _without_accel_option(arguments: list[str]) -> list[str]:
    """Return pytest's arguments without `--accel DEVICES` and `--accel=DEVICES`."""
    kept = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--accel":
            next(remaining, None)  # its value
        elif not argument.startswith("--accel="):
            kept.append(argument)
    return kept


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the results of this run for the parent process that runs the tests on several devices."""
    file = os.environ.pop(_OUTCOME, "")
    if not file:
        return
    reports = {column: terminalreporter.stats.get(column, ()) for column in _COLUMNS}
    outcome: dict[str, Any] = {
        column: len(of_column) for column, of_column in reports.items()
    }
    not_passed = [*reports["failed"], *reports["error"]]
    outcome["not passed"] = [report.nodeid for report in not_passed]
    Path(file).write_text(json.dumps(outcome))


# --- fixtures and the mark -----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def accelerator() -> Accelerator:
    """Return the accelerator that accel-core chooses, which `--accel` makes the simulated accelerator."""
    import accel_core

    return accel_core.get_accelerator()


class Simulated:
    """Controls the simulated device in the process that runs the test."""

    def __init__(self) -> None:
        from accel_simulated import device, faults

        self._device, self._faults = device, faults
        #: The device's name in `--accel`, such as `"acme"`.
        self.name: str = device.vendor.name

    def injected(self, faults: str) -> AbstractContextManager[None]:
        """Return a context manager that injects faults, such as `"oom@10,slow=2.5"`.

        Entering the context raises `SettingError` for an invalid fault.
        """
        return self._faults.injected(faults)

    def held(self, stream: Any = None) -> AbstractContextManager[None]:
        """Return a context manager that stops a stream, so that the stream's queued work waits.

        `stream`: by default, the current one.
        """
        return self._device.held(stream)

    def set_memory_limit(self, size: int) -> None:
        """Set the memory size of each device, in bytes, until the test ends."""
        self._device.set_memory_limit(size)


@pytest.fixture
def simulated(accelerator: Accelerator) -> Iterator[Simulated]:
    """Yield the control of the simulated device; skip the test if no device is simulated."""
    from accel_simulated import device

    if not hasattr(device, "library"):
        pytest.skip(f"{accelerator.name} is not simulated. Run pytest --accel acme.")
    yield Simulated()
    device.set_memory_limit()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the test if its mark `accel` does not match the accelerator."""
    for mark in item.iter_markers("accel"):
        unknown = mark.kwargs.keys() - {"devices"}
        if unknown:
            raise pytest.UsageError(
                f"unknown arguments of the mark `accel`: {', '.join(sorted(unknown))}; expected devices=N"
            )
        import accel_core

        accelerator = accel_core.get_accelerator()
        device_type = accelerator.device_type
        if mark.args and device_type not in mark.args:
            pytest.skip(
                f"for {', '.join(mark.args)}, and the accelerator is {device_type}"
            )
        needed, count = mark.kwargs.get("devices", 1), accelerator.device_count()
        if count < needed:
            pytest.skip(
                f"needs {needed} devices, and there are {count} of {device_type}"
            )
