"""What training scripts wrote by hand: the data type, a scaler that fits it, what the memory went to."""

import types

import pytest
import torch
from accel_tests.tools import raising

from accel_core import (
    Accelerator,
    TorchAccelerator,
    UnsupportedError,
)


@pytest.mark.parametrize(
    ("bf16", "fp16", "scales", "dtype"),
    [
        (True, True, True, torch.bfloat16),
        (True, False, False, torch.bfloat16),
        (False, True, True, torch.float16),
        (False, True, False, torch.float32),
        (False, False, True, torch.float32),
    ],
)
def test_the_data_type_is_what_the_hardware_is_good_at(
    cpu, monkeypatch, bf16, fp16, scales, dtype
):
    monkeypatch.setattr(cpu, "is_bf16_native", lambda: bf16)
    monkeypatch.setattr(cpu, "is_fp16_supported", lambda: fp16)
    monkeypatch.setitem(vars(cpu), "_can_scale_losses", scales)
    assert cpu.training_dtype() is dtype
    assert cpu.grad_scaler().is_enabled() is (dtype is torch.float16)


def test_whether_losses_are_scaled_is_tried(cpu, simulated):
    assert cpu._can_scale_losses is True
    assert simulated._can_scale_losses is False  # nothing computes on it


def test_a_scaler_scales_for_float16_and_else_lets_be(cpu):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = cpu.grad_scaler(torch.float16, init_scale=8.0)
    scaler.scale(weight.sum()).backward()
    assert weight.grad.tolist() == [8.0, 8.0]
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5]
    off = [
        cpu.grad_scaler(torch.bfloat16),
        cpu.grad_scaler(torch.float16, enabled=False),
    ]
    assert not any(scaler.is_enabled() for scaler in off)
    with pytest.raises(TypeError, match="init_scal"):
        cpu.grad_scaler(torch.float16, init_scal=8.0)


# Streams


def test_a_stream_stays_set_until_another_is(simulated, vendor, backend):
    stream = simulated.Stream()
    simulated.set_stream(
        stream
    )  # the vendor has no such function here: its context sets it
    assert vendor.running is stream
    vendor.set_stream = lambda stream: setattr(vendor, "running", stream)
    bound = TorchAccelerator(backend())
    assert bound.set_stream is vendor.set_stream
    vendor.set_stream = lambda chosen: setattr(vendor, "running", [chosen])
    TorchAccelerator(backend()).set_stream(stream=stream)
    assert vendor.running == [stream]
    Accelerator(backend()).set_stream(stream)  # one queue: there is nothing to set


# Memory


def test_what_a_device_does_not_keep_is_not_reset(simulated, vendor, backend):
    simulated.reset_accumulated_memory_stats(1)
    simulated.empty_host_cache()
    assert vendor.asked == []
    vendor.reset_accumulated_memory_stats = lambda device=None: vendor.asked.append(
        device
    )
    accelerator = TorchAccelerator(backend())
    accelerator.reset_accumulated_memory_stats("maia:1")
    torchs = types.SimpleNamespace(
        empty_host_cache=lambda: vendor.asked.append(
            accelerator._supports_pinned_memory
        )
    )
    for locks in (False, True):
        vars(accelerator).update(
            _torch_accelerator=torchs, _supports_pinned_memory=locks
        )
        accelerator.empty_host_cache()
    assert vendor.asked == [1, True]


def test_the_summary_of_a_device_that_does_not_tell_its_free_memory(simulated, vendor):
    """Case 04: Intel's integrated GPUs refuse this one question."""
    vendor.memory_stats = lambda device=None: {}
    vendor.mem_get_info = raising(RuntimeError("it doesn't support querying"))
    text = TorchAccelerator(simulated.backend).memory_summary("maia:1")
    assert "reserved bytes" in text
    assert "free memory" not in text


def test_the_summary_tells_what_there_is(simulated, vendor, cpu):
    stats = {
        f"{name}.{pool}.{column}": 3 << shift
        for shift, name in ((0, "allocation"), (20, "allocated_bytes"))
        for pool in ("all", "large_pool", "small_pool")
        for column in ("current", "peak", "allocated", "freed")
    }
    vendor.memory_stats = lambda device=None: stats
    vendor.mem_get_info = lambda device=None: (700, 1 << 30)
    text = TorchAccelerator(simulated.backend).memory_summary("maia:1")
    assert text.splitlines()[0].strip() == "Memory of maia:1"
    assert [
        line.split() for line in text.splitlines() if line.startswith("allocat")
    ] == [
        ["allocation", *["|", "3"] * 4],
        ["allocated", "bytes", *["|", "3072", "KiB"] * 4],
    ]
    assert text.count("small pool") == 2
    assert "free memory: 700 B of 1024 MiB" in text
    assert "pool" not in TorchAccelerator(simulated.backend).memory_summary(
        abbreviated=True
    )
    peak = next(
        line
        for line in cpu.memory_summary().splitlines()
        if line.startswith("allocated bytes")
    )
    assert "iB" in peak
    assert (
        peak.split("|")[-1].strip() == "-"
    )  # the process's resident set: what it ever freed nobody counts


def test_a_device_that_tells_nothing_says_so(backend):
    class Silent(Accelerator):
        def device_count(self):
            return 1

        def current_device(self):
            return 0

    text = Silent(backend()).memory_summary()
    assert "Memory of maia:0" in text
    assert "The device reports no memory statistics." in text


# What it can hold


def test_the_capability_is_torchs_word_or_tried(simulated, monkeypatch):
    with pytest.raises(
        UnsupportedError,
        match=r"get_device_capability .*: no tensor can be created on maia",
    ):
        simulated.get_device_capability(1)

    said = {"supported_dtypes": {torch.float16}}

    def get_device_capability(device):
        if device == 0:
            raise RuntimeError("Backend doesn't support getting device capabilities")
        return said

    torchs = types.SimpleNamespace(get_device_capability=get_device_capability)
    monkeypatch.setattr(simulated, "_torch_accelerator", torchs)
    found = simulated.get_device_capability("maia:1")
    assert found == {"supported_dtypes": {torch.float16}}
    found["supported_dtypes"].clear()  # a copy: torch keeps its own
    assert said["supported_dtypes"] == {torch.float16}
    with pytest.raises(UnsupportedError, match="get_device_capability"):
        simulated.get_device_capability(0)
