"""Who serves each member, as docs/reference/members-by-backend.md tells."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from accel_contracts.plugins import PLUGINS, declared
from accel_tests.tools import load


def test_who_serves_a_member_of_mlu():
    (mlu,) = (b for plugin in PLUGINS for b in declared(plugin) if b.name == "mlu")
    found = load("member_table").serving(mlu)
    names = ("is_triton_supported", "memory_allocated", "Event", "empty_host_cache", "export_envs")
    assert [found[name] for name in names] == ["plugin", "vendor", "vendor", "torch", "default"]


def test_the_table_has_what_differs_and_names_what_does_not():
    page = load("member_table").page([
        {"backend": "xpu", "priority": 800, "serves": {"a": "vendor", "b": "default"}},
        {"backend": "xpu", "priority": 790, "serves": {"a": "torch", "b": "default"}},
        {"backend": "cuda", "priority": 200, "serves": {"a": "plugin", "b": "default"}},
        {"backend": "cuda", "priority": 190, "serves": {"a": "plugin", "b": "default"}},
    ])  # fmt: skip
    assert "| member | xpu | xpu (790) | cuda |" in page
    assert "| `a` | V | T | P |" in page
    assert "on every backend: `b`." in page
