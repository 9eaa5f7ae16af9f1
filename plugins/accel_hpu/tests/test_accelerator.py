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
from accel_train.deepspeed._launcher_view import PLACEHOLDER, launcher_view  # noqa: E402
from accel_train.launch.launch import (  # noqa: E402
    _device_ids,
    _environments_with_one_device,
    _single_device_error,
)


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


def test_its_memory_statistics_have_torchs_names(acc):
    stats = acc.memory_stats()
    assert stats["allocation.all.current"] == 4
    assert stats["allocation.all.allocated"] == 7
    assert stats["allocation.all.freed"] == 3
    assert stats["allocated_bytes.all.current"] == 2
    assert stats["reserved_bytes.all.current"] == 96
    assert stats["allocated_bytes.all.peak"] == 5


def test_its_properties_have_the_products_name_and_memory(acc):
    properties = acc.device_properties(0)
    assert properties.name == "GAUDI2"
    assert properties.total_memory == 96


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


@pytest.mark.parametrize("answer", [True, False])
def test_float16_is_asked_of_the_bridge(acc, monkeypatch, answer):
    experimental = types.ModuleType("experimental")
    experimental._is_fp16_supported = lambda: answer
    monkeypatch.setitem(
        sys.modules, "habana_frameworks.torch.utils.experimental", experimental
    )
    assert acc.is_fp16_supported() is answer


def test_float16_is_tried_where_the_bridge_cannot_be_asked(acc, monkeypatch):
    for name in ("habana_frameworks", "habana_frameworks.torch.utils.experimental"):
        monkeypatch.setitem(sys.modules, name, None)
    tried = []
    computes = "accel_core.interface.dtypes.try_dtype"
    monkeypatch.setattr(computes, lambda torch, device, dtype: not tried.append(dtype))
    assert acc.is_fp16_supported() is True
    assert tried == [torch.float16]


@pytest.fixture
def hl_smi(tmp_path, monkeypatch):
    """`hl_smi(text)` puts a program on PATH that prints so where it is asked for the module ids."""
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(text):
        (tmp_path / "printed").write_text(text)
        asked = "[ \"$*\" = '-Q index,module_id -f csv' ] || exit 2"
        executable(tmp_path / "hl-smi", f"{asked}\ncat {tmp_path}/printed")

    return put


#: What hl-smi prints, and the module ids of the devices 0 and 1.
WITH_MODULE_IDS = [
    ("index, module_id\n0, 3\n1, 2\n", (3, 2)),
    ("index,module_id\n1,0\n0,5\n", (5, 0)),
]


@pytest.mark.parametrize(("printed", "ids"), WITH_MODULE_IDS)
def test_a_rank_of_ours_sees_its_device_by_hl_smis_module_id(acc, hl_smi, printed, ids):
    hl_smi(printed)
    variables = _environments_with_one_device(acc, _device_ids(acc))
    assert variables == [{"HABANA_VISIBLE_MODULES": str(item)} for item in ids]


@pytest.mark.parametrize(("printed", "ids"), WITH_MODULE_IDS)
def test_deepspeeds_launcher_names_hl_smis_module_ids(acc, hl_smi, printed, ids):
    hl_smi(printed)
    assert launched(acc, [0, 1]) == {"HABANA_VISIBLE_MODULES": ",".join(map(str, ids))}


@pytest.fixture(
    params=["index, module_id\n1, 2\n", "no devices\n", None],
    ids=["another device", "no table", "no program"],
)
def no_module_ids(hl_smi, request):
    """An hl-smi that does not say the module id of device 0."""
    if request.param is not None:
        hl_smi(request.param)


def test_without_module_ids_no_rank_of_ours_sees_one_device(acc, no_module_ids):
    """An index in their place would be another device."""
    device_ids = _device_ids(acc)
    assert device_ids is None
    error = _single_device_error(acc, device_ids, 2)
    assert "HABANA_VISIBLE_MODULES" in error


def test_without_module_ids_deepspeeds_launcher_sets_a_placeholder(acc, no_module_ids):
    assert launched(acc, [0, 1]) == {PLACEHOLDER: "0,1"}


def test_a_module_that_the_launcher_has_read_in_the_variable_stays(
    acc, hl_smi, monkeypatch
):
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "4,6")
    assert launched(acc, [6]) == {"HABANA_VISIBLE_MODULES": "6"}


def launched(acc, devices):
    """The variables that DeepSpeed's launcher gives ranks on these devices."""
    environ = {}
    launcher_view(acc).set_visible_devices_envs(environ, devices)
    return environ
