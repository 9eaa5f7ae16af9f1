"""Level 4 of `accel verify` with Lightning and Transformers, on acme."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("transformers")

from accel_tests.on_simulated import run_on
from accel_tests.ports import free_port

from accel_testing.conformance.catalogue import checks

VERIFY = "import runpy; runpy.run_module('accel_core', run_name='__main__')"


def test_everything_is_kept_but_what_accelerate_refuses(run_on_acme):
    names = [
        each.name
        for each in checks()
        if each.level == 4 and "deepspeed" not in each.name
    ]
    named = [word for name in names for word in ("--check", name)]
    run = run_on_acme(
        VERIFY,
        "verify",
        "acme",
        "--json",
        "--check",
        "frameworks.deepspeed.zero_1",
        *named,
    )
    document = json.loads(run.ended[0].stdout)
    other = {
        row["name"]: row["message"]
        for row in document["checks"]
        if row["outcome"] != "passed"
    }
    assert len(document["checks"]) - len(other) == len(names) - 1
    assert "Accelerate does not support float16 on the device" in other.pop(
        "frameworks.transformers.train_in_float16"
    )
    assert other == {
        "frameworks.deepspeed.zero_1": "deepspeed is not installed: pip install deepspeed"
    }
    assert [text.partition(" ")[0] for text in document["frameworks"]] == [
        "lightning", "transformers", "accelerate",
    ]  # fmt: skip


@pytest.mark.nightly(reason="acme's, which Transformers does not know, by day")
def test_transformers_trains_on_trainium_which_it_knows_itself():
    """Transformers and Accelerate call torch.neuron where they find torch_neuronx."""
    pytest.importorskip("accel_neuron")
    names = [each.name for each in checks() if "frameworks.transformers" in each.name]
    named = [word for name in names for word in ("--check", name)]
    run = run_on(
        "neuron", VERIFY, "verify", "neuron", "--json", *named,
        environ={"DS_ACCELERATOR": "neuron"}, timeout=600,
    )  # fmt: skip
    document = json.loads(run.ended[0].stdout)
    other = [row["name"] for row in document["checks"] if row["outcome"] != "passed"]
    assert len(names) == 5
    assert other == ["frameworks.transformers.train_in_float16"]  # Accelerate has none


GAUDI = """
import json, os
from accel_train.accelerate import partial_state
state = partial_state()
print(json.dumps([str(state.device), os.environ["ACCELERATE_TORCH_DEVICE"]]))
"""


def test_a_device_without_a_number_is_accelerates_too():
    """Gaudi's: a process has one. Of a rank DistributedDataParallel is given a number."""
    pytest.importorskip("accel_hpu")
    place = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
    }
    environ = {"DS_ACCELERATOR": "hpu", "MASTER_PORT": str(free_port()), **place}
    assert run_on("hpu", GAUDI, environ=environ).answer == ["hpu:0", "hpu:0"]
