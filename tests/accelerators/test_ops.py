"""Operators found by name: plugins', DeepSpeed's, ours, and what stands for one that nobody has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_core import Accelerator, Backend, UnsupportedError
from accel_core.accelerators.interface import NotImplementedBuilder
from accel_core.ops.catalogue import Kind, OpCandidate


@pytest.fixture
def bare(backend: Callable[..., Backend]) -> Accelerator:
    return Accelerator(backend())


def test_an_operator_that_nobody_provides_says_so(bare: Accelerator) -> None:
    kind = bare.get_op_builder("NoSuchBuilder")
    assert issubclass(kind, NotImplementedBuilder)
    assert kind.__name__ == "NotImplementedBuilder"
    assert kind.op == "NoSuchBuilder"
    # the name by which DeepSpeed knows that there is none
    assert kind.NAME == kind.name == "deepspeed_not_implemented"
    builder = bare.create_op_builder("NoSuchBuilder")
    assert builder.is_compatible() is builder.is_built() is False
    assert "no installed distribution provides NoSuchBuilder" in builder.compatibility()
    for call in (builder.load, builder.builder):
        with pytest.raises(
            UnsupportedError, match=r"simulated: no installed .* NoSuchBuilder; .*`accel ops`"
        ):
            call()
    with pytest.raises(UnsupportedError):
        NotImplementedBuilder().load()
    assert bare.get_op_builder("NotImplementedBuilder") is NotImplementedBuilder


def from_a_plugin(op: str, source: str) -> OpCandidate:
    return OpCandidate(op, source, Kind.PLUGIN, "accel-some 1.0")


def test_operators_come_from_plugins_when_they_are_asked_for(bare: Accelerator) -> None:
    asked = []

    def contributed(backend: Backend) -> list[OpCandidate]:
        asked.append(backend)
        return [
            from_a_plugin("Fractions", "fractions:Fraction"),
            from_a_plugin("Broken", "no_such_module:X"),
            from_a_plugin("Gone", "fractions:Gone"),
            from_a_plugin("FusedAdamBuilder", "no_such_module:X"),
        ]

    bare.get_op_builder("Fractions")  # nobody has it yet: that must not be remembered
    bare._op_builder_sources = contributed
    assert dict(bare.op_builders())["Fractions"] == "fractions:Fraction"
    assert dict(bare.op_builders())["FusedAdamBuilder"] == "no_such_module:X"
    assert bare.get_op_builder("Fractions").__name__ == "Fraction"
    asked.clear()
    assert bare.create_op_builder("Fractions") == 0
    assert asked == []
    broken = (
        ("Broken", "ModuleNotFound"),
        ("Gone", "AttributeError"),
        ("FusedAdamBuilder", "ModuleNotFound"),
    )
    for name, cause in broken:
        with pytest.raises(
            UnsupportedError, match=rf"simulated: {name} comes from accel-some 1.0, .* {cause}"
        ):
            bare.get_op_builder(name)
    with pytest.raises(TypeError):
        bare.op_builders()["More"] = "x:Y"  # type: ignore[index]


def test_the_portable_operators_are_there_for_any_device(bare: Accelerator) -> None:
    assert bare.get_op_builder("FusedAdamBuilder").__module__ == "accel_core.ops.portable"
    builder = bare.create_op_builder("CPULionBuilder")
    assert builder.is_compatible() is True
    assert callable(builder.load().lion_update)
    assert bare.op_builders()["FusedLambBuilder"] == "accel_core.ops.portable:FusedLambBuilder"


def test_a_builder_that_cannot_be_made_says_why_when_it_is_loaded(bare: Accelerator) -> None:
    bare._op_builder_sources = lambda backend: [from_a_plugin("OddBuilder", "http.client:HTTPResponse")]
    builder = bare.create_op_builder("OddBuilder")
    assert builder.is_compatible() is False
    with pytest.raises(UnsupportedError, match="simulated: OddBuilder cannot be made: TypeError"):
        builder.load()


def test_a_builder_of_deepspeed_that_fails_to_import_says_so_when_it_is_loaded(
    bare: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders = tmp_path / "deepspeed" / "ops" / "op_builder" / bare.device().type
    builders.mkdir(parents=True)
    for folder in (builders, *builders.parents[:3]):
        (folder / "__init__.py").touch()
    (builders / "odd.py").write_text("import no_such_vendor\nclass OddBuilder: pass\n")
    for name in [n for n in sys.modules if n.partition(".")[0] == "deepspeed"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    assert bare.op_builder_dir() == f"deepspeed.ops.op_builder.{builders.name}"
    builder = bare.create_op_builder("OddBuilder")
    for name in [n for n in sys.modules if n.partition(".")[0] == "deepspeed"]:
        del sys.modules[name]
    assert isinstance(builder, NotImplementedBuilder)
    with pytest.raises(
        UnsupportedError, match=r"OddBuilder comes from deepspeed.*No module named 'no_such_vendor'"
    ):
        builder.load()
    advice = bare.create_op_builder("NoSuchBuilder").compatibility()
    assert "DeepSpeed has none for this device" in advice
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    assert "pip install deepspeed" in bare.create_op_builder("NoSuchBuilder").compatibility()


def test_extensions_are_built_by_torch(bare: Accelerator) -> None:
    from torch.utils.cpp_extension import BuildExtension

    assert bare.build_extension() is BuildExtension
    assert bare.op_builder_dir() == "accel_core.ops"
