"""What of `HPUAccelerator` no simulated device shows: hl-smi's module ids, the eager mode, the bridge's word.

What its other members do is told by its score card.
"""

import contextlib
import sys
import types

import pytest

torch = pytest.importorskip("torch")

from accel_tests.children import executable  # noqa: E402

from accel_hpu import BACKEND  # noqa: E402
from accel_hpu.accelerator import HPUAccelerator  # noqa: E402


@pytest.fixture
def module(monkeypatch):
    """The bridge's in eager mode, which has neither graphs nor a word on types."""
    module = types.ModuleType("habana_frameworks.torch.hpu")
    module.is_available, module.device_count = lambda: True, lambda: 8
    module.current_device, module.synchronize = lambda: 0, lambda: None
    module.get_device_name = lambda device=None: "GAUDI2"
    module.get_device_properties = lambda device=None: "(sramBaseAddress=0x1000)"
    module.mem_get_info = lambda device=None: (94, 96)
    module.memory_stats = lambda device=None: {
        "Limit": 96, "InUse": 2, "MaxInUse": 5, "NumAllocs": 7, "NumFrees": 3, "ActiveAllocs": 4,
    }  # fmt: skip
    monkeypatch.setattr(torch, "hpu", module, raising=False)
    return module


@pytest.fixture
def acc(module):
    return HPUAccelerator(BACKEND)


def test_its_words_are_torchs_and_the_products(acc):
    stats = acc.memory_stats()
    allocations = [
        stats[f"allocation.all.{what}"] for what in ("current", "allocated", "freed")
    ]
    sizes = [stats[f"{kind}_bytes.all.current"] for kind in ("allocated", "reserved")]
    assert (allocations, sizes, stats["allocated_bytes.all.peak"]) == (
        [4, 7, 3],
        [2, 96],
        5,
    )
    assert (acc.device_properties(0).name, acc.device_properties(0).total_memory) == (
        "GAUDI2",
        96,
    )


def test_its_graphs_share_no_pool_and_take_a_stream(module):
    seen = []
    module.HPUGraph = type("HPUGraph", (), {"replay": lambda graph: None})
    module.graph = lambda hpu_graph, stream=None: (
        seen.append(stream) or contextlib.nullcontext()
    )
    acc = HPUAccelerator(BACKEND)
    with acc.capture_to_graph(acc.create_graph(), pool=(0, 1), stream="a stream"):
        pass
    assert seen == ["a stream"]


def test_eager_mode_has_no_graphs(acc):
    assert acc.supports_graphs() is False
    with pytest.warns(UserWarning, match="graphs are not supported"):
        assert acc.create_graph() is None
    with acc.capture_to_graph(None, pool=(0, 1)):
        pass


def test_float16_is_asked_of_the_bridge_else_tried(acc, monkeypatch):
    experimental = types.ModuleType("experimental")
    monkeypatch.setitem(
        sys.modules, "habana_frameworks.torch.utils.experimental", experimental
    )
    for word in (True, False):
        experimental._is_fp16_supported = lambda word=word: word
        assert acc.is_fp16_supported() is word
    for name in ("habana_frameworks", "habana_frameworks.torch.utils.experimental"):
        monkeypatch.setitem(sys.modules, name, None)
    tried = []
    computes = "accel_core.interface.dtypes.computes_in"
    monkeypatch.setattr(computes, lambda torch, device, dtype: not tried.append(dtype))
    assert acc.is_fp16_supported() is True
    assert tried == [torch.float16]


PRINTED = [
    ("index, module_id\n0, 3\n1, 2\n", (3, 2)),
    ("index,module_id\n1,0\n0,5\n", (5, 0)),
    ("index, module_id\n1, 2\n", None),
    ("no devices\n", None),
    (None, None),
]


@pytest.mark.parametrize(("printed", "ids"), PRINTED)
def test_module_ids_are_hl_smis_and_never_indices(
    acc, tmp_path, monkeypatch, printed, ids
):
    from accel_train.deepspeed._view import PLACEHOLDER, launcher_view
    from accel_train.launch.launch import _one_by_one

    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)
    if printed is not None:
        (tmp_path / "printed").write_text(printed)
        asked = "[ \"$*\" = '-Q index,module_id -f csv' ] || exit 2"
        executable(tmp_path / "hl-smi", f"{asked}\ncat {tmp_path}/printed")
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
    launcher_view(acc).set_visible_devices_envs(
        env, [6]
    )  # which the launcher has read there
    assert env == {"HABANA_VISIBLE_MODULES": "6"}
