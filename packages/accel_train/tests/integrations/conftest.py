"""Frameworks in folders of their own (session `integrations`), on the simulated device `acme`."""

import os
import sys
from pathlib import Path

import pytest
from accel_tests.on_simulated import environment, run_on

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def home():
    """`home("verl", **more)`: the variables of a process with that framework; skips where it is missing."""

    def variables(framework="", *, vendor="acme", **more):
        found = os.environ.get(f"ACCEL_APART_{framework.upper()}")
        if framework and not found:
            pytest.skip(
                f"{framework} lies in a folder that the session integrations makes: ./dev integrations"
            )
        return environment(
            vendor,
            {"OMP_NUM_THREADS": "1", **more},
            path=[*filter(None, [found]), HERE],
        )

    return variables


@pytest.fixture(scope="session")
def beside(home):
    """`beside("verl", ...)`: `run_on` on acme with that framework's folder."""

    def start(framework, script, *arguments, environ=None, vendor="acme", **options):
        variables = {**home(framework, vendor=vendor), **(environ or {})}
        return run_on(
            vendor, script, *arguments, environ=variables, timeout=300, **options
        )

    return start


@pytest.fixture(scope="session")
def on_acme(home):
    return home()


@pytest.fixture(scope="session")
def on_plain(home):
    return home(vendor="plain")
