"""The simulated devices' own tests: a process for each vendor, whose answers several tests read."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests.on_simulated import run_on
from accel_tests.tools import TREE

from accel_simulated import DEVICES, CannotBuildError, build

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]


@pytest.fixture(scope="session")
def built():
    """`built(vendor)`: builds the device; where it cannot be, the test is skipped with the reason."""

    def require(vendor):
        try:
            build(DEVICES[vendor.partition(":")[0]].kind)
        except CannotBuildError as error:
            pytest.skip(str(error))

    return require


@pytest.fixture(scope="session")
def simulated(built):
    """`run_on`, with a device that is built."""

    def run(vendor, *arguments, **options):
        built(vendor)
        return run_on(vendor, *arguments, **options)

    return run


@pytest.fixture(scope="session")
def life(simulated, shared_by_workers):
    """`life(vendor)`: what one process with that device told, for all tests that read it."""
    function = "simulated_checks.capabilities:of_life"
    return lambda vendor: shared_by_workers(
        f"life-{vendor}",
        lambda: simulated(vendor, function, vendor, timeout=300).answer,
    )


@pytest.fixture(scope="session")
def the_page_tells():
    """Holds what a device said of all but some rows of lab/records/simulated.json against the record."""
    record = json.loads(
        (TREE / "lab/records/simulated.json").read_text(encoding="utf-8")
    )

    def compare(name, rows, unasked):
        told = record[name]
        assert rows == {
            row: cell for row, cell in told.items() if row not in unasked
        }, "run ./dev reports"
        assert set(unasked) <= told.keys(), "run ./dev reports"

    return compare


EXAMPLE = Path(__file__).parents[4] / "examples" / "train_digits.py"


@pytest.fixture(scope="session")
def train_digits(simulated):
    """`train_digits(vendor, name, path)`: the example's report, with `DS_ACCELERATOR=name`."""
    if find_spec("sklearn") is None:
        pytest.skip("the example needs scikit-learn, which is not installed")

    def train(vendor, name, path=()):
        # Dropout draws from the host's generator, as the run on CPU does: otherwise the masks would differ.
        # One thread: several trainings at once are on the cores.
        variables = {
            "DS_ACCELERATOR": name,
            "ACCEL_SIMULATE_RANDOM": "host",
            "OMP_NUM_THREADS": "1",
        }
        arguments = ("--precision", "fp32", "--epochs", "1", "--json")
        run = simulated(
            vendor, EXAMPLE, *arguments, environ=variables, path=path, timeout=300
        )
        return run.answer

    return train


@pytest.fixture(scope="session")
def digits_on_cpu(train_digits):
    """The report of the same training on CPU."""
    return train_digits("mlu", "cpu")
