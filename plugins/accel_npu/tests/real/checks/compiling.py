"""Compilation, and ranges of the profiler."""

import pytest
import torch


def check_compile_backends(acc):
    assert acc.get_compile_backend() == "inductor"
    for name in ("npu", "npugraphs", "npugraph_ex", "eager", "inductor"):
        acc.set_compile_backend(name)
        assert acc.get_compile_backend() == name
    with pytest.raises(ValueError, match="npugraph_ex, npugraphs"):
        acc.set_compile_backend("nonsense")


def check_compiling_with_the_eager_backend(acc):
    acc.set_compile_backend("eager")
    double = torch.compile(lambda x: x + x, backend=acc.get_compile_backend())
    assert double(torch.ones(3, device="npu")).tolist() == [2.0] * 3
    acc.set_compile_backend("inductor")


def check_ranges_reach_mstx_with_their_domain(acc):
    from torch_npu._C import _mstx

    calls = []
    kept = _mstx._range_push_on_host, _mstx._range_pop
    _mstx._range_push_on_host = lambda *arguments: calls.append(arguments) or 0
    _mstx._range_pop = lambda domain: calls.append(domain) or 0
    try:
        acc.range_push("forward", domain="DeepSpeed", category="engine")
        acc.range_pop(domain="DeepSpeed")
        acc.range_push("plain")
        acc.range_pop()
        with acc.range("block"):
            pass
    finally:
        _mstx._range_push_on_host, _mstx._range_pop = kept
    assert acc.supports_nvtx_domain is True
    assert calls == [
        ("forward", "DeepSpeed"), "DeepSpeed", ("plain", "default"), "default",
        ("block", "default"), "default",
    ]  # fmt: skip
