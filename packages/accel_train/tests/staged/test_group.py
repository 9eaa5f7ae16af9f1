"""Two ranks of the staged group in one process, over gloo, on a device that is late wherever nobody waits."""

import pytest

pytest.importorskip("torch")

import torch


def test_a_collective_waits_for_the_callers_stream(device, two_ranks):
    def run(group):
        value = torch.zeros(2, 3).t()
        stream = device.Stream()
        with device.stream(stream):
            device.launch(value.fill_, group.rank() + 1)
            group.allreduce([value]).wait()
        return value.tolist()

    assert two_ranks(run) == [[[3, 3]] * 3] * 2
