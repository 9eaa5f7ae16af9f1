"""Compilation, profiler ranges, deferred calls, launching, operators."""

from __future__ import annotations

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


def check_triton(acc):
    assert acc.is_triton_supported() is False
    assert acc.prefer_triton_grouped_mm() is False


def check_communication(acc):
    assert acc.communication_backend_name() == "hccl"
    assert torch.distributed.Backend.default_device_backend_map["npu"] == "hccl"
    assert "hccl" in torch.distributed.Backend.backend_list


def check_the_environment_of_other_nodes(acc):
    assert acc.export_envs()[:4] == ["ASCEND", "HCCL", "LD_LIBRARY", "PATH"]
    assert not [
        prefix for prefix in acc.export_envs() if "ASCEND_RT_VISIBLE".startswith(prefix) and not prefix
    ]


def check_visible_devices(acc):
    assert acc.visible_devices_envs() == ["ASCEND_RT_VISIBLE_DEVICES"]
    assert acc.visible_device_ids() is None
    environ = {"PATH": "/bin"}
    acc.set_visible_devices_envs(environ, [3, 1, 2])
    assert environ == {"PATH": "/bin", "ASCEND_RT_VISIBLE_DEVICES": "1,2,3"}
    with pytest.raises(ValueError, match="twice"):
        acc.set_visible_devices_envs(environ, [1, 1])


def check_operators(acc):
    assert "FusedAdamBuilder" in acc.op_builders()
    assert acc.operators()["FusedAdamBuilder"].candidates
    assert acc.create_op_builder("FusedLambBuilder").is_compatible() is True
    assert acc.create_op_builder("NoSuchBuilder").is_compatible() is False
    assert acc.get_op_builder("NoSuchBuilder").__name__ == "NotImplementedBuilder"
    assert acc.op_builder_dir()
    assert acc.build_extension() is torch.utils.cpp_extension.BuildExtension


def check_there_are_no_vendor_defaults(acc):
    import os

    before = dict(os.environ)
    acc.apply_vendor_defaults()
    assert os.environ == before
