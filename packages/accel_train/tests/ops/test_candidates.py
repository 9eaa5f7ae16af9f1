"""Which provider of an operator is used, which are passed over, and what the files of DeepSpeed say."""

import importlib
import os
import sys

import pytest

from accel_core import (
    Backend,
    OpCandidate,
    Operator,
    OpProvider,
)
from accel_core.operators import operators_by_name
from accel_core.torch_import import torch_build
from accel_train import deepspeed
from accel_train.deepspeed import op_builders
from accel_train.ops import provided

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
        "SystemExit: the code tried to exit the process with 3",
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
