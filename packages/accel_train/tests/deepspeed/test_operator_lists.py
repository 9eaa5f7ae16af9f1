"""The operator builders that DeepSpeed lists and calls compatible, from a wheel and from a checkout."""

import importlib
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests.forks import forked
from looks import activated


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """DeepSpeed as git has it, made of the installed one: links to its build's packages, and no results."""
    installed = Path(find_spec("deepspeed").origin).parent
    root = tmp_path_factory.mktemp("checkout")
    left_out = shutil.ignore_patterns(
        "__pycache__", "git_version_info_installed.py", "op_builder", "csrc"
    )
    shutil.copytree(installed, root / "deepspeed", ignore=left_out)
    shutil.rmtree(root / "deepspeed" / "accelerator")
    for name, place in (("op_builder", "ops"), ("accelerator", "")):
        shutil.copytree(
            installed / place / name,
            root / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        home = root / "deepspeed" / place
        (home / name).symlink_to(os.path.relpath(root / name, home))
    (root / "deepspeed" / "ops" / "csrc").symlink_to(installed / "ops" / "csrc")
    return root


@pytest.fixture(scope="session")
def on_mlu(simulated):
    """A vendor of DeepSpeed's, with its real plugin."""
    return simulated("mlu", plugin=True)


def kinds_in_use(home):
    """Activate, and give the kind of each operator in use, which DeepSpeed has wherever it may be asked."""
    sys.path.insert(0, home)
    found, _ = activated()
    import deepspeed
    from deepspeed.ops import op_builder
    from deepspeed.ops.op_builder.all_ops import ALL_OPS

    assert Path(deepspeed.__file__).is_relative_to(home)
    bases = ("OpBuilder", "CUDAOpBuilder")
    named = {
        n: kind
        for n, kind in vars(op_builder).items()
        if n.endswith("Builder") and n not in bases
    }
    assert [
        n
        for n, kind in named.items()
        if kind.NAME not in deepspeed.ops.__compatible_ops__
    ] == []
    used = {n: op.used for n, op in found.accelerator.operators().items()}
    there = {
        n: kind for n, kind in named.items() if kind.NAME != "deepspeed_not_implemented"
    }
    assert there == {n: used[n].builder_class for n in there}
    listed = {
        type(builder)
        for name, builder in ALL_OPS.items()
        if name != "deepspeed_not_implemented"
    }
    assert listed == {candidate.builder_class for candidate in used.values()}
    return {n: candidate.kind for n, candidate in used.items()}


@forked("cpu")
def test_every_builder_stands_in_the_lists_and_is_the_accelerators(checkout):
    """Also where DeepSpeed was imported before."""
    sys.path.insert(0, checkout)
    assert importlib.import_module("deepspeed.ops").__compatible_ops__
    kinds = kinds_in_use(checkout)
    assert kinds["CPUAdagradBuilder"] == kinds["FusedAdamBuilder"] == "deepspeed"
    assert kinds["FusedLambBuilder"] == "portable"
    assert importlib.import_module(
        "op_builder"
    ).__deepspeed__  # the package of its build


@forked("mlu")
def test_a_vendor_of_deepspeeds_with_operators_of_ours(checkout):
    assert kinds_in_use(checkout)["FusedLambBuilder"] == "portable"
