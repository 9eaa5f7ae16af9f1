"""What our entry points cost: an adapter imports nothing of torch's or a framework's before it is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

import accel_train.doors

ADAPTERS = sorted(file.stem for file in Path(accel_train.doors.__file__).parent.glob("[a-z]*.py"))
ENTRIES = [
    entry
    for entry in distribution("accel-train").entry_points
    if ".doors." in entry.value and "." in entry.group
]


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_imports_neither_torch_nor_its_framework(name):
    code = (
        f"import json, sys, accel_train.doors.{name};"
        "print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    foreign = {"torch", "verl", "vllm", "lmcache", "bitsandbytes", "transformers", "ray", "axolotl"}
    assert not foreign.intersection(json.loads(child.stdout))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.group)
def test_an_entry_point_names_a_module_that_exists(entry):
    module, _, name = entry.value.partition(":")
    assert module.rpartition(".")[2] in ADAPTERS
    assert name


@pytest.mark.parametrize("name", ["verl", "lmcache"])
def test_a_name_that_an_adapter_lacks_is_an_attribute_error(name):
    module = __import__(f"accel_train.doors.{name}", fromlist=[name])
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        module.missing  # noqa: B018
