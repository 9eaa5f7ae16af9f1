"""Whose builders DeepSpeed lists, gives and calls compatible, from a wheel and from a source checkout."""

from __future__ import annotations

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

#: What users' code asks of a builder, and which class each operator's is, in the list and by name.
LISTS = """
import json, sys
from accel_train.deepspeed import activate
BEFORE
activate()
import deepspeed
import deepspeed.ops.op_builder as package
from deepspeed.ops.op_builder.all_ops import ALL_OPS

def name(kind):
    return f"{kind.__module__}:{kind.__name__}"

bases = ("OpBuilder", "CUDAOpBuilder")
named = {n: v for n, v in vars(package).items() if n.endswith("Builder") and n not in bases}
lacking = [n for n, kind in named.items() if kind.NAME not in deepspeed.ops.__compatible_ops__]
there = {n: name(kind) for n, kind in named.items() if kind.NAME != "deepspeed_not_implemented"}
listed = {type(b).__name__: name(type(b)) for n, b in ALL_OPS.items() if n != "deepspeed_not_implemented"}
import accel_core
used = {n: op.used for n, op in accel_core.get_accelerator().operators().items()}
print("ANSWER", json.dumps(dict(lacking=lacking, there=there, listed=listed, home=deepspeed.__file__,
      used={n: name(c.builder_class) for n, c in used.items()},
      kinds={n: c.kind for n, c in used.items()})), flush=True)
"""


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """DeepSpeed as git has it, made of the installed one: links to its build's packages, and no results."""
    installed = Path(find_spec("deepspeed").origin).parent
    root = tmp_path_factory.mktemp("checkout")
    left_out = shutil.ignore_patterns("__pycache__", "git_version_info_installed.py", "op_builder", "csrc")
    shutil.copytree(installed, root / "deepspeed", ignore=left_out)
    shutil.rmtree(root / "deepspeed" / "accelerator")
    for name, place in (("op_builder", "ops"), ("accelerator", "")):
        shutil.copytree(installed / place / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        (root / "deepspeed" / place / name).symlink_to(
            os.path.relpath(root / name, root / "deepspeed" / place)
        )
    (root / "deepspeed" / "ops" / "csrc").symlink_to(installed / "ops" / "csrc")
    return root


@pytest.fixture(params=["wheel", "checkout"])
def home(request):
    """The folder for `sys.path`, or none where the installed package is meant."""
    return request.getfixturevalue("checkout") if request.param == "checkout" else None


def with_deepspeed_of(home, variables):
    path = variables.get("PYTHONPATH", "")
    return {**variables, "PYTHONPATH": f"{home}{os.pathsep}{path}"} if home else variables


@pytest.fixture(scope="session")
def on_vendor(tmp_path_factory):
    """Variables of a process with a vendor's simulated device and the real plugin."""
    from accel_tests.on_disk import install_real_plugin
    from accel_tests.on_simulated import environment

    from accel_simulated import VENDORS, CannotBuildError, build

    def variables(vendor):
        try:
            build(VENDORS[vendor].kind)
        except CannotBuildError as error:
            pytest.skip(str(error))
        folder = tmp_path_factory.mktemp(vendor)
        install_real_plugin(folder, vendor)
        chosen = environment(vendor, {"DS_ACCELERATOR": vendor, "OMP_NUM_THREADS": "1"}, path=[folder])
        return {name: value for name, value in chosen.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}

    return variables


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(
            "", marks=pytest.mark.nightly(reason="the other order of the two imports, which by day covers")
        ),
        "import deepspeed.ops; deepspeed.ops.__compatible_ops__",
    ],
)
def test_every_builder_stands_in_the_lists_and_is_the_one_that_accel_ops_names(child, asked, home, before):
    variables = with_deepspeed_of(home, asked)
    ended = child(["-c", LISTS.replace("BEFORE", before)], variables)
    assert ended.returncode == 0, ended.stderr
    (found,) = ended.answers
    assert home is None or Path(found["home"]).is_relative_to(home)
    agree(found)
    assert found["kinds"]["CPUAdagradBuilder"] == found["kinds"]["FusedAdamBuilder"] == "deepspeed"
    assert found["kinds"]["FusedLambBuilder"] == "portable"
    said = child(["-m", "accel_core", "ops", "--json"], variables)
    assert said.returncode == 0, said.stderr
    providers = {
        op["op"]: [c["kind"] for c in op["candidates"] if c["used"]] for op in json.loads(said.stdout)["ops"]
    }
    assert providers == {n: [kind] for n, kind in found["kinds"].items()}


@pytest.mark.parametrize(
    "vendor",
    [
        "mlu",
        pytest.param(
            "sdaa", marks=pytest.mark.nightly(reason="a second vendor with operators of ours; by day one")
        ),
    ],
)
def test_a_vendor_of_deepspeeds_with_operators_of_ours(child, on_vendor, home, vendor):
    ended = child(["-c", LISTS.replace("BEFORE", "")], with_deepspeed_of(home, on_vendor(vendor)))
    assert ended.returncode == 0, ended.stderr
    (found,) = ended.answers
    agree(found)
    assert found["kinds"]["FusedLambBuilder"] == "portable"


def agree(found):
    assert found["lacking"] == []
    assert found["there"].items() <= found["used"].items()
    assert set(found["listed"].values()) == set(found["used"].values())


def test_the_package_of_its_build_can_be_imported_afterwards(child, on_cpu, checkout):
    code = """
from accel_train.deepspeed import activate
activate()
import deepspeed, op_builder
print("ANSWER", "true" if op_builder.__deepspeed__ else "false", flush=True)
"""
    ended = child(["-c", code], with_deepspeed_of(checkout, on_cpu))
    assert ended.answers == [True], ended.stderr
