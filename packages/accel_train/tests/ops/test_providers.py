"""Who is asked for operators: plugins, then distributions that bring operators and no backend."""

import pytest
from accel_tests import layouts
from accel_tests.asking import discovered
from accel_tests.plugins import hook

from accel_core import (
    OpProvider,
    op_providers,
)
from accel_core.packages import entry_points
from accel_train.deepspeed import op_builders


def bringing(world, name, priority, body):
    world.backend(name, priority, extra=hook("accel_op_builders", "backend", body))


def providing(world, name, body, distribution="", module=""):
    """Install a distribution with operators and no backend."""
    distribution = distribution or f"{name}-ops"
    module = module or distribution.replace("-", "_")
    source = "from accel_core import hookimpl, OpProvider\n" + hook(
        "accel_op_builders", "backend", body
    )
    layouts.dist_info(
        world.site,
        distribution,
        "2.0",
        {op_providers.GROUP: {name: module}},
        {module: source},
    )


def brought(backend=None):
    """The providers but for accel-train's own: DeepSpeed's, which is not installed, and the last ones."""
    found = op_providers.providers(backend or discovered("npu").backend)
    return [p for p in found if not p.last and p.name != "deepspeed"]


def asked(backend=None):
    """Operator, source and provider of all that is brought, in the order of asking."""
    return [
        (op, source, p.name)
        for p in brought(backend)
        for op, source in p.builders.items()
    ]


def advice():
    return [p.advice for p in brought() if p.advice]


def test_op_builders_come_from_every_plugin_and_first_from_the_backends_own(world):
    bringing(world, "npu", 300, "return {'A': 'npu:A', 'B': 'npu:B'}")
    bringing(world, "ops", 100, "return {'A': 'ops:A', 'C': 'ops:C ' + backend.name}")
    bringing(world, "top", 900, "return {'A': 'top:A', 'C': 'top:C'}")
    assert [(op, source) for op, source, _ in asked()] == [
        ("A", "npu:A"), ("B", "npu:B"), ("A", "top:A"), ("C", "top:C"), ("A", "ops:A"), ("C", "ops:C npu"),
    ]  # fmt: skip
    assert {source: name for _, source, name in asked()}["top:A"] == "accel-top 1.0"
    assert {p.kind for p in brought()} == {"plugin"}


FAILING = [
    ("raise OSError", "OSError"),
    ("import sys; sys.exit(1)", "SystemExit"),
    ("return 5", "returned 5 (int), expected a mapping or accel_core.OpProvider"),
]


@pytest.mark.parametrize(("body", "why"), FAILING)
def test_op_builders_of_a_plugin_that_fails_are_passed_over_and_it_is_told(
    world, body, why
):
    bringing(world, "bad", 900, body)
    world.plugin("broken", "raise ImportError")
    bringing(world, "npu", 300, "return {'A': 'npu:A'}")
    assert asked() == [("A", "npu:A", "accel-npu 1.0")]
    [told] = advice()
    assert told.startswith("accel-bad 1.0 cannot list its operators: ")
    assert why in told


def test_a_plugin_may_answer_at_length(world):
    answer = "from accel_core import OpProvider; return OpProvider({'A': 'a:A'}, kind='kernels', package='x')"
    bringing(world, "npu", 300, answer)
    bringing(world, "none", 200, "return None")
    [provider] = brought()
    assert provider == OpProvider(
        {"A": "a:A"}, name="accel-npu 1.0", kind="kernels", package="x"
    )
    assert provider.optional is False


def test_who_declares_no_backend_is_asked_after_the_plugins_in_order_of_names(world):
    providing(world, "zebra", "return {'A': 'second:A'}", distribution="zoo-ops")
    providing(world, "zebra", "return {'A': 'zebra:A'}")
    providing(
        world, "acme", "return OpProvider({'A': 'acme:A'}, name='acme', optional=True)"
    )
    bringing(world, "npu", 300, "return {'A': 'npu:A'}")
    assert asked() == [
        ("A", "npu:A", "accel-npu 1.0"), ("A", "acme:A", "acme"), ("A", "zebra:A", "zebra-ops 2.0"),
        ("A", "second:A", "zoo-ops 2.0"),
    ]  # fmt: skip
    assert [p.kind for p in brought()] == ["plugin", "acme", "zebra", "zebra"]


def test_one_that_fails_hides_no_other_and_is_told(world, capsys):
    providing(world, "loud", "print('loud'); return {'A': 'loud:A'}")
    providing(world, "raises", "raise OSError('no licence')")
    world.distribution("gone", "1.0", {op_providers.GROUP: {"gone": "no_such_module"}})
    world.module("unmarked", "def accel_op_builders(backend): return {}")
    world.distribution(
        "unmarked", "1.0", {op_providers.GROUP: {"unmarked": "unmarked"}}
    )
    world.backend("npu")
    assert asked() == [("A", "loud:A", "loud-ops 2.0")]
    gone, raises, unmarked = advice()
    assert "gone 1.0 cannot list its operators: ModuleNotFoundError" in gone
    assert "raises-ops 2.0 cannot list its operators: OSError: no licence" in raises
    assert (
        "unmarked lacks a function accel_op_builders with @accel_core.hookimpl"
        in unmarked
    )
    assert capsys.readouterr().out == ""


def test_deepspeed_is_one_of_them():
    [ours] = [e for e in entry_points(op_providers.GROUP) if e.name == "deepspeed"]
    assert ours.load() is op_builders, "install accel-core again (./dev does)"


def test_the_chosen_accelerator_and_one_that_a_user_brings_know_all_providers(
    torch_world,
):
    import accel_core

    providing(torch_world, "acme", "return {'SortBuilder': 'acme:SortBuilder'}")
    chosen = accel_core.get_accelerator()
    assert chosen.operators()["SortBuilder"].candidates[0].provider == "acme-ops 2.0"
    mine = type(chosen)(chosen.backend)
    assert "SortBuilder" not in mine.operators()
    with accel_core.use_accelerator(mine):
        assert mine.op_builders()["SortBuilder"] == "acme:SortBuilder"
