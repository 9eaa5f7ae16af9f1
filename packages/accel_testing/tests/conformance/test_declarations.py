"""Level 0 of the kit: each broken declaration is caught by its own check, and by no other."""

import json
import os

import pytest
from accel_tests.children import clean_environment, run_python
from conformance_mutants.declarations import BROKEN, install, suite

pytest.importorskip("pytest", "8.4")


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """The checks that fail, by distribution: one run of pytest, as a vendor with many would start it."""
    folder = tmp_path_factory.mktemp("declarations")
    install(folder)
    (folder / "test_vendors.py").write_text(suite())
    results = folder / "results"
    options = [
        "-p",
        "accel_testing.conformance.option",
        "-p",
        "accel_testing.conformance.reporting",
    ]
    pytest_here = [
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        folder,
        *options,
    ]
    environ = clean_environment(
        PYTHONPATH=str(folder), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"
    )
    arguments = [*pytest_here, "--accel-results", results, folder / "test_vendors.py"]
    done = run_python(arguments, environ, timeout=120, cwd=folder)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {name: [] for name in BROKEN}
    for line in map(json.loads, results.read_text().splitlines()):
        if line.get("outcome") in ("failed", "not run"):
            kind, _, check = line["ended"].partition("::test_")
            found[kind.removeprefix("Test_")].append(check)
    return found


@pytest.mark.parametrize("name", BROKEN)
def test_caught_by_what_is_meant_for_it(name, failing):
    meant = BROKEN[name].meant
    if meant == "hooks_fit":
        # Its declaration is not read, so nothing else of it holds either.
        assert meant in failing[name]
    else:
        assert failing[name] == ([meant] if meant else [])
