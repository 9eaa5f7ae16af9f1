"""The cost of accel-train's entry points, and an adapter that fails."""

import warnings
from importlib.metadata import distribution
from pathlib import Path

import pytest
from accel_tests.children import clean_environment, run_python

import accel_train.integrations
from accel_train.integrations._warned import errors_as_warning

# ---------------------------------------------------------------------------- imports
# What our entry points cost: an adapter imports nothing of torch's or a framework's before it is asked.


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


# -------------------------------------------------------------------- errors_as_warning
# An adapter that fails warns once, and does not fail the import of the framework.


def test_an_error_becomes_one_warning_and_no_error_where_warnings_are():
    with pytest.warns(RuntimeWarning) as seen:  # noqa: PT031
        warnings.simplefilter("error")
        with errors_as_warning("verl", "See why: accel why"):
            raise ValueError("no device.")
    assert [str(one.message) for one in seen] == [
        "verl cannot use accel's accelerator: ValueError: no device. See why: accel why"
    ]
