"""What of `HPUAccelerator` no simulated device shows: hl-smi's module ids, the eager mode, the bridge's word.

What its other members do is told by its score card.
"""

from __future__ import annotations

import sys
import types

import pytest

torch = pytest.importorskip("torch")

from accel_hpu import BACKEND  # noqa: E402
from accel_hpu.accelerator import HPUAccelerator  # noqa: E402


@pytest.fixture
def acc(monkeypatch):
    """Over a module in eager mode, which has neither graphs nor a word on types."""
    module = types.ModuleType("habana_frameworks.torch.hpu")
    module.is_available, module.device_count = lambda: True, lambda: 8
    monkeypatch.setattr(torch, "hpu", module, raising=False)
    return HPUAccelerator(BACKEND)


def test_eager_mode_has_no_graphs(acc):
    assert acc.supports_graphs() is False
    with pytest.warns(UserWarning, match="there are no graphs here"):
        assert acc.create_graph() is None
    with acc.capture_to_graph(None, pool=(0, 1)):
        pass


def test_float16_is_asked_of_the_bridge_else_tried(acc, monkeypatch):
    experimental = types.ModuleType("experimental")
    monkeypatch.setitem(sys.modules, "habana_frameworks.torch.utils.experimental", experimental)
    for word in (True, False):
        experimental._is_fp16_supported = lambda word=word: word
        assert acc.is_fp16_supported() is word
    for name in ("habana_frameworks", "habana_frameworks.torch.utils.experimental"):
        monkeypatch.setitem(sys.modules, name, None)
    tried = []
    monkeypatch.setattr(
        "accel_core.accelerators._trial.computes_in", lambda torch, device, dtype: not tried.append(dtype)
    )
    assert acc.is_fp16_supported() is True
    assert tried == [torch.float16]


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
