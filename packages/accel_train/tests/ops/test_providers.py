"""Who is asked for operators, in which order, and what DeepSpeed's files say."""

import importlib
import os
import sys

import pytest
from accel_tests import layouts
from accel_tests.asking import discovered
from accel_tests.plugins import hook

from accel_core import (
    Backend,
    OpCandidate,
    Operator,
    OpProvider,
    is_installed,
    op_providers,
)
from accel_core.operators import operators_by_name
from accel_core.packages import entry_points
from accel_core.torch_import import torch_build
from accel_train import deepspeed, lightning
from accel_train.deepspeed import op_builders
from accel_train.ops import provided

# ---------------------------------------------------------------------------- providers
# Who is asked for operators: plugins, then distributions that bring operators and no backend.


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


# ---------------------------------------------------------------------------- plugins


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


# ---------------------------------------------------------------------------- the group accel.op_builders


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


# ---------------------------------------------------------------------------- who gets them


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


# ---------------------------------------------------------------------------- is it installed


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


# ---------------------------------------------------------------------------- catalogue
# Who provides an operator: the order, what is passed over, and what DeepSpeed's files say.


PORTABLE = "accel_train.ops.portable"


def builder(name, **answers):
    """A class of a builder; each answer is the body of a method."""
    lines = [f"class {name}:", f"    name = NAME = {name.lower()!r}"]
    for method, body in {"is_compatible": "return True", **answers}.items():
        lines += [f"    def {method}(self, verbose=False):", f"        {body}"]
    return "\n".join(lines) + "\n"


def deepspeeds(name, **answers):
    return builder(
        name,
        **{
            "sources": "return []",
            "absolute_name": f"return 'deepspeed.ops.{name}_op'",
            **answers,
        },
    )


def plugin(op, source):
    return OpProvider({op: source}, name="accel-acme 1.0", kind="plugin")


def table(device_type, *contributed):
    """What there is for a device type: what plugins contribute, DeepSpeed's, ours."""
    backend = Backend(
        name="acme", priority=1, device_type=device_type, accelerator="accel_acme:Acme"
    )
    ours = provided.accel_op_builders(backend)
    return operators_by_name(
        [*contributed, op_builders.accel_op_builders(backend), ours]
    )


def candidates(op, device_type, *contributed):
    return table(device_type, *contributed)[op].candidates


def chosen_of(*found):
    return Operator(found[0].op, found).used


# ---------------------------------------------------------------------------- the order


def test_plugins_are_asked_first_then_deepspeed_then_our_own(disk):
    disk.deepspeed("acme", cpu_adam=deepspeeds("CPUAdamBuilder"))
    disk.module("acme_ops", builder("CPUAdamBuilder"))
    known = table("acme", plugin("CPUAdamBuilder", "acme_ops:CPUAdamBuilder"))
    assert [c.kind for c in known["CPUAdamBuilder"].candidates] == [
        "plugin",
        "deepspeed",
        "portable",
    ]
    assert list(known) == sorted(known)
    assert not {"acme_ops", "deepspeed"} & set(sys.modules), (
        "nothing is imported for the table"
    )


GOOD, NO = (
    builder("FusedAdamBuilder"),
    builder("FusedAdamBuilder", is_compatible="return False"),
)
OLD = builder("FusedAdamBuilder", compatibility="return 'the card is too old'")
UNMADE = builder("FusedAdamBuilder", __init__="raise KeyError('ACME_HOME')")
RAISING = builder("FusedAdamBuilder", is_compatible="raise OSError('no driver')")
THEIRS = deepspeeds("FusedAdamBuilder")


PASSED_OVER = [
    (GOOD, THEIRS, "plugin", "", "compatible"),
    # One that cannot be asked counts as compatible.
    ("class FusedAdamBuilder: pass", THEIRS, "plugin", "", "compatible"),
    (None, THEIRS, "deepspeed", "", "compatible"),
    # What is not compatible is passed over with its reason.
    (NO, None, "portable", "its is_compatible() returned False", "not compatible"),
    (OLD, None, "portable", "the card is too old", "not compatible"),
    (
        UNMADE,
        None,
        "portable",
        "is created or checked for compatibility: KeyError: 'ACME_HOME'",
        "not compatible",
    ),
    (RAISING, None, "portable", "OSError: no driver", "not compatible"),
    # A plugin's that fails to import is not passed over, and DeepSpeed's is.
    (
        "raise SystemExit(3)",
        None,
        "plugin",
        "SystemExit: it tried to exit the process with 3",
        "broken",
    ),
    (
        None,
        f"import no_such_vendor\n{THEIRS}",
        "portable",
        "No module named 'no_such_vendor'",
        "broken",
    ),
]


@pytest.mark.parametrize(
    ("plugins", "deepspeed", "kind", "reason", "verdict"), PASSED_OVER
)
@pytest.mark.skipif(torch_build() is None, reason="a portable builder needs torch")
def test_the_first_compatible_one_is_used(
    disk, plugins, deepspeed, kind, reason, verdict
):
    contributed = []
    if plugins:
        disk.module("acme_ops", plugins)
        contributed.append(plugin("FusedAdamBuilder", "acme_ops:FusedAdamBuilder"))
    if deepspeed:
        disk.deepspeed("acme", fused_adam=deepspeed)
    operator = table("acme", *contributed)["FusedAdamBuilder"]
    first = operator.candidates[0]
    assert operator.used.kind == kind
    assert reason in first.reason
    assert first.verdict == verdict
    assert bool(first.reason) == bool(reason)
    if operator.used is first:
        assert (
            first.provider == "accel-acme 1.0"
            if plugins
            else first.provider.startswith("deepspeed")
        )
        home = "acme_ops" if plugins else "deepspeed.ops.op_builder.acme.fused_adam"
        assert first.source == f"{home}:FusedAdamBuilder"
        assert (
            verdict == "broken"
            or first.builder_class is sys.modules[home].FusedAdamBuilder
        )
        assert first.is_built is (True if kind == "deepspeed" else None)
        assert kind == "deepspeed" or "deepspeed" not in sys.modules


def test_where_none_is_compatible_the_first_explains(disk):
    disk.module("acme_ops", builder("OddBuilder", is_compatible="return False"))
    odd = plugin("OddBuilder", "acme_ops:OddBuilder")
    first, second = candidates("OddBuilder", "maia", odd, odd)
    assert chosen_of(first, second) is first
    disk.deepspeed("acme", odd="import no_such_vendor\n" + deepspeeds("OddBuilder"))
    (only,) = candidates("OddBuilder", "acme")
    assert chosen_of(only, OpCandidate(only.op, only.source, only.origin)) is only


def test_an_only_candidate_is_not_imported_to_be_chosen():
    (only,) = candidates("OddBuilder", "maia", plugin("OddBuilder", "no_such_module:X"))
    assert chosen_of(only) is only
    assert "_imported" not in vars(only)
    assert [only.builder_class, only.verdict, only.is_built] == [None, "broken", None]
    assert only.reason.startswith(
        "no_such_module:X fails to import: ModuleNotFoundError"
    )


def test_a_failed_import_is_tried_again_by_the_next_table(disk):
    disk.deepspeed("acme", fused_adam=deepspeeds("FusedAdamBuilder"))
    path = disk.module(
        "deepspeed.ops.op_builder.acme.__init__", "raise ImportError('half way')"
    )
    assert candidates("FusedAdamBuilder", "acme")[0].error is not None
    path.write_text("# mended\n")
    os.utime(path, ns=(0, 0))  # another time than the byte code's
    importlib.invalidate_caches()
    assert candidates("FusedAdamBuilder", "acme")[0].error is None


def test_our_own_are_there_for_every_device_without_deepspeed(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    known = table("maia")
    assert {
        op: [c.kind for c in operator.candidates] for op, operator in known.items()
    } == {
        "CPUAdagradBuilder": ["portable"],
        "CPUAdamBuilder": ["portable"],
        "CPULionBuilder": ["portable"],
        "FusedAdamBuilder": ["portable"],
        "FusedLambBuilder": ["portable"],
        "FusedLionBuilder": ["portable"],
    }
    assert [op.candidates[-1].source for op in known.values()] == [
        f"{PORTABLE}:{name}" for name in known
    ]
    assert {operator.candidates[-1].provider for operator in known.values()} == {
        "accel-train portable"
    }


# ---------------------------------------------------------------------------- DeepSpeed's files


def test_deepspeeds_builders_are_read_from_its_files_without_an_import(disk):
    disk.deepspeed(
        "acme",
        builder="class AcmeOpBuilder: pass",
        no_impl="class NotImplementedBuilder: pass",
        all_ops="raise RuntimeError",
        fused_adam="class Kernel: pass\nclass FusedAdamBuilder: pass",
        pin_memory="from elsewhere import PinMemoryBuilder\n__all__ = ['PinMemoryBuilder']",
        imports_only="from .builder import AcmeOpBuilder",
        nonsense="class (",
    )
    assert op_builders.builders_package("acme") == "deepspeed.ops.op_builder.acme"
    assert op_builders.builder_sources("acme") == {
        "FusedAdamBuilder": "deepspeed.ops.op_builder.acme.fused_adam:FusedAdamBuilder",
        "PinMemoryBuilder": "deepspeed.ops.op_builder.acme.pin_memory:PinMemoryBuilder",
    }
    assert deepspeed.is_installed() is True
    assert "deepspeed" not in sys.modules


def test_who_has_which_of_deepspeeds_builders(disk):
    """CUDA's are at the root, and it borrows the host's optimizers; pinned memory is everybody's."""
    names = {"pin_memory": "PinMemoryBuilder", "fused_adam": "FusedAdamBuilder", "comm": "CCLCommBuilder",
             "cpu_adam": "CPUAdamBuilder", "cpu_lion": "CPULionBuilder"}  # fmt: skip
    for device, modules in (
        ("cpu", ("cpu_adam", "cpu_lion", "comm", "pin_memory")),
        ("cuda", ("fused_adam", "cpu_lion", "pin_memory")),
        ("acme", ("fused_adam",)),
    ):
        disk.deepspeed(
            device, **{module: f"class {names[module]}: pass" for module in modules}
        )
    root = "deepspeed.ops.op_builder"
    assert [
        op_builders.builders_package(device) for device in ("cuda", "maia", "")
    ] == [
        root,
        "",
        "",
    ]
    for device, modules in (
        ("cuda", ("cpu.cpu_adam", "cpu_lion", "fused_adam", "pin_memory")),
        ("cpu", ("cpu.cpu_adam", "cpu.cpu_lion", "cpu.comm", "cpu.pin_memory")),
        ("acme", ("acme.fused_adam", "pin_memory")),
        ("maia", ("pin_memory",)),
        ("", ()),
    ):
        expected = {names[module.rpartition(".")[2]]: module for module in modules}
        assert op_builders.builder_sources(device) == {
            op: f"{root}.{module}:{op}" for op, module in expected.items()
        }


@pytest.mark.parametrize(
    ("name", "of"),
    [("acme", "acme"), ("acme.external", "acme"), ("maia", "cuda"), ("cuda", "cuda")],
)
def test_a_device_that_deepspeed_knows_by_name_has_builders_of_its_own(disk, name, of):
    """klxpu is torch's cuda, and CUDA's builders need a compiler that it has not."""
    disk.deepspeed("acme", fused_adam="class FusedAdamBuilder: pass")
    disk.deepspeed("cuda", fused_adam="class FusedAdamBuilder: pass")
    provider = op_builders.accel_op_builders(
        Backend(name=name, priority=1, device_type="cuda")
    )
    assert provider.package == op_builders.builders_package(of)
    assert dict(provider.builders) == op_builders.builder_sources(of)


def test_in_a_checkout_sources_go_by_the_path_that_deepspeed_gives_them(disk):
    """By another path they would be compiled anew whenever a process is activated, or is not."""
    path = "return str(__import__('pathlib').Path(__file__).parents[2] / 'csrc' / 'adam.cpp')"
    source = deepspeeds("FusedAdamBuilder")
    source += f"    def deepspeed_src_path(self, code_path):\n        {path}\n"
    base = (
        source.replace("class FusedAdamBuilder", "class Base")
        + "class FusedAdamBuilder(Base): pass\n"
    )
    disk.deepspeed("acme", fused_adam=base)
    builder = candidates("FusedAdamBuilder", "acme")[0].builder_class()
    linked = str(disk.folder / "deepspeed" / "ops" / "csrc" / "adam.cpp")
    assert builder.deepspeed_src_path("csrc/adam.cpp") == linked
    disk.module("op_builder.__init__", "")  # somebody else's
    assert builder.deepspeed_src_path("csrc/adam.cpp") == linked
    disk.module("op_builder.__init__", "__deepspeed__ = True")
    assert builder.deepspeed_src_path("csrc/adam.cpp") == str(
        disk.folder / "csrc" / "adam.cpp"
    )
