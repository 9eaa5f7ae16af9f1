"""An adapter imports neither torch nor a framework before it is asked."""

from importlib.metadata import distribution
from pathlib import Path

import pytest
from accel_tests.children import clean_environment, run_python

import accel_train.integrations

ADAPTERS = sorted(
    file.stem
    for file in Path(accel_train.integrations.__file__).parent.glob("[a-z]*.py")
)
MODULES = (
    "accelerate", "deepspeed", "deepspeed._launcher", "launch.worker", "lightning",
    "ops.portable",
)  # fmt: skip


def test_neither_torch_nor_a_framework_is_imported_before_it_is_asked_for():
    names = [
        f"accel_train.{name}"
        for name in (*MODULES, *(f"integrations.{name}" for name in ADAPTERS))
    ]
    code = f"import json, sys, {', '.join(names)}; from accel_train import forwarded"
    loaded = run_python(
        ["-c", f"{code}; print(json.dumps(list(sys.modules)))"], clean_environment()
    ).answer
    foreign = {
        "torch",
        "numpy",
        "deepspeed",
        "accelerate",
        "lightning",
        "pytorch_lightning",
        "verl",
        "vllm",
    }
    foreign |= {"lmcache", "bitsandbytes", "transformers", "ray", "axolotl"}
    assert not foreign & {name.partition(".")[0] for name in loaded}


def test_every_entry_point_leads_to_one():
    entries = distribution("accel-train").entry_points
    modules = [
        e.module.rpartition(".")[2]
        for e in entries
        if ".integrations." in e.value and "." in e.group
    ]
    assert set(modules) <= set(ADAPTERS)


@pytest.mark.parametrize("name", ["verl", "lmcache"])
def test_a_name_that_an_adapter_lacks_is_an_attribute_error(name):
    module = __import__(f"accel_train.integrations.{name}", fromlist=[name])
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        module.missing  # noqa: B018
