"""`pytest --accel acme:2`: the tests on simulated devices; of `--accel cuda,acme` one run each, and a table.

The option is accel-core's. This brings the fixtures `accelerator` and `simulated`, and the mark
`accel("cuda", devices=2)`, which skips a test with the reason where the accelerator is another, or has fewer
devices. pytest imports this in every run: nothing else of the package is, unless it is asked for.
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
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from accel_core import Accelerator

__all__ = ["Simulated", "accelerator", "simulated"]

#: The file in which a run of several says how it ended.
_OUTCOME = "ACCEL_SIMULATE_OUTCOME"
_COLUMNS = ("passed", "failed", "error", "skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark `accel`."""
    text = "accel(*types, devices=1): skip unless the accelerator is of one of these torch device types"
    config.addinivalue_line("markers", f"{text}, and has so many devices")


def pytest_report_header() -> str | None:
    """Return a line that says that the run is on a simulated device."""
    if "accel_simulated.at_start" not in sys.modules:
        return None
    from accel_simulated.asked import asked

    return f"simulated, no real device: {asked()} by accel-simulated"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start the simulation before a conftest.py may import torch."""
    wanted = getattr(early_config.known_args_namespace, "accel", None)
    if isinstance(wanted, str) and wanted and "," not in wanted:
        _simulate(wanted)


def _simulate(text: str) -> None:
    from accel_core import AccelError
    from accel_simulated import at_start, provider
    from accel_simulated.asked import asked

    if _is_here(text):
        return  # an accelerator of this machine's: accel_testing.conformance checks those too
    try:
        started = asked()
        if started is None and "torch" in sys.modules:
            raise pytest.UsageError(
                f"--accel {text}: a plugin of pytest has imported torch already. "
                f"Run: accel simulate {text} -- pytest"
            )
        wanted, _ = provider.understood(text)
        variables = provider.environment(text) if started is None else {}
    except AccelError as error:
        raise pytest.UsageError(f"--accel: {error}") from error
    if started is None:
        os.environ.update(variables)  # whatever the tests start has the devices too
        at_start.begin()
    elif started.vendor != wanted.vendor or (":" in text and started != wanted):
        raise pytest.UsageError(
            f"--accel {text}: ACCEL_SIMULATE has this process simulate {started} already. Unset it, or leave "
            "--accel out."
        )


def _is_here(text: str) -> bool:
    """Whether it names, without a count, a backend that is installed and nothing that is simulated.

    With a declaration by which it could be simulated: that the vendor's package is installed too.
    """
    from accel_core import discover, is_installed
    from accel_simulated import DEVICES

    name = text.strip().lower()
    return name not in DEVICES and any(
        each.backend is None
        or not each.backend.torch_integration.private_use1
        or any(map(is_installed, each.backend.vendor_imports))
        for each in discover()
        if each.name == name
    )


# --- several devices -----------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run once for each of several devices; return the worst exit status."""
    wanted = config.getoption("--accel", None)
    if not isinstance(wanted, str) or "," not in wanted:
        return None
    arguments = _without_the_option(list(map(str, config.invocation_params.args)))
    devices = _read(wanted)
    inherited = {
        name: value for name, value in os.environ.items() if name != "ACCEL_SIMULATE"
    }
    rows = []
    with TemporaryDirectory() as folder:
        for number, device in enumerate(devices):
            outcome = Path(folder, str(number))
            command = [sys.executable, "-m", "pytest", "--accel", device, *arguments]
            print(f"\n--- on simulated {device}", flush=True)  # noqa: T201 - whose output follows
            began = time.monotonic()
            done = subprocess.run(
                command, env={**inherited, _OUTCOME: str(outcome)}, check=False
            )
            seconds = time.monotonic() - began
            told = json.loads(outcome.read_text()) if outcome.exists() else {}
            rows.append((device, done.returncode, told, seconds))
    for line in _differing(
        {device: told.get("not passed", []) for device, _, told, _ in rows}
    ):
        print(line)  # noqa: T201 - what was asked for
    titles = "".join(f"{title:>10}" for title in (*_COLUMNS, "seconds", "status"))
    print(f"\n{'simulated':<16}{titles}")  # noqa: T201 - what was asked for
    for device, status, told, seconds in rows:
        counts = "".join(f"{told.get(column, '-'):>10}" for column in _COLUMNS)
        print(f"{device:<16}{counts}{seconds:>10.1f}{status:>10}")  # noqa: T201
    return max(status for _, status, _, _ in rows)


def _differing(failing: dict[str, list[str]]) -> list[str]:
    """The tests that fail on some of the devices and not on all, each with those on which it does."""
    where: dict[str, list[str]] = {}
    for device, tests in failing.items():
        for test in dict.fromkeys(tests):
            where.setdefault(test, []).append(device)
    lines = [
        f"{test}: on {', '.join(devices)}"
        for test, devices in where.items()
        if len(devices) < len(failing)
    ]
    return ["", "fails on some only:", *lines] if lines else []


def _read(wanted: str) -> list[str]:
    """The devices of the option, all of which must be known before the first runs."""
    from accel_core import SettingError
    from accel_simulated.provider import understood

    devices = [part.strip() for part in wanted.split(",") if part.strip()]
    try:
        for device in devices or [wanted]:
            if not _is_here(device):
                understood(device)
    except SettingError as error:
        raise pytest.UsageError(f"--accel: {error}") from error
    return devices


def _without_the_option(arguments: list[str]) -> list[str]:
    kept = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--accel":
            next(rest, None)
        elif not argument.startswith("--accel="):
            kept.append(argument)
    return kept


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Pass the results of this run to the process that runs it for several devices."""
    place = os.environ.pop(_OUTCOME, "")
    if place:
        found = {column: terminalreporter.stats.get(column, ()) for column in _COLUMNS}
        told: dict[str, Any] = {
            column: len(reports) for column, reports in found.items()
        }
        told["not passed"] = [
            report.nodeid for report in (*found["failed"], *found["error"])
        ]
        Path(place).write_text(json.dumps(told))


# --- fixtures and the mark -----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def accelerator() -> Accelerator:
    """Return the accelerator that accel-core chooses: the simulated one if `--accel` is given."""
    import accel_core

    return accel_core.get_accelerator()


class Simulated:
    """Controls the simulated device of a test's process."""

    def __init__(self) -> None:
        from accel_simulated import device, faults

        self._device, self._faults = device, faults
        #: The name in `--accel`: `"acme"`.
        self.name: str = device.vendor.name

    def injected(self, faults: str) -> AbstractContextManager[None]:
        """Return a context manager with faults: `"oom@10,slow=2.5"`. Raises `SettingError`."""
        return self._faults.injected(faults)

    def held(self, stream: Any = None) -> AbstractContextManager[None]:
        """Return a context manager that stops a stream, by default the current one."""
        return self._device.held(stream)

    def set_memory_limit(self, size: int) -> None:
        """Set the bytes of memory of each device, until the test ends."""
        self._device.set_memory_limit(size)


@pytest.fixture
def simulated(accelerator: Accelerator) -> Iterator[Simulated]:
    """Yield the simulated device; a test that uses it is skipped if there is none."""
    from accel_simulated import device

    if not hasattr(device, "library"):
        pytest.skip(f"{accelerator.name} is not simulated: pytest --accel acme")
    yield Simulated()
    device.set_memory_limit()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the test if its mark `accel` does not fit the accelerator."""
    for mark in item.iter_markers("accel"):
        unknown = mark.kwargs.keys() - {"devices"}
        if unknown:
            raise pytest.UsageError(
                f"the mark takes devices=N, and was given {', '.join(sorted(unknown))}"
            )
        import accel_core

        found, devices = accel_core.get_accelerator(), mark.kwargs.get("devices", 1)
        if mark.args and found.device_type not in mark.args:
            pytest.skip(
                f"for {', '.join(mark.args)}, and the accelerator is {found.device_type}"
            )
        if found.device_count() < devices:
            pytest.skip(
                f"needs {devices} devices, and there are {found.device_count()} of {found.device_type}"
            )
