"""NPUGraph: captured once, replayed on new values. Last of all: torch_npu may be left capturing.

torch_npu captures copies, fills and kernels of CANN's newer library (aclnn) alone, and refuses operators by
name.
"""

import pytest
import torch


def check_a_pool_and_a_stream_of_ones_own(acc):
    first, second, stream = acc.create_graph(), acc.create_graph(), acc.Stream()
    source = torch.full((4,), 2.0, device="npu")
    acc.synchronize()
    with acc.capture_to_graph(first, stream=stream):
        assert acc.current_stream() == stream
        one = source.clone()
    with acc.capture_to_graph(second, pool=first.pool(), stream=stream):
        two = one.clone()
    for graph in (first, second):
        acc.replay_graph(graph)
    acc.synchronize()
    assert two.tolist() == [2.0] * 4
    assert first.pool() == second.pool()


def check_a_kernel_by_name_is_refused(acc):
    """The end of the stand-in, in torch_npu's own words. Last: torch_npu may be left capturing."""
    x = torch.ones(2, device="npu")
    acc.synchronize()
    refused = pytest.raises(
        RuntimeError, match="Cannot run aclop operators during NPU graph capture"
    )
    with refused, acc.capture_to_graph(acc.create_graph()):
        torch.exp(x)
