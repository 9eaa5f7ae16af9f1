"""A folder without `__init__.py` does not count as an installed framework."""

import sys

import pytest

from accel_core import (
    Backend,
    is_installed,
)
from accel_train import deepspeed, lightning
from accel_train.deepspeed import op_builders


@pytest.fixture
def nothing_loaded(world, monkeypatch):
    """A world in which neither DeepSpeed nor Lightning is installed, or imported."""
    packages = ("deepspeed", "lightning", "pytorch_lightning")
    for name in [n for n in sys.modules if n.partition(".")[0] in packages]:
        monkeypatch.delitem(sys.modules, name)
    world.base = tuple(p for p in world.base if not p.endswith("site-packages"))
    world.set_path([world.site])
    return world


def test_a_folder_without_init_is_not_deepspeed_wherever_that_is_asked(nothing_loaded):
    (nothing_loaded.site / "deepspeed" / "ops" / "op_builder").mkdir(parents=True)
    (nothing_loaded.site / "deepspeed" / "ops" / "op_builder" / "__init__.py").touch()
    assert not is_installed("deepspeed")
    assert not deepspeed.is_installed()
    assert op_builders.builders_package("cuda") == ""
    assert op_builders.builder_sources("cuda") == {}
    provider = op_builders.accel_op_builders(
        Backend(name="cuda", priority=1, device_type="cuda")
    )
    assert provider.builders == {}
    assert "pip install deepspeed" in provider.advice
    with pytest.raises(ImportError, match="DeepSpeed is not installed"):
        deepspeed._release.require_supported_version()


def test_a_folder_without_init_is_not_lightning(nothing_loaded):
    for name in ("lightning", "pytorch_lightning"):
        (nothing_loaded.site / name).mkdir()
    with pytest.raises(ImportError, match="pip install lightning"):
        lightning.register()
