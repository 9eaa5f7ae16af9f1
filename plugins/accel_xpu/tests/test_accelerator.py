"""The accelerators on the CPU wheel's own torch.xpu, and over a simulated module with torch.xpu's names."""

from __future__ import annotations

import inspect
import sys
import types
import warnings

import pytest

torch = pytest.importorskip("torch")

from accel_xpu import IPEX, NATIVE  # noqa: E402
from accel_xpu.accelerator import IPEXAccelerator, XPUAccelerator  # noqa: E402
from accel_xpu.external import EXTERNAL, accel_op_builders  # noqa: E402

without_xpu = pytest.mark.skipif(bool(torch.version.xpu), reason="this torch is built with XPU")


@pytest.fixture
def acc():
    return XPUAccelerator(NATIVE)


@without_xpu
class TestCPUBuild:
    def test_it_is_not_available(self, acc):
        assert (acc.is_available(), acc.device_count(), acc.is_initialized()) == (False, 0, False)

    def test_what_depends_on_a_device_is_false(self, acc):
        assert acc.is_bf16_supported() is False
        assert acc.is_fp16_supported() is False
        assert acc.is_triton_supported() is False
        assert acc.supports_graphs() is False
        with pytest.warns(UserWarning, match="there are no graphs here"):
            assert acc.create_graph() is None

    def test_float64_is_not_denied_without_a_device_to_ask(self, acc):
        assert acc.is_fp64_supported() is True

    def test_members_are_torchs_own_functions(self, acc):
        assert acc.current_device is torch.xpu.current_device
        assert acc.manual_seed_all is torch.xpu.manual_seed_all
        assert acc.stream is torch.xpu.stream

    def test_both_resets_have_a_function_behind_them(self, acc, monkeypatch):
        """torch.xpu has no `reset_max_memory_*`: DeepSpeed's accelerator raises there."""
        assert not hasattr(torch.xpu, "reset_max_memory_allocated")
        reset = []
        acc.reset_peak_memory_stats = lambda device_index=None: reset.append(device_index)
        acc.reset_max_memory_allocated(1)
        acc.reset_max_memory_cached()
        assert reset == [1, None]

    def test_the_names_are_torchs(self, surface):
        names = surface("xpu", "torch.xpu")
        for name in ("device_count", "get_device_properties", "is_available", "XPUGraph", "graph"):
            assert name in names
            assert hasattr(torch.xpu, name)
        assert hasattr(torch.distributed, "is_xccl_available")


@pytest.fixture
def simulated(monkeypatch, surface):
    """`simulated(**fields)`: an accelerator over a torch.xpu with two devices of these properties."""

    def make(kind=XPUAccelerator, backend=NATIVE, **fields):
        record = types.SimpleNamespace(
            **{
                "name": "Intel(R) Arc(TM) A770 Graphics", "total_memory": 16 * 2**30,
                "max_compute_units": 512, "uuid": "8680a056-0800-0000-0300-000000000000", **fields,
            }
        )  # fmt: skip
        module = types.ModuleType("torch.xpu")

        def is_available():
            return True

        def device_count():
            return 2

        def current_device():
            return 0

        def get_device_properties(device=None):
            return record

        def memory_allocated(device=None):
            return 2**20

        def mem_get_info(device=None):
            return 15 * 2**30, 16 * 2**30

        def is_bf16_supported(including_emulation=True):
            return including_emulation

        def current_stream(device=None):
            return f"the stream of {device}"

        names = surface("xpu", "torch.xpu")
        assert "Stream" in names
        module.Stream = type("Stream", (), {})
        for function in (
            is_available, device_count, current_device, get_device_properties, memory_allocated, mem_get_info,
            is_bf16_supported, current_stream,
        ):  # fmt: skip
            theirs = names[function.__name__].signature.parameters
            assert list(inspect.signature(function).parameters) == list(theirs)
            setattr(module, function.__name__, function)
        monkeypatch.setattr(torch, "xpu", module)
        return kind(backend)

    return make


@pytest.mark.parametrize(
    ("field", "integrated"),
    [({"is_integrated_gpu": True}, True), ({"is_integrated_gpu": False}, False), ({}, None)],
)
def test_properties_tell_integrated_from_discrete(simulated, field, integrated):
    properties = simulated(**field).device_properties(1)
    assert properties.integrated is integrated
    assert (properties.total_memory, properties.multiprocessors) == (16 * 2**30, 512)
    assert properties.capability is None
    assert properties.uuid == "8680a056-0800-0000-0300-000000000000"


@pytest.mark.parametrize(
    ("field", "supported"), [({"has_fp64": True}, True), ({"has_fp64": False}, False), ({}, True)]
)
def test_float64_is_asked_of_the_driver(simulated, field, supported):
    assert simulated(**field).is_fp64_supported() is supported


def test_what_is_only_emulated_is_supported_and_not_native(simulated):
    acc = simulated()
    assert acc.is_bf16_supported() is True
    assert acc.is_bf16_native() is False


def test_free_memory_is_the_drivers_answer(simulated):
    acc = simulated()
    assert (acc.available_memory(1), acc.total_memory(1)) == (15 * 2**30, 16 * 2**30)


def test_the_current_stream_stands_for_the_default_one(simulated):
    assert simulated().default_stream(1) == "the stream of 1"


@pytest.mark.parametrize("installed", [True, False])
def test_triton(simulated, monkeypatch, installed):
    monkeypatch.setattr("accel_xpu.accelerator.is_installed", lambda name: installed)
    assert simulated().is_triton_supported() is installed


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
    def test_else_ccl_whose_bindings_are_imported(self, acc, bindings, monkeypatch, known):
        if known:
            monkeypatch.setattr(torch.distributed, "is_xccl_available", lambda: False)
        else:  # torch before 2.6
            monkeypatch.delattr(torch.distributed, "is_xccl_available")
        assert acc.communication_backend_name() == "ccl"
        assert sys.modules["oneccl_bindings_for_pytorch"].registered

    def test_without_both_it_is_still_named(self, acc, monkeypatch):
        monkeypatch.setattr(torch.distributed, "is_xccl_available", lambda: False)
        assert acc.communication_backend_name() == "xccl"


def test_visible_devices_are_written_as_a_mask(acc):
    env: dict[str, str] = {}
    acc.set_visible_devices_envs(env, [1, 0])
    assert env == {"ZE_AFFINITY_MASK": "0,1"}
    acc.set_visible_devices_envs(env, ["0.1", "0.0"])
    assert env == {"ZE_AFFINITY_MASK": "0.0,0.1"}


def test_pinned_memory_without_deprecated_arguments(acc):
    class Tensor:
        def pin_memory(self, *given):
            assert not given
            return self

        def is_pinned(self, *given):
            assert not given
            return True

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert acc.is_pinned(acc.pin_memory(Tensor()))


def test_ipex_compiles_extensions_with_its_own_command(monkeypatch):
    module = types.ModuleType("intel_extension_for_pytorch.xpu")
    module.DpcppBuildExtension = type("DpcppBuildExtension", (), {})
    monkeypatch.setitem(sys.modules, "intel_extension_for_pytorch", types.ModuleType("ipex"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert IPEXAccelerator(IPEX).build_extension() is module.DpcppBuildExtension


def test_xpu_external_has_the_extensions_operators():
    acc = IPEXAccelerator(EXTERNAL)
    acc._op_providers = lambda backend: [accel_op_builders(backend)]
    assert acc.name == "xpu.external"
    assert acc.device_name(1) == "xpu:1"
    assert acc.op_builder_dir() == "intel_extension_for_deepspeed.op_builder"
    names = {
        op for op, source in acc.op_builders().items() if source.startswith("intel_extension_for_deepspeed.")
    }
    assert len(names) == 7
    assert {"TransformerBuilder", "InferenceBuilder", "QuantizerBuilder", "UtilsBuilder"} <= names
    assert accel_op_builders(IPEX) is None, "of this backend alone"
