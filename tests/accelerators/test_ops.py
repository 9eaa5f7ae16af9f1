"""Operators found by name: plugins', DeepSpeed's, ours, and what stands for one that nobody has."""

import decimal
import sys

import pytest

from accel_core import Accelerator, NotImplementedBuilder, OpProvider, UnsupportedError
from accel_train.ops.provided import accel_op_builders as ours


@pytest.fixture
def bare(backend):
    return Accelerator(backend())


def test_an_operator_that_nobody_provides_has_a_class_that_names_it(bare):
    kind = bare.get_op_builder("NoSuchBuilder")
    assert issubclass(kind, NotImplementedBuilder)
    assert kind.__name__ == "NotImplementedBuilder"
    assert kind.op == "NoSuchBuilder"
    assert kind.NAME == "not_implemented"
    assert kind.name == "not_implemented"


def test_an_operator_that_nobody_provides_is_not_compatible(bare):
    builder = bare.create_op_builder("NoSuchBuilder")
    assert builder.is_compatible() is False
    assert builder.is_built() is False
    assert "no installed distribution provides NoSuchBuilder" in builder.compatibility()


def test_an_operator_that_nobody_provides_cannot_be_loaded(bare):
    builder = bare.create_op_builder("NoSuchBuilder")
    for call in (builder.load, builder.builder):
        with pytest.raises(
            UnsupportedError,
            match=r"simulated: no installed .* NoSuchBuilder; accel-train provides .*",
        ):
            call()


def test_the_class_of_missing_operators_can_be_asked_for_and_not_loaded(bare):
    assert bare.get_op_builder("NotImplementedBuilder") is NotImplementedBuilder
    with pytest.raises(UnsupportedError):
        NotImplementedBuilder().load()


def from_a_plugin(**builders):
    return OpProvider(builders, name="accel-some 1.0", kind="plugin")


def test_operators_come_from_plugins_when_they_are_asked_for(bare):
    asked = []

    def contributed(backend):
        asked.append(backend)
        return [
            from_a_plugin(
                Fractions="fractions:Fraction",
                Broken="no_such_module:X",
                Gone="fractions:Gone",
                FusedAdamBuilder="no_such_module:X",
            )
        ]

    bare.get_op_builder("Fractions")  # nobody has it yet: that must not be remembered
    bare._op_providers = contributed
    assert dict(bare.op_builders())["Fractions"] == "fractions:Fraction"
    assert dict(bare.op_builders())["FusedAdamBuilder"] == "no_such_module:X"
    assert bare.get_op_builder("Fractions").__name__ == "Fraction"
    asked.clear()
    assert bare.create_op_builder("Fractions") == 0
    assert asked == []
    broke = (
        ("Broken", "ModuleNotFound"),
        ("Gone", "AttributeError"),
        ("FusedAdamBuilder", "ModuleNotFound"),
    )
    for name, why in broke:
        with pytest.raises(
            UnsupportedError,
            match=rf"simulated: {name} from accel-some 1.0 cannot be used: .* {why}",
        ):
            bare.get_op_builder(name)
    with pytest.raises(TypeError):
        bare.op_builders()["More"] = "x:Y"


def test_a_builder_that_cannot_be_made_says_why_when_it_is_loaded(bare):
    bare._op_providers = lambda backend: [from_a_plugin(OddBuilder="datetime:date")]
    builder = bare.create_op_builder("OddBuilder")
    assert builder.is_compatible() is False
    with pytest.raises(
        UnsupportedError, match="simulated: OddBuilder cannot be created: TypeError"
    ):
        builder.load()


def test_everybody_is_asked_once_however_many_names_are_looked_up(bare):
    """DeepSpeed looks up a hundred names while it is imported, most of which nobody has."""
    asked = []

    def contributed(backend):
        asked.append(backend)
        later = {"Decimals": "decimal:Decimal"} if len(asked) > 1 else {}
        return [
            from_a_plugin(
                Fractions="fractions:Fraction", Broken="no_such_module:X", **later
            )
        ]

    bare._op_providers = contributed
    bare.op_builder_dir()
    for name in ("Fractions", "Decimals", "NoSuchBuilder", "FusedAdamBuilder"):
        assert bare.get_op_builder(name) is bare.get_op_builder(name)
    for _ in range(2):
        with pytest.raises(UnsupportedError):
            bare.get_op_builder("Broken")
    assert "Fractions" in bare.op_builders()
    assert len(asked) == 1
    assert "Fractions" in bare.operators(), "asks anew, and forgets what nobody had"
    assert len(asked) == 2
    assert bare.get_op_builder("Decimals") is decimal.Decimal
    assert len(asked) == 2


def test_an_answer_that_was_given_in_the_middle_of_an_import_is_not_kept(
    bare, tmp_path, monkeypatch
):
    """What DeepSpeed's builders do in a checkout: they ask for themselves while they are half imported."""
    module = tmp_path / "half_imported.py"
    module.write_text(
        "from half_asking import ask\nask()\nclass FusedAdamBuilder: pass\n"
    )
    (tmp_path / "half_asking.py").write_text("ask = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    provider = OpProvider(
        {"FusedAdamBuilder": "half_imported:FusedAdamBuilder"}, optional=True
    )
    bare._op_providers = lambda backend: [provider, ours(backend)]
    import half_asking

    given = []
    half_asking.ask = lambda: given.append(
        bare.get_op_builder("FusedAdamBuilder").__module__
    )
    import half_imported

    assert given == ["accel_train.ops.portable"]
    assert bare.get_op_builder("FusedAdamBuilder") is half_imported.FusedAdamBuilder
    assert (
        bare.operators()["FusedAdamBuilder"].used.builder_class
        is half_imported.FusedAdamBuilder
    )
    for name in ("half_imported", "half_asking"):
        del sys.modules[name]


def test_every_operator_is_listed_with_all_who_provide_it(bare):
    bare._op_providers = lambda backend: [
        from_a_plugin(FusedAdamBuilder="fractions:Gone", SortBuilder="re:X"),
        ours(backend),
    ]
    known = bare.operators()
    assert sorted(known) == list(known)
    assert sorted(bare.op_builders()) == list(known)
    adam = known["FusedAdamBuilder"]
    assert adam.name == "FusedAdamBuilder"
    assert [(c.provider, c.kind, c.verdict) for c in adam.candidates] == [
        ("accel-some 1.0", "plugin", "broken"), ("accel-train portable", "portable", "compatible"),
    ]  # fmt: skip
    assert adam.used is adam.candidates[0]  # it was installed to be used
    assert "AttributeError" in adam.used.reason
    assert [c.is_built for c in adam.candidates] == [None, True]
    with pytest.raises(TypeError):
        known["More"] = adam


def test_an_optional_provider_gives_advice_only_where_nobody_has_an_operator(
    bare,
):
    optional = OpProvider(
        {"FusedAdamBuilder": "no_such_module:X", "OddBuilder": "no_such_module:X"},
        name="acme-ops 2.0", kind="acme", optional=True, advice="`pip install acme-more` may bring it",
    )  # fmt: skip
    bare._op_providers = lambda backend: [optional, ours(backend)]
    assert (
        bare.get_op_builder("FusedAdamBuilder").__module__ == "accel_train.ops.portable"
    )
    assert (
        "OddBuilder from acme-ops 2.0 cannot be used:"
        in bare.create_op_builder("OddBuilder").compatibility()
    )
    assert bare.create_op_builder("NoSuchBuilder").compatibility() == (
        "simulated: no installed distribution provides NoSuchBuilder; `pip install acme-more` may bring it. "
        "`accel ops` lists the available operators."
    )


def test_providers_are_asked_for_the_device_type_that_torch_gave(backend):
    """That of a generic accelerator is known only when it is built."""

    class Named(Accelerator):
        def _torch_device_type(self):
            return "cpu"

    asked = []
    named = Named(backend(device_type="privateuseone"))
    named._op_providers = lambda backend: asked.append(backend) or []
    assert named.op_builder_dir() == "accel_core.operators"
    assert [(b.name, b.device_type) for b in asked] == [(named.name, "cpu")]


def test_the_first_package_that_a_provider_names_is_the_one_with_the_builders(bare):
    packages = (
        OpProvider({}),
        OpProvider({}, package="acme.op_builder"),
        OpProvider({}, package="other"),
    )
    bare._op_providers = lambda backend: packages
    assert bare.op_builder_dir() == "acme.op_builder"


def test_extensions_are_built_by_torch(bare):
    from torch.utils.cpp_extension import BuildExtension

    assert bare.build_extension() is BuildExtension
    assert bare.op_builder_dir() == "accel_core.operators"
