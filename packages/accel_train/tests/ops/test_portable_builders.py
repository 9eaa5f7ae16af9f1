"""The portable builders themselves: what DeepSpeed and `accel ops` ask of a builder."""

from __future__ import annotations

import subprocess
import sys

import pytest

from accel_core._support.torch_import import torch_build
from accel_core.errors import UnsupportedError
from accel_train.ops import portable

NAMES = {
    "CPUAdagradBuilder": "cpu_adagrad",
    "CPUAdamBuilder": "cpu_adam",
    "CPULionBuilder": "cpu_lion",
    "FusedAdamBuilder": "fused_adam",
    "FusedLambBuilder": "fused_lamb",
    "FusedLionBuilder": "fused_lion",
}


def test_the_package_holds_the_six_and_nothing_else():
    assert portable.__all__ == sorted(NAMES)
    assert {name for name in vars(portable) if name.endswith("Builder")} == set(NAMES)


@pytest.mark.parametrize(("name", "op"), NAMES.items())
def test_a_builder_says_what_it_is(name, op):
    builder = getattr(portable, name)()
    assert builder.NAME == builder.name == op
    assert builder.absolute_name() == f"accel_train.ops.portable.{op}"
    assert builder.is_built() is True
    assert builder.is_compatible() is builder.is_compatible(verbose=True) is (torch_build() is not None)
    with pytest.raises(UnsupportedError, match=f"{op}: .* no build"):
        builder.builder()


@pytest.mark.parametrize(("name", "op"), NAMES.items())
def test_loading_gives_the_module_with_the_functions(name, op):
    pytest.importorskip("torch")
    module = getattr(portable, name)().load(verbose=False)
    assert module.__name__.endswith(op)
    assert all(callable(getattr(module, function)) for function in module.__all__)


def test_without_torch_a_builder_is_not_compatible(monkeypatch):
    monkeypatch.setattr(portable, "torch_build", lambda: None)
    assert portable.FusedAdamBuilder().is_compatible() is False
    assert portable.FusedAdamBuilder().compatibility() == "torch is not installed"


def test_importing_the_builders_imports_no_torch():
    code = "import sys, accel_train.ops.portable; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
