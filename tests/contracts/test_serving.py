"""Who serves each member, as docs/reference/members-by-backend.md tells: found by calling it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accel_contracts.running import accelerator_module  # noqa: E402
from accel_contracts.serving import serving  # noqa: E402
from accel_testing import surfaces  # noqa: E402
from accel_testing.recorder import Recorder  # noqa: E402
from accel_testing.tools import load  # noqa: E402

from accel_core import Backend, TorchAccelerator  # noqa: E402

BACKEND = Backend(name="mlu", priority=300, device_type="mlu", vendor_import="torch_mlu")


class Own(TorchAccelerator):
    """A plugin's class."""

    def is_triton_supported(self) -> bool:
        """As this test has it."""
        return True


def test_each_member_is_told_by_what_its_call_reaches(monkeypatch):
    vendor = Recorder(surfaces.load("mlu"), conditional=True)
    module = vendor.modules["torch.mlu"]
    monkeypatch.delattr(module, "set_per_process_memory_fraction")
    monkeypatch.setattr(torch, "mlu", module, raising=False)
    speaking = accelerator_module(BACKEND)
    monkeypatch.delattr(module, "empty_cache")
    monkeypatch.setattr(torch, "accelerator", speaking.modules["torch.accelerator"])
    found = serving(Own(BACKEND), vendor, speaking)
    assert {name: found[name] for name in (
        "is_triton_supported", "memory_allocated", "empty_cache", "export_envs",
        "set_per_process_memory_fraction",
    )} == {
        "is_triton_supported": "plugin",
        "memory_allocated": "vendor",
        "empty_cache": "torch",
        "export_envs": "default",
        "set_per_process_memory_fraction": "unsupported",
    }  # fmt: skip


def test_the_table_has_what_differs_and_names_what_does_not():
    tool = load("member_table")
    page = tool.page([
        {"backend": "xpu", "priority": 800, "serves": {"a": "vendor", "b": "default"}},
        {"backend": "xpu", "priority": 790, "serves": {"a": "torch", "b": "default"}},
        {"backend": "cuda", "priority": 200, "serves": {"a": "plugin", "b": "default"}},
        {"backend": "cuda", "priority": 190, "serves": {"a": "plugin", "b": "default"}},
    ])  # fmt: skip
    assert "| member | xpu | xpu (790) | cuda |" in page
    assert "| `a` | V | T | P |" in page
    assert "on every backend: `b`." in page
