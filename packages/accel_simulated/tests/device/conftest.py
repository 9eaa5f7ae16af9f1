"""The simulated devices' own tests: a process for each vendor, whose answers several tests read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from accel_tests.on_simulated import run_on
from accel_tests.tools import TREE

from accel_simulated import DEVICES, CannotBuildError, build

sys.path.append(str(Path(__file__).parent))  # simulated_checks


@pytest.fixture(scope="session")
def simulated() -> Callable[..., Any]:
    """`run_on`; a test that uses it is skipped, with the reason, where no device can be built."""

    def run(vendor: str, *arguments: Any, **options: Any) -> Any:
        try:
            build(DEVICES[vendor.partition(":")[0]].kind)
        except CannotBuildError as error:
            pytest.skip(str(error))
        return run_on(vendor, *arguments, **options)

    return run


@pytest.fixture(scope="session")
def life(simulated: Callable[..., Any], once: Callable[..., Any]) -> Callable[[str], Any]:
    """`life(vendor)`: what one process with that device told, for all tests that read it."""
    function = "simulated_checks.capabilities:of_life"
    return lambda vendor: once(
        f"life-{vendor}", lambda: simulated(vendor, function, vendor, timeout=300).answer
    )


@pytest.fixture(scope="session")
def the_page_tells() -> Callable[[str, dict[str, str], list[str]], None]:
    """Holds what a device said of all but some rows of docs/reference/simulated.json against the record."""
    record = json.loads((TREE / "docs/reference/simulated.json").read_text(encoding="utf-8"))

    def compare(name: str, rows: dict[str, str], unasked: list[str]) -> None:
        told = record[name]
        assert rows == {row: cell for row, cell in told.items() if row not in unasked}, "run ./dev cards"
        assert set(unasked) <= told.keys(), "run ./dev cards"

    return compare


EXAMPLE = Path(__file__).parents[4] / "examples" / "train_digits.py"


@pytest.fixture(scope="session")
def train_digits(simulated: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """`train_digits(vendor, name, path)`: the example's report, with `DS_ACCELERATOR=name`."""
    if find_spec("sklearn") is None:
        pytest.skip("the example needs scikit-learn, which is not installed")

    def train(vendor: str, name: str, path: Sequence[Path] = ()) -> dict[str, Any]:
        # Dropout draws from the host's generator, as the run on CPU does: otherwise the masks would differ.
        # One thread: several trainings at once are on the cores.
        variables = {"DS_ACCELERATOR": name, "ACCEL_SIMULATE_RANDOM": "host", "OMP_NUM_THREADS": "1"}
        arguments = ("--precision", "fp32", "--epochs", "1", "--json")
        run = simulated(vendor, EXAMPLE, *arguments, environ=variables, path=path, timeout=300)
        report: dict[str, Any] = run.answer
        return report

    return train


@pytest.fixture(scope="session")
def digits_on_cpu(train_digits: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The report of the same training on CPU."""
    return train_digits("mlu", "cpu")


#: Under this name a test reports what it saw of a plugin; xdist carries it to the process that prints.
PROPERTY = "simulated plugin"
COLUMNS = ("members", "passed", "own answer", "digits")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table of the plugins' runs: vendor, members exercised, passed, and how the training ended."""
    rows: dict[str, dict[str, Any]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for vendor, *cells in (value for name, value in report.user_properties if name == PROPERTY):
                seen = cells if report.passed else [[column, "failed"] for column, _ in cells]
                # Counts of members are facts of a failed test too.
                rows.setdefault(vendor, {}).update(cells if isinstance(cells[0][1], int) else seen)
    if rows:
        terminalreporter.section("plugins on simulated devices")
        terminalreporter.line("".join(f"{title:>13}" for title in ("vendor", *COLUMNS)))
        for vendor, row in rows.items():
            cells = (vendor, *(row.get(column, "") for column in COLUMNS))
            terminalreporter.line("".join(f"{cell:>13}" for cell in cells))
