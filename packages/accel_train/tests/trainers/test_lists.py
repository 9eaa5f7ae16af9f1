"""Lists of device types that we repeat are those of the installed Transformers and Accelerate."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from accel_train.accelerate import _IN_RANKS, _LADDER
from accel_train.transformers import _SCALED


def source(package, name):
    """A module of theirs, parsed and not imported."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return ast.parse(
        Path(found.submodule_search_locations[0], name).read_text(encoding="utf-8")
    )


def function(tree, name):
    (found,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return found


def test_the_ladder_is_transformers():
    calls = [
        node
        for node in ast.walk(
            function(source("transformers", "training_args.py"), "_setup_devices")
        )
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.device"
    ]
    found = [
        text
        for call in calls
        for text in ast.walk(call)
        if isinstance(getattr(text, "value", 0), str)
    ]
    kinds = [
        text.value.partition(":")[0]
        for text in sorted(found, key=lambda text: text.lineno)
    ]
    ladder = kinds[kinds.index("mps") :]
    assert (
        tuple(kind for kind in ladder if kind not in ("cpu", "ACCELERATE_TORCH_DEVICE"))
        == _LADDER
    )


def test_ranks_are_accelerates():
    found = [
        (node.lineno, node.attr.removeprefix("MULTI_").lower().replace("gpu", "cuda"))
        for node in ast.walk(
            function(source("accelerate", "state.py"), "_prepare_backend")
        )
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("MULTI_")
        and node.attr != "MULTI_CPU"
    ]
    _sagemaker, *kinds = [kind for _, kind in sorted(found)]
    assert tuple(kinds) == _IN_RANKS


def test_float16_is_accelerates():
    (found,) = [
        ast.literal_eval(node.value)
        for node in ast.walk(source("accelerate", "accelerator.py"))
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "supported_device"
    ]
    assert found == _SCALED
