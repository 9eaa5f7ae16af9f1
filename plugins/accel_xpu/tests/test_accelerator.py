"""What no simulated device shows: two libraries of collectives, IPEX's compiler, its operators.

What their other members do is told by the score card and beside DeepSpeed's class.
"""

import sys
import types

import pytest

torch = pytest.importorskip("torch")

from accel_core import hint_for  # noqa: E402
from accel_xpu import IPEX, NATIVE  # noqa: E402
from accel_xpu.accelerator import IPEXAccelerator, XPUAccelerator  # noqa: E402
from accel_xpu.external import EXTERNAL, accel_op_builders  # noqa: E402


@pytest.fixture
def acc():
    return XPUAccelerator(NATIVE)


@pytest.mark.skipif(bool(torch.version.xpu), reason="this torch is built with XPU")
def test_without_a_device_what_depends_on_one_is_false(acc):
    assert acc.device_count() == 0
    assert acc.is_available() is False
    assert acc.is_initialized() is False
    assert acc.is_bf16_supported() is False
    assert acc.is_fp16_supported() is False
    assert acc.is_triton_supported() is False
    assert acc.supports_graphs() is False


@pytest.mark.skipif(bool(torch.version.xpu), reason="this torch is built with XPU")
def test_without_a_device_float64_is_taken_as_supported(acc):
    assert acc.is_fp64_supported() is True, "nobody is there to deny it"


class TestCommunication:
    @pytest.fixture
    def bindings(self, monkeypatch, tmp_path):
        (tmp_path / "oneccl_bindings_for_pytorch.py").write_text("registered = True\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "oneccl_bindings_for_pytorch", raising=False)
        yield
        sys.modules.pop("oneccl_bindings_for_pytorch", None)

    def test_xccl_where_torch_has_it(self, acc, bindings, monkeypatch):
        monkeypatch.setattr(torch.distributed, "is_xccl_available", lambda: True)
        assert acc.communication_backend_name() == "xccl"
        assert "oneccl_bindings_for_pytorch" not in sys.modules

    @pytest.mark.parametrize("known", [True, False])
    def test_else_ccl_whose_bindings_are_imported(
        self, acc, bindings, monkeypatch, known
    ):
        if known:
            monkeypatch.setattr(torch.distributed, "is_xccl_available", lambda: False)
        else:  # torch before 2.6
            monkeypatch.delattr(torch.distributed, "is_xccl_available")
        assert acc.communication_backend_name() == "ccl"
        assert sys.modules["oneccl_bindings_for_pytorch"].registered

    def test_without_both_it_is_still_named(self, acc, monkeypatch):
        monkeypatch.setattr(torch.distributed, "is_xccl_available", lambda: False)
        assert acc.communication_backend_name() == "xccl"


def test_ipex_compiles_extensions_with_its_own_command(monkeypatch):
    module = types.ModuleType("intel_extension_for_pytorch.xpu")
    module.DpcppBuildExtension = type("DpcppBuildExtension", (), {})
    monkeypatch.setitem(
        sys.modules, "intel_extension_for_pytorch", types.ModuleType("ipex")
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert IPEXAccelerator(IPEX).build_extension() is module.DpcppBuildExtension


def test_xpu_external_has_the_extensions_operators():
    acc = IPEXAccelerator(EXTERNAL)
    acc._op_providers = lambda backend: [accel_op_builders(backend)]
    assert acc.name == "xpu.external"
    assert acc.device_name(1) == "xpu:1"
    assert acc.op_builder_dir() == "intel_extension_for_deepspeed.op_builder"
    names = {
        op
        for op, source in acc.op_builders().items()
        if source.startswith("intel_extension_for_deep")
    }
    assert len(names) == 7
    assert {
        "TransformerBuilder",
        "InferenceBuilder",
        "QuantizerBuilder",
        "UtilsBuilder",
    } <= names
    assert accel_op_builders(IPEX) is None, "of this backend alone"


def test_ipex_2_1_ends_the_process_with_an_exception():
    assert "accel setup xpu" in hint_for(SystemExit(127), IPEX.hints)
