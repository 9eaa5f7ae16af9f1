"""`HPUAccelerator` over a simulated module with the names of the bridge's own."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import types
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from accel_hpu import BACKEND  # noqa: E402
from accel_hpu.accelerator import HPUAccelerator  # noqa: E402

# The tests are no package, and pytest's import mode leaves their folder off sys.path.
_spec = importlib.util.spec_from_file_location("simulated_hpu", Path(__file__).with_name("simulated_hpu.py"))
simulated_hpu = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(simulated_hpu)
GIB = simulated_hpu.GIB


@pytest.fixture
def build(monkeypatch):
    def make(**options):
        monkeypatch.setattr(torch, "hpu", simulated_hpu.Simulated(**options), raising=False)
        return HPUAccelerator(BACKEND)

    return make


@pytest.fixture
def acc(build):
    return build()


def test_the_simulated_module_has_only_what_the_vendors_has(surface):
    names = surface("hpu", "torch.hpu")
    module = simulated_hpu.Simulated(lazy=True)
    for name, value in vars(module).items():
        if name.startswith("__") or name == "calls" or isinstance(value, types.ModuleType):
            continue
        signature = names[name].signature
        if inspect.isfunction(value):
            assert list(inspect.signature(value).parameters) == list(signature.parameters), name
    assert "default_generators" in surface("hpu", "torch.hpu.random")
    assert "_is_fp16_supported" in surface("hpu", "habana_frameworks.torch.utils.experimental")


def test_constructing_changes_nothing(build, monkeypatch):
    before = dict(os.environ)
    acc = build()
    assert dict(os.environ) == before
    assert not torch.are_deterministic_algorithms_enabled()
    assert acc.device_module.calls == []


def test_vendor_defaults_are_set_when_they_are_asked_for(acc, monkeypatch):
    monkeypatch.delenv("PT_HPU_LAZY_ACC_PAR_MODE", raising=False)
    monkeypatch.setenv("PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES", "1")
    filled = torch.utils.deterministic.fill_uninitialized_memory
    try:
        changed = acc.apply_vendor_defaults()
        assert changed == ("PT_HPU_LAZY_ACC_PAR_MODE=0", "torch.use_deterministic_algorithms(True)")
        assert acc.apply_vendor_defaults() == ()
        assert os.environ["PT_HPU_LAZY_ACC_PAR_MODE"] == "0"
        assert os.environ["PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES"] == "1"  # the user's own
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.utils.deterministic.fill_uninitialized_memory is False
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = filled
        os.environ.pop("PT_HPU_LAZY_ACC_PAR_MODE", None)


def test_its_nature(acc):
    assert acc.is_synchronized_device() is False
    assert acc.use_host_timers() is False
    assert acc.resolves_data_dependency() is True
    assert acc.handles_memory_backpressure() is True
    assert acc.is_triton_supported() is False


def test_the_device_is_hpu_whatever_the_index(acc):
    assert [acc.device_name(i) for i in (None, 0, 3)] == ["hpu"] * 3
    assert [acc.device(i) for i in (None, 0, 3)] == [torch.device("hpu")] * 3
    assert acc.current_device() == 0
    assert acc.current_device_name() == "hpu:0"


def test_synchronize_takes_no_index_there(acc):
    acc.synchronize()
    acc.synchronize(3)
    assert acc.device_module.calls == [("synchronize",)] * 2


def test_properties_have_the_products_name(acc):
    properties = acc.device_properties(0)
    assert (properties.name, properties.total_memory) == ("GAUDI2", 96 * GIB)
    with pytest.raises(ValueError, match="out of range"):
        acc.device_properties(8)


def test_there_is_one_generator(acc):
    assert acc.default_generator(0) is acc.default_generator(5) is acc.default_generator(None)
    acc.manual_seed_all(7)
    state = acc.get_rng_state(5)
    acc.manual_seed(8)
    acc.set_rng_state(state, 5)
    assert acc.initial_seed() == 7
    assert torch.equal(acc.get_rng_state(), state)
    with acc.fork_rng():
        acc.manual_seed(9)
    assert torch.equal(acc.get_rng_state(2), state)
    assert ("init",) not in acc.device_module.calls


def test_statistics_have_torchs_keys_and_the_bridges_own(acc):
    stats = acc.memory_stats()
    assert stats["allocated_bytes.all.current"] == stats["InUse"] == 2 * GIB
    assert stats["allocated_bytes.all.peak"] == stats["MaxInUse"] == 5 * GIB
    assert stats["reserved_bytes.all.current"] == stats["reserved_bytes.all.peak"] == stats["Limit"]
    assert (stats["allocation.all.allocated"], stats["allocation.all.freed"]) == (7, 3)
    assert stats["allocation.all.current"] == 4


def test_memory(acc):
    assert (acc.total_memory(), acc.available_memory()) == (96 * GIB, 94 * GIB)
    assert acc.mem_get_info(0) == (94 * GIB, 96 * GIB)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the bridge's own memory_cached is deprecated
        assert acc.memory_cached() == acc.max_memory_cached() == 96 * GIB
    acc.reset_max_memory_allocated()
    acc.reset_max_memory_cached()
    assert [name for name, *_ in acc.device_module.calls] == ["reset_peak_memory_stats"] * 2
    acc.empty_cache()


def test_float16_is_asked_of_the_bridge(acc, build, monkeypatch):
    experimental = types.ModuleType("experimental")
    experimental._is_fp16_supported = lambda: True
    monkeypatch.setitem(sys.modules, "habana_frameworks.torch.utils.experimental", experimental)
    assert acc.is_fp16_supported() is True
    assert acc.is_bf16_supported() is True
    experimental._is_fp16_supported = lambda: False
    assert acc.is_fp16_supported() is False
    assert build(devices=0).is_fp16_supported() is False


def test_without_the_bridges_word_float16_is_tried(acc, monkeypatch):
    for name in ("habana_frameworks", "habana_frameworks.torch", "habana_frameworks.torch.utils"):
        monkeypatch.setitem(sys.modules, name, None)
    tried = []
    monkeypatch.setattr(
        "accel_core.accelerators._trial.computes_in", lambda torch, device, dtype: not tried.append(dtype)
    )
    assert acc.is_fp16_supported() is True
    assert tried == [torch.float16]


def test_eager_mode_has_no_graphs(acc):
    assert acc.supports_graphs() is False
    with pytest.warns(UserWarning, match="there are no graphs here"):
        assert acc.create_graph() is None
    with acc.capture_to_graph(None, pool=(0, 1)):
        pass


def test_lazy_mode_has_graphs_without_pools(build):
    acc = build(lazy=True)
    graph = acc.create_graph()
    with acc.capture_to_graph(graph, pool=(0, 1), stream="a stream"):
        pass
    acc.replay_graph(graph)
    assert acc.device_module.calls == [("graph", "a stream"), ("replay",)]


def test_a_callback_runs_now(acc):
    ran = []
    acc.lazy_call(lambda: ran.append(True))
    assert ran == [True]


def test_launching(acc):
    env = {"CUDA_VISIBLE_DEVICES": "0"}
    acc.set_visible_devices_envs(env, [2, 3])
    assert env == {"CUDA_VISIBLE_DEVICES": "0", "HABANA_VISIBLE_MODULES": "2,3"}
    with pytest.raises(ValueError, match="module ids from 0 to 7"):
        acc.set_visible_devices_envs(env, [8])
    assert acc.communication_backend_name() == "hccl"
    assert acc.get_compile_backend() == "hpu_backend"


@pytest.mark.parametrize(
    ("printed", "ids"),
    [
        ("index, module_id\n0, 3\n1, 2\n", (3, 2)),
        ("index,module_id\n1,0\n0,5\n", (5, 0)),
        ("index, module_id\n1, 2\n", None),
        ("no devices\n", None),
        (None, None),
    ],
)
def test_module_ids_are_hl_smis_and_never_indices(acc, tmp_path, monkeypatch, printed, ids):
    from accel_core.distributed.launch import _one_by_one
    from accel_core.integrations.deepspeed._view import PLACEHOLDER, launcher_view

    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)
    if printed is not None:
        (tmp_path / "printed").write_text(printed)
        tool = tmp_path / "hl-smi"
        asked = "[ \"$*\" = '-Q index,module_id -f csv' ] || exit 2"
        tool.write_text(f"#!/bin/sh\n{asked}\ncat {tmp_path}/printed\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    alone, why = _one_by_one(acc, 2)
    env = {}
    launcher_view(acc).set_visible_devices_envs(env, [0, 1])
    if ids is None:
        assert alone == []
        assert "HABANA_VISIBLE_MODULES" in why
        assert env == {PLACEHOLDER: "0,1"}
    else:
        assert alone == [{"HABANA_VISIBLE_MODULES": str(item)} for item in ids]
        assert env == {"HABANA_VISIBLE_MODULES": ",".join(map(str, ids))}
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "4,6")
    env = {}
    launcher_view(acc).set_visible_devices_envs(env, [6])  # which the launcher has read there
    assert env == {"HABANA_VISIBLE_MODULES": "6"}
