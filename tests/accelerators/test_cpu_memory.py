"""What the CPU says of this process's memory."""

import gc
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from accel_core import hardware as machine_host
from accel_core.interface import cpu as ours

MIB = 1 << 20
#: What the allocator and the interpreter may do beside us.
SLACK = 60 * MIB


def touch(mib):
    """Allocate, write and free that much."""
    block = torch.ones(mib * MIB, dtype=torch.uint8)
    assert int(block[-1]) == 1
    del block
    gc.collect()


def test_allocated_is_what_the_process_holds(cpu):
    before = cpu.memory_allocated()
    block = torch.ones(200 * MIB, dtype=torch.uint8)
    assert abs(cpu.memory_allocated() - before - 200 * MIB) < SLACK
    del block


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="Linux's high-water mark"
)
def test_the_peak_is_seen_though_nobody_asked_at_the_time(cpu):
    cpu.reset_peak_memory_stats()
    start = cpu.max_memory_allocated()
    touch(200)
    assert cpu.max_memory_allocated() - start > 150 * MIB
    cpu.reset_max_memory_allocated(0)
    after = cpu.max_memory_allocated()
    assert after - start < SLACK
    touch(100)
    assert 60 * MIB < cpu.max_memory_cached() - after < 160 * MIB
    cpu.reset_max_memory_cached()
    assert cpu.memory_stats()["allocated_bytes.all.peak"] - start < SLACK


def test_where_the_mark_stays_a_peak_is_seen_when_asked(cpu, monkeypatch, tmp_path):
    touch(200)
    monkeypatch.setattr(ours, "_CLEAR_REFS", tmp_path / "missing" / "clear_refs")
    cpu.reset_peak_memory_stats()
    start = cpu.max_memory_allocated()
    assert start < ours.high_water_mark() + MIB
    block = torch.ones(100 * MIB, dtype=torch.uint8)
    assert cpu.memory_allocated() - start > 60 * MIB
    del block
    assert cpu.max_memory_allocated() - start > 60 * MIB
    touch(400)
    assert cpu.max_memory_allocated() - start > 300 * MIB


def test_without_proc_the_process_is_asked(monkeypatch, tmp_path):
    with_proc = ours.high_water_mark()
    monkeypatch.setattr(ours, "_STATUS", tmp_path / "status")
    assert ours.high_water_mark() > with_proc // 2
    (tmp_path / "status").write_text("Name:\tpython\n")
    assert ours.high_water_mark() > with_proc // 2


@pytest.mark.parametrize(("counted", "mark"), [({"peak_wset": 123}, 123), ({}, 0)])
def test_windows_has_its_own_mark(monkeypatch, tmp_path, counted, mark):
    monkeypatch.setattr(ours, "_STATUS", tmp_path / "status")
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(
        psutil.Process, "memory_info", lambda _: SimpleNamespace(**counted)
    )
    assert ours.high_water_mark() == mark


@pytest.mark.parametrize(
    ("limit", "left"), [(None, None), (3 << 30, 1 << 30), (1 << 60, 1 << 60)]
)
def test_a_containers_limit_counts(cpu, monkeypatch, limit, left):
    monkeypatch.setattr(machine_host, "cgroup_memory_limit", lambda: limit)
    monkeypatch.setattr(machine_host, "cgroup_memory_available", lambda: left)
    host = psutil.virtual_memory()
    assert cpu.total_memory() == min(host.total, limit or host.total)
    free, total = cpu.mem_get_info()
    assert total == cpu.total_memory()
    assert free <= min(left or host.total, total)
