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
    return {"ACME_LIBRARY": "/opt/acme.so"}, "Acme's own package on the processor"
"""


@pytest.fixture
def site(tmp_path):
    """A folder in which a distribution is installed whose backend can be tried."""
    (tmp_path / "acme_trial.py").write_text(TRIAL, "utf-8")
    metadata = tmp_path / "acme_trial-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-trial\nVersion: 1.0\n", "utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        "[accel.trials]\nacme = acme_trial:environment\n", "utf-8"
    )
    return tmp_path


def run(site, *words, **more):
    environ = {**os.environ, "PYTHONPATH": str(site), **more}
    return run_python(["-m", "accel_core", "try", *words], environ, timeout=60)


def test_the_command_has_the_plugins_variables_and_its_own_options(site):
    show = (
        "import os, sys; print(os.environ['ACME_LIBRARY'], sys.argv[1:]); sys.exit(7)"
    )
    for words in (("acme", "--", "python"), ("acme", "python")):
        done = run(site, *words, "-c", show, "--flag", "-v")
        assert (done.returncode, done.stdout) == (7, "/opt/acme.so ['--flag', '-v']\n")
        assert done.stderr == "Acme's own package on the processor\n"


@pytest.mark.parametrize(
    ("words", "more", "status", "said"),
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
            "Error: accel try zing: no installed plugin can be tried",
        ),
        (
            ["acme", "no-such-command"],
            {},
            1,
            "Error: no-such-command: there is no such command",
        ),
        (
            ["acme", "ls"],
            {"ACME_IS_MISSING": "1"},
            1,
            "Error: accel try acme needs acme-sdk: pip install",
        ),
    ],
)
def test_what_is_refused(site, words, more, status, said):
    done = run(site, *words, **more)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_those_that_can_be_tried_are_named(site):
    assert "acme" in run(site, "zing", "ls").stderr.partition("Those that can: ")[2]
