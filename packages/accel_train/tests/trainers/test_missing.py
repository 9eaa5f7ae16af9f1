"""What is said where Lightning or Accelerate is not installed."""

import os
from pathlib import Path

import pluggy
import pytest
from accel_tests.children import run_python

import accel_core
import accel_train

SOURCES = [
    str(Path(package.__file__).parents[1]) for package in (accel_core, accel_train)
]
#: accel-core with pluggy, and accel-train; nothing else that is installed.
ALONE = """
import sys
sys.path += {sources}
try:
    from accel_train import accelerate, lightning
    {call}
except ImportError as error:
    print(type(error).__name__, error)
"""
#: A release of Lightning without a class that ours need.
LACKING = """
import lightning.pytorch.strategies as strategies
from accel_core.errors import IntegrationError
from accel_train.lightning import trainer_options
del strategies.ModelParallelStrategy
try:
    trainer_options("cpu")
except IntegrationError as error:
    print(error)
"""


def printed(code, *flags, **variables):
    """The last line that Python prints."""
    return (
        run_python([*flags, "-c", code], {**os.environ, **variables})
        .succeeded()
        .stdout.splitlines()[-1]
    )


CALLS = [
    ("lightning.trainer_options('cpu')", "Lightning"),
    ("lightning.register()", "Lightning"),
    ("accelerate.partial_state()", "Hugging Face Accelerate"),
]


@pytest.mark.parametrize(("call", "who"), CALLS)
def test_a_missing_framework_is_named_with_the_command(call, who, tmp_path):
    (tmp_path / "pluggy").symlink_to(Path(pluggy.__file__).parent)
    sources = [*SOURCES, str(tmp_path)]
    said = f"{who} is not installed in this environment: pip install {who.split()[-1].lower()}"
    assert (
        printed(ALONE.format(call=call, sources=sources), "-S")
        == f"IntegrationMissingError {said}"
    )


@pytest.mark.parametrize("call", ["fabric_options('cpu')", "register()"])
def test_a_lightning_too_old_is_named_with_the_command(call):
    old = os.environ.get("ACCEL_OLD_LIGHTNING")
    if not old:
        pytest.skip(
            "Lightning 2.2.5 lies in a folder that the session trainers makes: ./dev trainers"
        )
    code = ALONE.format(call=f"lightning.{call}", sources=SOURCES)
    assert printed(code, PYTHONPATH=old) == (
        "IntegrationMissingError lightning 2.2.5 is installed, but accel-train needs 2.3 or newer: "
        "pip install 'lightning>=2.3'"
    )


def test_a_lightning_that_lacks_what_ours_need_is_named_with_the_command():
    pytest.importorskip("lightning")
    said = printed(LACKING)
    assert said.startswith("lightning 2.6")
    assert "has no attribute 'ModelParallelStrategy'" in said
    assert said.endswith("Next step: pip install lightning==2.6.6")
