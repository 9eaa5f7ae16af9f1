"""Who provides an operator: the order, what is passed over, and what DeepSpeed's files say."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from accel_core import Backend, OpCandidate, Operator, OpProvider
from accel_core._support.torch_import import torch_build
from accel_core.integrations import deepspeed
from accel_core.integrations.deepspeed import op_builders
from accel_core.ops import catalogue

PORTABLE = "accel_core.ops.portable"


class Disk:
    """A folder on `sys.path` for modules of this test, and for a package as DeepSpeed's is laid out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def module(self, name: str, source: str) -> Path:
        path = self.folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        return path

    def deepspeed(self, device_type: str, **modules: str) -> None:
        """DeepSpeed with builders for a device type: the module's name, and its source."""
        under = "" if device_type == "cuda" else f".{device_type}"
        for package in (
            "deepspeed",
            "deepspeed.ops",
            "deepspeed.ops.op_builder",
            f"deepspeed.ops.op_builder{under}",
        ):
            self.module(f"{package}.__init__", "")
        for name, source in modules.items():
            self.module(f"deepspeed.ops.op_builder{under}.{name}", source)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    before = set(sys.modules)
    for name in [n for n in sys.modules if n.partition(".")[0] == "deepspeed"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    op_builders._read.cache_clear()
    yield Disk(tmp_path)
    op_builders._read.cache_clear()
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def no_deepspeed(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)


def builder(name: str, **answers: str) -> str:
    """A class of a builder; each answer is the body of a method."""
    lines = [f"class {name}:", f"    name = NAME = {name.lower()!r}"]
    for method, body in {"is_compatible": "return True", **answers}.items():
        lines += [f"    def {method}(self, verbose=False):", f"        {body}"]
    return "\n".join(lines) + "\n"


def deepspeeds(name: str, **answers: str) -> str:
    return builder(
        name, **{"sources": "return []", "absolute_name": f"return 'deepspeed.ops.{name}_op'", **answers}
    )


def plugin(op: str, source: str) -> OpProvider:
    return OpProvider({op: source}, name="accel-acme 1.0", kind="plugin")


def table(device_type: str, *contributed: OpProvider) -> dict[str, Operator]:
    """What there is for a device type: what plugins contribute, DeepSpeed's, ours."""
    backend = Backend(name="acme", priority=1, device_type=device_type, accelerator="accel_acme:Acme")
    return catalogue.table([*contributed, op_builders.accel_op_builders(backend)])


def candidates(op: str, device_type: str, *contributed: OpProvider) -> tuple[OpCandidate, ...]:
    return table(device_type, *contributed)[op].candidates


def used(op: str, device_type: str, *contributed: OpProvider) -> OpCandidate:
    operator = table(device_type, *contributed)[op]
    assert operator.used is catalogue.choose(operator.candidates)
    return operator.used


# ---------------------------------------------------------------------------- the order


def test_plugins_are_asked_first_then_deepspeed_then_our_own(disk):
    disk.deepspeed("acme", cpu_adam=deepspeeds("CPUAdamBuilder"))
    disk.module("acme_ops", builder("CPUAdamBuilder"))
    known = table("acme", plugin("CPUAdamBuilder", "acme_ops:CPUAdamBuilder"))
    assert [c.kind for c in known["CPUAdamBuilder"].candidates] == [
        "plugin", "deepspeed", "compiled", "portable",
    ]  # fmt: skip
    assert list(known) == sorted(known)
    assert not {"acme_ops", "deepspeed"} & set(sys.modules), "nothing is imported for the table"


def test_the_first_compatible_one_is_used_and_no_other_is_imported(disk):
    disk.deepspeed("acme", fused_adam=deepspeeds("FusedAdamBuilder"))
    disk.module("acme_ops", builder("FusedAdamBuilder"))
    found = used("FusedAdamBuilder", "acme", plugin("FusedAdamBuilder", "acme_ops:FusedAdamBuilder"))
    assert found.provider == "accel-acme 1.0"
    assert found.builder_class is sys.modules["acme_ops"].FusedAdamBuilder
    assert "deepspeed" not in sys.modules


def test_deepspeeds_own_builder_comes_before_ours(disk):
    disk.deepspeed("acme", fused_adam=deepspeeds("FusedAdamBuilder"))
    found = used("FusedAdamBuilder", "acme")
    assert found.kind == "deepspeed"
    assert found.source == "deepspeed.ops.op_builder.acme.fused_adam:FusedAdamBuilder"
    assert found.reason == ""
    assert found.is_built is True
    assert used("FusedLionBuilder", "acme").kind == "portable"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (builder("FusedAdamBuilder", is_compatible="return False"), "its is_compatible() says no"),
        (builder("FusedAdamBuilder", compatibility="return 'the card is too old'"), "the card is too old"),
        (
            builder("FusedAdamBuilder", __init__="raise KeyError('ACME_HOME')"),
            "cannot be made: KeyError: 'ACME_HOME'",
        ),
        (builder("FusedAdamBuilder", is_compatible="raise OSError('no driver')"), "OSError: no driver"),
    ],
)
@pytest.mark.skipif(torch_build() is None, reason="a portable builder needs torch")
def test_what_is_not_compatible_is_passed_over_with_its_reason(disk, source, reason):
    disk.module("acme_ops", source)
    operator = table("acme", plugin("FusedAdamBuilder", "acme_ops:FusedAdamBuilder"))["FusedAdamBuilder"]
    assert operator.used.kind == "portable"
    assert reason in operator.candidates[0].reason
    assert [c.verdict for c in operator.candidates] == ["not compatible", "compatible"]


def test_a_class_that_cannot_be_asked_counts_as_compatible(disk):
    disk.module("acme_ops", "class FusedAdamBuilder: pass")
    found = used("FusedAdamBuilder", "acme", plugin("FusedAdamBuilder", "acme_ops:FusedAdamBuilder"))
    assert found.provider == "accel-acme 1.0"
    assert found.is_built is None


def test_where_none_is_compatible_the_first_explains(disk):
    disk.module("acme_ops", builder("OddBuilder", is_compatible="return False"))
    odd = plugin("OddBuilder", "acme_ops:OddBuilder")
    first, second = candidates("OddBuilder", "maia", odd, odd)
    assert catalogue.choose([first, second]) is first
    assert catalogue.choose([]) is None


def test_an_only_candidate_is_not_imported_to_be_chosen():
    (only,) = candidates("OddBuilder", "maia", plugin("OddBuilder", "no_such_module:X"))
    assert catalogue.choose([only]) is only
    assert "_imported" not in vars(only)
    assert only.builder_class is None
    assert only.verdict == "broken"
    assert only.reason.startswith("no_such_module:X fails to import: ModuleNotFoundError")
    assert only.is_built is None


def test_a_plugins_builder_that_fails_to_import_is_not_passed_over(disk):
    disk.module("acme_ops", "raise SystemExit(3)")
    found = used("FusedAdamBuilder", "acme", plugin("FusedAdamBuilder", "acme_ops:FusedAdamBuilder"))
    assert found.provider == "accel-acme 1.0"
    assert "SystemExit: 3" in found.reason


@pytest.mark.skipif(torch_build() is None, reason="a portable builder needs torch")
def test_deepspeeds_builder_that_fails_to_import_is_passed_over(disk):
    disk.deepspeed("acme", fused_adam="import no_such_vendor\n" + deepspeeds("FusedAdamBuilder"))
    found = candidates("FusedAdamBuilder", "acme")
    assert catalogue.choose(found) is found[-1]
    assert "ModuleNotFoundError: No module named 'no_such_vendor'" in found[0].reason


def test_of_broken_ones_alone_the_first_is_named(disk):
    disk.deepspeed("acme", odd="import no_such_vendor\n" + deepspeeds("OddBuilder"))
    (only,) = candidates("OddBuilder", "acme")
    twice = (only, OpCandidate(only.op, only.source, only.origin))
    assert catalogue.choose(twice) is only


def test_a_failed_import_is_tried_again_by_the_next_table(disk):
    disk.deepspeed("acme", fused_adam=deepspeeds("FusedAdamBuilder"))
    path = disk.module("deepspeed.ops.op_builder.acme.__init__", "raise ImportError('half way')")
    assert candidates("FusedAdamBuilder", "acme")[0].error is not None
    path.write_text("# mended\n")
    os.utime(path, ns=(0, 0))  # another time than the byte code's
    importlib.invalidate_caches()
    assert candidates("FusedAdamBuilder", "acme")[0].error is None


def test_our_own_are_there_for_every_device_without_deepspeed(no_deepspeed):
    known = table("maia")
    assert {op: [c.kind for c in operator.candidates] for op, operator in known.items()} == {
        "CPUAdagradBuilder": ["portable"],
        "CPUAdamBuilder": ["compiled", "portable"],
        "CPULionBuilder": ["portable"],
        "FusedAdamBuilder": ["portable"],
        "FusedLambBuilder": ["portable"],
        "FusedLionBuilder": ["portable"],
    }
    for op, operator in known.items():
        portable = operator.candidates[-1]
        assert portable.error is None
        assert (operator.name, portable.source) == (op, f"{PORTABLE}:{op}")
        assert portable.provider == "accel-core portable"
        assert portable.is_built is True


@pytest.mark.skipif(torch_build() is None, reason="it needs torch")
def test_the_compiled_adam_is_used_where_it_can_be_compiled_and_else_the_portable_one(no_deepspeed):
    compiled, portable = candidates("CPUAdamBuilder", "maia")
    chosen = catalogue.choose([compiled, portable])
    assert compiled.error is None
    assert chosen is (portable if compiled.reason else compiled)
    assert compiled.is_built in (True, False)


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
    assert op_builders.package("acme") == "deepspeed.ops.op_builder.acme"
    assert op_builders.sources("acme") == {
        "FusedAdamBuilder": "deepspeed.ops.op_builder.acme.fused_adam:FusedAdamBuilder",
        "PinMemoryBuilder": "deepspeed.ops.op_builder.acme.pin_memory:PinMemoryBuilder",
    }
    assert deepspeed.is_installed() is True
    assert "deepspeed" not in sys.modules


def test_cuda_has_the_root_and_borrows_the_hosts_optimizers(disk):
    disk.deepspeed("cpu", cpu_adam="class CPUAdamBuilder: pass", comm="class CCLCommBuilder: pass")
    disk.deepspeed("cuda", fused_adam="class FusedAdamBuilder: pass", cpu_lion="class CPULionBuilder: pass")
    root = "deepspeed.ops.op_builder"
    assert op_builders.package("cuda") == root
    assert op_builders.sources("cuda") == {
        "CPUAdamBuilder": f"{root}.cpu.cpu_adam:CPUAdamBuilder",
        "CPULionBuilder": f"{root}.cpu_lion:CPULionBuilder",
        "FusedAdamBuilder": f"{root}.fused_adam:FusedAdamBuilder",
    }


@pytest.mark.parametrize("device_type", ["maia", ""])
def test_a_device_that_deepspeed_does_not_know_has_none_of_its_builders(disk, device_type):
    disk.deepspeed("acme", fused_adam="class FusedAdamBuilder: pass")
    assert op_builders.package(device_type) == ""
    assert op_builders.sources(device_type) == {}


def test_without_deepspeed_there_are_none(no_deepspeed):
    assert deepspeed.is_installed() is False
    assert op_builders.package("cuda") == ""
    assert op_builders.sources("cuda") == {}


def test_a_module_named_deepspeed_without_files_is_no_deepspeed(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", type(sys)("deepspeed"))  # has no spec: find_spec raises
    assert op_builders.package("cuda") == ""


# ---------------------------------------------------------------------------- what DeepSpeed's builders need


class Builder:
    """A builder as DeepSpeed's: it prints when it is asked to speak."""

    name = "odd_op"

    def __init__(self, *sources: str, compatible: bool = True, says: str = "") -> None:
        self._sources, self._compatible, self._says = list(sources), compatible, says

    def sources(self):
        return self._sources

    def absolute_name(self):
        return f"deepspeed.ops.odd.{self.name}"

    def is_compatible(self, verbose=False):
        if verbose and self._says:
            print(self._says)
        return self._compatible


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A PATH with these programs alone, and a folder for what torch keeps."""

    def give(*names: str) -> None:
        for name in names:
            (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
            (tmp_path / "bin" / name).chmod(0o755)

    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "kept"))
    monkeypatch.delenv("CXX", raising=False)
    return give


def test_a_builder_that_says_no_is_quoted_without_colours(capsys):
    says = "\x1b[93m [WARNING] \x1b[0m odd_op needs libodd.\n\x1b[93m [WARNING] \x1b[0m install libodd-dev"
    builder = Builder(compatible=False, says=says)
    assert op_builders.compatibility(builder) == "odd_op needs libodd; install libodd-dev"
    assert op_builders.compatibility(Builder(compatible=False)) == "DeepSpeed's own check says no"
    assert capsys.readouterr().out == ""


def test_what_another_thread_prints_meanwhile_is_not_taken_for_its_complaint(capsys):
    class Slow(Builder):
        def is_compatible(self, verbose=False):
            if verbose:
                thread = threading.Thread(target=print, args=("[WARNING] of somebody else's",))
                thread.start()
                thread.join(10)
            return super().is_compatible(verbose)

    builder = Slow(compatible=False, says="[WARNING] odd_op needs libodd.")
    assert op_builders.compatibility(builder) == "odd_op needs libodd"
    assert capsys.readouterr().out == "[WARNING] of somebody else's\n"


@pytest.mark.skipif(os.name == "nt", reason="programs without an extension")
def test_what_has_to_be_compiled_needs_a_compiler_and_ninja(tools, monkeypatch):
    builder = Builder("csrc/odd.cpp")
    assert "no C++ compiler 'c++': install one, or set CXX" in op_builders.compatibility(builder)
    tools("c++")
    assert "pip install ninja" in op_builders.compatibility(builder)
    tools("ninja")
    assert op_builders.compatibility(builder) == ""
    monkeypatch.setenv("CXX", "ccache clang++-99")
    assert "no C++ compiler 'ccache'" in op_builders.compatibility(builder)


@pytest.mark.skipif(os.name == "nt", reason="programs without an extension")
def test_cuda_sources_need_the_toolkit_too(tools, monkeypatch):
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    tools("c++", "ninja")
    builder = Builder("csrc/odd.cpp", "csrc/odd.cu")
    for home in ("CUDA_HOME", "ROCM_HOME"):
        monkeypatch.setattr(cpp_extension, home, None)
    assert "no CUDA toolkit" in op_builders.compatibility(builder)
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", "/usr/local/cuda")
    assert op_builders.compatibility(builder) == ""


def test_what_is_built_needs_nothing(disk, tools, tmp_path):
    builder = Builder("csrc/odd.cpp")
    assert op_builders.is_built(Builder()) is True
    assert op_builders.compatibility(Builder()) == ""
    assert op_builders.is_built(builder) is False
    disk.deepspeed("acme")
    (tmp_path / "deepspeed" / "ops" / "odd").mkdir()
    (tmp_path / "deepspeed" / "ops" / "odd" / "odd_op.cpython-311-x86_64-linux-gnu.so").touch()
    assert op_builders.is_built(builder) is True
    assert op_builders.compatibility(builder) == ""


def test_what_torch_keeps_counts_as_built(tools, tmp_path):
    builder = Builder("csrc/odd.cpp")
    (tmp_path / "kept" / "odd_op").mkdir(parents=True)
    (tmp_path / "kept" / "odd_op" / "odd_op.o").touch()
    assert op_builders.is_built(builder) is False
    (tmp_path / "kept" / "odd_op" / "odd_op.so").touch()
    assert op_builders.is_built(builder) is True


def test_torchs_usual_folder_is_looked_into(tools, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    builder = Builder("csrc/odd.cpp")
    assert op_builders.is_built(builder) is False
    tag = f"py{sys.version_info.major}{sys.version_info.minor}_cpu"
    from torch.utils.cpp_extension import get_default_build_root

    folder = Path(get_default_build_root(), tag, "odd_op")
    folder.mkdir(parents=True)
    (folder / "odd_op.so").touch()
    assert op_builders.is_built(builder) is True
