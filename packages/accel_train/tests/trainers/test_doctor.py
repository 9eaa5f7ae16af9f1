"""`accel doctor` asks the real Accelerate, Transformers and Lightning which device they would choose."""

import json

import pytest
from accel_tests.children import accel

pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("transformers")


DOCTOR = accel("doctor", "--topic", "frameworks", "--json", "--timeout", "50")


def asked(run_on_acme, **environ):
    """Code, device and next step by framework."""
    [ended] = run_on_acme(DOCTOR, environ=environ, check=False).ended
    [topic] = json.loads(ended.stdout)["topics"]
    found = {}
    for finding in topic["findings"]:
        who, _, device = finding["what"].partition(" would choose ")
        found[who.rpartition(" ")[0]] = (
            finding["code"],
            device.partition(",")[0],
            finding["step"],
        )
    return found


def test_a_device_that_they_do_not_know_and_the_variable_that_names_it(run_on_acme):
    found = asked(run_on_acme)
    assert {name: row[:2] for name, row in found.items()} == {
        "Accelerate": ("frameworks.differs", "cpu"),
        "Transformers' Trainer": ("frameworks.differs", "cpu"),
        "Lightning": ("frameworks.differs", "cpu"),
    }
    step = "export ACCELERATE_TORCH_DEVICE=acme"
    assert found["Accelerate"][2] == step
    assert found["Transformers' Trainer"][2] == step
    named = asked(run_on_acme, ACCELERATE_TORCH_DEVICE="acme")
    assert (
        named["Accelerate"][:2]
        == named["Transformers' Trainer"][:2]
        == ("frameworks.same", "acme too")
    )


def test_on_the_cpu_they_agree_also_in_a_rank(run_on_acme):
    found = asked(
        run_on_acme, DS_ACCELERATOR="cpu", RANK="1", LOCAL_RANK="1", WORLD_SIZE="2"
    )
    assert {row[:2] for row in found.values()} == {("frameworks.same", "cpu too")}
    assert len(found) == 3
