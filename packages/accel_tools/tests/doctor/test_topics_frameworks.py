"""The doctor's topic on what other frameworks would choose: their answers beside our choice.

Modules of a few lines stand for them here; accel-train's tests of each framework ask the real ones.
"""

from dataclasses import replace

import pytest

from accel_core.settings import read
from accel_tools.doctor.records import DiagnosticContext, Level
from accel_tools.doctor.topics.frameworks import TOPIC

ACCELERATE = """
import os, types
class PartialState:
    device = types.SimpleNamespace(type=os.environ.get("ACCELERATE_TORCH_DEVICE", "npu"))
    assert "LOCAL_RANK" not in os.environ
"""


def said(seconds=30.0, **variables):
    settings = replace(read(variables), probe_timeout=seconds)
    return list(TOPIC.examine(DiagnosticContext(settings, variables)))


@pytest.fixture
def accelerate(torch_world):
    """Accelerate is installed, and npu works."""
    torch_world.distribution("accelerate", "1.15.0")
    torch_world.module("accelerate", ACCELERATE)
    torch_world.backend("npu", 700)
    return torch_world


def test_nothing_is_installed(torch_world):
    [finding] = said()
    assert finding.level == Level.OK
    assert finding.code == "frameworks.not-installed"
    assert (
        finding.what
        == "none of DeepSpeed, Accelerate, Transformers' Trainer, Lightning is installed"
    )


def test_the_same_and_a_difference_with_what_removes_it(accelerate, monkeypatch):
    monkeypatch.setenv(
        "LOCAL_RANK", "0"
    )  # of a launcher: the question is a program's that none has started
    [finding] = said()
    assert finding.level == Level.OK
    assert finding.code == "frameworks.same"
    assert finding.what == "Accelerate 1.15.0 would choose npu too"
    assert finding.facts == {"call": "accelerate.PartialState().device"}
    [finding] = said(ACCEL_BLOCK="npu")
    assert finding.level == Level.WARNING
    assert finding.code == "frameworks.differs"
    assert (
        finding.what == "Accelerate 1.15.0 would choose npu, but accel_core chooses cpu"
    )
    assert finding.step == "export ACCELERATE_USE_CPU=1"
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "mlu")
    [finding] = said()
    assert finding.step == "export ACCELERATE_TORCH_DEVICE=npu"
    [finding] = said(ACCEL_INTEGRATIONS="accelerate")
    assert finding.level == Level.OK
    assert finding.code == "frameworks.integrated"


@pytest.mark.parametrize(
    ("source", "level", "code", "what"),
    [
        ("raise RuntimeError('CANN is not sourced')", Level.WARNING, "frameworks.fails",
         "Accelerate 1.15.0 cannot choose a device: RuntimeError: CANN is not sourced"),
        ("import no_such_module", Level.WARNING, "frameworks.fails",
         "Accelerate 1.15.0 cannot choose a device: ModuleNotFoundError: No module named 'no_such_module'"),
        ("import os; os._exit(7)", Level.WARNING, "frameworks.fails",
         "Accelerate 1.15.0 cannot choose a device: its process exited with status 7"),
        ("import time; time.sleep(60)", Level.OK, "frameworks.unknown",
         ("could not determine the device of Accelerate 1.15.0: "
          "no response within 3 s (--timeout sets the limit)")),
    ],
    ids=["raises", "lacks", "dies", "hangs"],
)  # fmt: skip
def test_one_that_does_not_answer(accelerate, source, level, code, what):
    accelerate.module("accelerate", source)
    [finding] = said(3)
    assert finding.level == level
    assert finding.code == code
    assert finding.what == what
    assert finding.step.startswith("run `pip check`") == ("no_such" in source)


def test_the_trainer_is_not_asked_without_accelerate(torch_world):
    torch_world.distribution("transformers", "5.23.0")
    torch_world.module("transformers", "raise RuntimeError('it is broken')")
    assert [finding.code for finding in said()] == ["frameworks.not-installed"]
    torch_world.distribution("accelerate", "1.15.0")
    torch_world.module("accelerate", ACCELERATE)
    assert [finding.what.partition(" ")[0] for finding in said()] == [
        "Accelerate",
        "Transformers'",
    ]
