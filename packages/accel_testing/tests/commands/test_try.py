"""`accel try`: what it refuses, and the variables that its command gets from the backend's plugin."""

import os

import pytest
from accel_tests.children import run_python

TRIAL = """
import os
from accel_core import IntegrationMissingError

def environment():
    if "ACME_IS_MISSING" in os.environ:
        raise IntegrationMissingError("accel try acme needs acme-sdk: pip install acme-sdk")
    return {"ACME_LIBRARY": "/opt/acme.so"}, "Acme's own package on the CPU"
"""


def written_site(folder):
    """Install in the folder a distribution whose backend can be tried."""
    (folder / "acme_trial.py").write_text(TRIAL, "utf-8")
    metadata = folder / "acme_trial-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-trial\nVersion: 1.0\n", "utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        "[accel.trials]\nacme = acme_trial:environment\n", "utf-8"
    )
    return folder


@pytest.fixture
def site(tmp_path):
    return written_site(tmp_path)


def run(site, *words, **more):
    environ = {**os.environ, "PYTHONPATH": str(site), **more}
    return run_python(["-m", "accel_core", "try", *words], environ, timeout=60)


#: Prints the plugin's variable and its own options, and ends with status 7.
SHOW = "import os, sys; print(os.environ['ACME_LIBRARY'], sys.argv[1:]); sys.exit(7)"


@pytest.fixture(
    scope="module", params=[["acme", "--"], ["acme"]], ids=["dashes", "no dashes"]
)
def tried(request, tmp_path_factory):
    """What `accel try` gives of a command with options of its own."""
    words = [*request.param, "python", "-c", SHOW, "--flag", "-v"]
    return run(written_site(tmp_path_factory.mktemp("site")), *words)


def test_the_command_has_the_plugins_variables_and_its_own_options(tried):
    assert tried.stdout == "/opt/acme.so ['--flag', '-v']\n"


def test_the_commands_status_is_kept(tried):
    assert tried.returncode == 7


def test_what_the_command_runs_on_is_on_stderr(tried):
    assert tried.stderr == "Acme's own package on the CPU\n"


@pytest.mark.parametrize(
    ("words", "variables", "status", "message"),
    [
        (
            ["acme"],
            {},
            2,
            "Error: Missing a command, such as: accel try acme -- python train.py",
        ),
        (
            ["zing", "ls"],
            {},
            2,
            "Error: accel try zing: no installed plugin can replace the device zing",
        ),
        (
            ["acme", "no-such-command"],
            {},
            1,
            "Error: no-such-command: command not found",
        ),
        (
            ["acme", "ls"],
            {"ACME_IS_MISSING": "1"},
            1,
            "Error: accel try acme needs acme-sdk: pip install",
        ),
    ],
)
def test_what_cannot_be_tried_is_refused(site, words, variables, status, message):
    done = run(site, *words, **variables)
    assert done.returncode == status
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_those_that_can_be_tried_are_named(site):
    error = run(site, "zing", "ls").stderr
    assert "acme" in error.partition("Devices that plugins can replace: ")[2]
