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
    from accel_simulated.request import Request

__all__ = ["Simulated", "accelerator", "simulated"]

#: The variable that names the file for one device's results, set when the tests run on several devices.
_RESULTS_VARIABLE = "ACCEL_SIMULATE_OUTCOME"
_OUTCOMES = ("passed", "failed", "error", "skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Register the `accel` mark with pytest."""
    config.addinivalue_line(
        "markers",
        "accel(*types, devices=1): skip unless the accelerator has one of these torch device types, and at "
        "least this number of devices",
    )


def pytest_report_header() -> str | None:
    """Return a line for pytest's header that names the simulated device, or `None` if there is none."""
    if "accel_simulated.at_start" not in sys.modules:
        return None
    from accel_simulated.request import current_request

    return f"simulated, no real device: {current_request()} by accel-simulated"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start the simulation before any conftest.py can import torch."""
    option = getattr(early_config.known_args_namespace, "accel", None)
    if not isinstance(option, str) or not option:
        return
    # For several devices, `pytest_cmdline_main` runs pytest once on each device.
    has_several_devices = "," in option
    if not has_several_devices:
        _simulate(option)


def _simulate(text: str) -> None:
    """Simulate the device that `text` names, such as `"acme:2"`, in this process.

    Nothing is simulated if `text` names an installed backend that must run on its real device. Raises
    `pytest.UsageError` if the simulation is not possible, or if this process already simulates a different
    device.
    """
    from accel_core import AccelError
    from accel_simulated import at_start, provider
    from accel_simulated.request import current_request

    if _is_real_backend(text):
        return  # accel_testing.conformance also tests the machine's real accelerators
    try:
        current = current_request()
        if current is not None:
            _require_same_device(text, current)
            return
        if "torch" in sys.modules:
            raise pytest.UsageError(
                f"--accel {text}: a pytest plugin has already imported torch. "
                f"Run: accel simulate {text} -- pytest"
            )
        # The variables are also for the processes that tests start.
        os.environ.update(provider.environment(text))
    except AccelError as error:
        raise pytest.UsageError(f"--accel: {error}") from error
    at_start.begin_simulation()


def _require_same_device(text: str, current: Request) -> None:
    """Raise `pytest.UsageError` if `text` names another device than the one that this process simulates.

    Without a device count in `text`, any number of devices is accepted. Raises `SettingError` if the device
    is unknown.
    """
    from accel_simulated import provider

    request = provider.parse_device(text).request
    has_count = ":" in text
    has_other_count = has_count and current != request
    if current.vendor != request.vendor or has_other_count:
        raise pytest.UsageError(
            f"--accel {text}: this process already simulates {current}, because ACCEL_SIMULATE is set. "
            "Unset that variable, or leave --accel out."
        )


def _is_real_backend(text: str) -> bool:
    """Return whether `text` names an installed backend that must run on its real device.

    A name with a device count, such as `"npu:2"`, always means a simulated device. A backend whose
    declaration allows a simulation counts as real if its vendor's package is installed.
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
    """Return whether the device that a backend declares can be simulated.

    The device must use torch's PrivateUse1 device type, and its vendor's package must not be installed.
    """
    from accel_core import is_installed

    if backend is None or not backend.torch_integration.private_use1:
        return False
    return not any(is_installed(package) for package in backend.vendor_imports)


# --- several devices -----------------------------------------------------------------------------------


class _Run(NamedTuple):
    """The result of running the tests on one device."""

    device: str
    exit_status: int
    #: The number of tests by outcome, such as `"passed"`, or an empty dictionary if the run wrote no results.
    test_counts: dict[str, int]
    #: The ids of the tests that failed or had an error.
    failed_tests: list[str]
    seconds: float


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run the tests once on each device in `--accel A,B`, and return the highest exit status.

    Returns `None` for fewer than two devices, in which case pytest runs the tests as usual.
    """
    option = config.getoption("--accel", None)
    if not isinstance(option, str) or "," not in option:
        return None
    all_arguments = [str(argument) for argument in config.invocation_params.args]
    arguments = _without_accel_option(all_arguments)
    runs = []
    with TemporaryDirectory() as folder:
        for number, device in enumerate(_parse_devices(option)):
            print(f"\n--- on simulated {device}", flush=True)  # noqa: T201 - the title of the run's output
            runs.append(_run_on(device, arguments, Path(folder, str(number))))
    _print_summary(runs)
    return max(run.exit_status for run in runs)


def _run_on(device: str, arguments: list[str], results_file: Path) -> _Run:
    """Run pytest on one device in a child process that writes its results into `results_file`."""
    environ = {**os.environ, _RESULTS_VARIABLE: str(results_file)}
    environ.pop("ACCEL_SIMULATE", None)  # the option `--accel` selects the device
    command = [sys.executable, "-m", "pytest", "--accel", device, *arguments]
    start = time.monotonic()
    exit_status = subprocess.run(command, env=environ, check=False).returncode
    seconds = time.monotonic() - start
    results: dict[str, Any] = {}
    if results_file.exists():
        results = json.loads(results_file.read_text())
    return _Run(
        device=device,
        exit_status=exit_status,
        test_counts=results.get("counts", {}),
        failed_tests=results.get("failed_tests", []),
        seconds=seconds,
    )


def _print_summary(runs: list[_Run]) -> None:
    """Print the tests that fail on only some of the devices, and a table with a row for each device."""
    for line in _describe_partial_failures(runs):
        print(line)  # noqa: T201 - the summary of the runs
    # The first column is 16 characters wide, and each other column 10.
    titles = "".join(f"{title:>10}" for title in (*_OUTCOMES, "seconds", "status"))
    print(f"\n{'simulated':<16}{titles}")  # noqa: T201 - the summary of the runs
    for run in runs:
        counts = "".join(
            f"{run.test_counts.get(outcome, '-'):>10}" for outcome in _OUTCOMES
        )
        print(f"{run.device:<16}{counts}{run.seconds:>10.1f}{run.exit_status:>10}")  # noqa: T201


def _describe_partial_failures(runs: list[_Run]) -> list[str]:
    """Return lines that name the tests that fail on some of the devices but not on all."""
    devices_of_test: dict[str, list[str]] = {}
    for run in runs:
        for test in run.failed_tests:
            devices = devices_of_test.setdefault(test, [])
            # A test with both a failure and an error is in the list twice.
            if run.device not in devices:
                devices.append(run.device)
    all_devices = {run.device for run in runs}
    lines = [
        f"{test}: on {', '.join(devices)}"
        for test, devices in devices_of_test.items()
        if len(devices) < len(all_devices)
    ]
    if not lines:
        return []
    return ["", "fails on some only:", *lines]


def _parse_devices(option: str) -> list[str]:
    """Return the devices in a value of the `--accel` option, such as `"cuda,acme:2"`.

    Raises `pytest.UsageError` if a device is unknown, so that no test runs.
    """
    from accel_core import SettingError
    from accel_simulated.provider import parse_device

    devices = [part.strip() for part in option.split(",") if part.strip()]
    devices_to_check = devices
    if not devices:  # the option is invalid as a whole, such as ","
        devices_to_check = [option]
    try:
        for device in devices_to_check:
            if not _is_real_backend(device):
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
            next(remaining, None)  # the next argument is the option's value
        elif not argument.startswith("--accel="):
            kept.append(argument)
    return kept


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the results of this test run into a file for the parent process.

    The parent process runs the tests once on each device and combines the results.
    """
    file = os.environ.pop(_RESULTS_VARIABLE, "")
    if not file:
        return
    reports = {
        outcome: terminalreporter.stats.get(outcome, ()) for outcome in _OUTCOMES
    }
    failed = [*reports["failed"], *reports["error"]]
    results = {
        "counts": {outcome: len(reports[outcome]) for outcome in _OUTCOMES},
        "failed_tests": [report.nodeid for report in failed],
    }
    Path(file).write_text(json.dumps(results))


# --- fixtures and the mark -----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def accelerator() -> Accelerator:
    """Return the accelerator that accel-core chooses, which is the simulated one under `--accel`."""
    import accel_core

    return accel_core.get_accelerator()


class Simulated:
    """The controls that a test uses to change the simulated device's behavior in its own process."""

    def __init__(self) -> None:
        from accel_simulated import device, faults

        self._device, self._faults = device, faults
        #: The device's name as used in `--accel`, such as `"acme"`.
        self.name: str = device.vendor.name

    def injected(self, faults: str) -> AbstractContextManager[None]:
        """Return a context manager that injects faults such as `"oom@10,slow=2.5"` into the simulated device.

        Entering the `with` block raises `SettingError` if a fault is invalid.
        """
        return self._faults.injected(faults)

    def held(self, stream: Any = None) -> AbstractContextManager[None]:
        """Return a context manager that holds back the work queued on a stream until its `with` block ends.

        `stream` defaults to the current stream.
        """
        return self._device.held(stream)

    def set_memory_limit(self, size: int) -> None:
        """Set the memory size of every simulated device to `size` bytes until the test ends."""
        self._device.set_memory_limit(size)


@pytest.fixture
def simulated(accelerator: Accelerator) -> Iterator[Simulated]:
    """Yield the controls of the simulated device, or skip the test if no device is simulated."""
    from accel_simulated import device

    if not hasattr(device, "library"):
        pytest.skip(f"{accelerator.name} is not simulated. Run pytest --accel acme.")
    yield Simulated()
    device.set_memory_limit()  # restores the initial sizes


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the test if its `accel` mark does not match the accelerator."""
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
                f"only for {', '.join(mark.args)}, but the accelerator is {device_type}"
            )
        required_count = mark.kwargs.get("devices", 1)
        count = accelerator.device_count()
        if count < required_count:
            pytest.skip(
                f"needs {required_count} {device_type} devices, but the machine has {count}"
            )
