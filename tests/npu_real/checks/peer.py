"""Asks DeepSpeed's own `NPU_Accelerator` and ours the same, in one process, and prints where they differ.

`python -m checks.peer`. A case is a member with arguments; its answer is put into plain words, an exception
into its type and first line. The cases run in the order below: the first ones before the device is started.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["main"]

Case = Callable[[Any], Any]


def words(value: Any) -> str:
    """An answer as text: what it is and what it says, without addresses."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"tensor {value.dtype} {value.device} {value.cpu().tolist()}".replace("torch.", "")
    if isinstance(value, torch.Generator):
        return f"generator {value.device}"
    if isinstance(value, torch.Stream):
        return f"stream {value.device}"
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} {[words(item) for item in value]}"
    if isinstance(value, Mapping):
        return f"mapping {'with' if value else 'without'} allocated_bytes.all.current"
    if isinstance(value, (bool, int, str, type(None), torch.dtype, torch.device)) or hasattr(
        value, "__name__"
    ):
        return f"{type(value).__name__} {getattr(value, '__name__', value)}"
    return type(value).__name__


def outcome(case: Case, accelerator: Any) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            said = words(case(accelerator))
        except Exception as error:
            text = str(error).strip().splitlines() or [""]
            said = f"{type(error).__name__}: {text[0]}"
    kinds = sorted({w.category.__name__ for w in caught} - {"UserWarning"})
    return said + (f" with {', '.join(kinds)}" if kinds else "")


def cases() -> dict[str, Case]:
    """Every member of DeepSpeed's class; the part before the colon is its name."""
    import torch

    def seeded(acc: Any) -> Any:
        acc.manual_seed_all(5)
        state = acc.get_rng_state(1)
        first = torch.randn(3, device="npu:1").cpu()
        acc.set_rng_state(state, 1)
        return [torch.equal(first, torch.randn(3, device="npu:1").cpu()), acc.initial_seed()]

    def captured(acc: Any) -> Any:
        graph, source = acc.create_graph(), torch.full((2,), 3.0, device="npu")
        acc.synchronize()
        with acc.capture_to_graph(graph, stream=acc.Stream()):
            result = source.clone()
        acc.replay_graph(graph)
        acc.synchronize()
        return result

    def capture_nothing(acc: Any) -> Any:
        with acc.capture_to_graph(None):
            return "ran"

    def visible(ids: list[int]) -> Case:
        def write(acc: Any) -> Any:
            environ: dict[str, str] = {}
            acc.set_visible_devices_envs(environ, ids)
            return environ["ASCEND_RT_VISIBLE_DEVICES"]

        return write

    def in_stream(acc: Any) -> Any:
        stream = acc.Stream()
        with acc.stream(stream):
            return acc.current_stream() == stream

    def compile_backend(acc: Any) -> Any:
        acc.set_compile_backend("npugraphs")
        name = acc.get_compile_backend()
        acc.set_compile_backend("inductor")
        return name

    def pushed(acc: Any) -> Any:
        seen: list[Any] = []
        from torch_npu._C import _mstx

        kept = _mstx._range_push_on_host, _mstx._range_pop
        _mstx._range_push_on_host, _mstx._range_pop = (lambda *a: seen.append(a)), seen.append
        try:
            acc.range_push("a", domain="d")
            acc.range_pop(domain="d")
        finally:
            _mstx._range_push_on_host, _mstx._range_pop = kept
        return len(seen)

    def page_locked(acc: Any) -> Any:
        pages = mmap.mmap(-1, 4096)
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        answers = [acc.register_host_memory(address, 4096), acc.register_host_memory(address, 4096)]
        acc.unregister_host_memory(address)
        return answers

    held = torch.arange(4.0)

    def method(name: str, *arguments: Any) -> Case:
        return lambda acc: getattr(acc, name)(*arguments)

    plain = (
        "device_count", "is_available", "is_synchronized_device", "use_host_timers",
        "resolves_data_dependency",
        "handles_memory_backpressure", "is_current_stream_capturing", "current_device", "current_device_name",
        "device_name", "device", "random", "synchronize", "current_stream", "default_stream", "empty_cache",
        "memory_allocated", "max_memory_allocated", "reset_max_memory_allocated", "memory_cached",
        "max_memory_cached", "reset_max_memory_cached", "memory_stats", "reset_peak_memory_stats",
        "memory_reserved", "max_memory_reserved", "total_memory", "available_memory", "pin_memory_alignment",
        "is_bf16_supported", "is_fp16_supported", "is_fp64_supported", "supported_dtypes",
        "communication_backend_name", "is_triton_supported", "prefer_triton_grouped_mm", "create_graph",
        "op_builder_dir", "build_extension", "export_envs", "visible_devices_envs", "get_compile_backend",
    )  # fmt: skip
    tensors = [f"{kind}Tensor" for kind in ("BFloat16", "Byte", "Double", "Float", "Half", "Int", "Long")]
    return {
        # Before anything has started the device.
        "default_generator: before the start": method("default_generator", 1),
        "total_memory: of a device not selected yet": method("total_memory", 1),
        "current_stream: of a device not selected yet": method("current_stream", 1),
        "memory_stats: before the allocator": method("memory_stats", 1),
        "lazy_call": method("lazy_call", int),
        **{name: method(name) for name in plain},
        **{f"{name}: of device 1": method(name, 1) for name in ("device_name", "device", "synchronize")},
        "current_stream: of device 1": method("current_stream", 1),
        "memory_allocated: of device 1": method("memory_allocated", 1),
        "available_memory: beside another user": _available_beside_another,
        "default_generator": method("default_generator", 0),
        "set_device": method("set_device", 0),
        "set_device: out of range": method("set_device", 7),
        **dict.fromkeys(("manual_seed_all", "get_rng_state", "set_rng_state", "initial_seed"), seeded),
        "manual_seed": method("manual_seed", 3),
        "Stream": lambda acc: acc.Stream,
        "Event": lambda acc: acc.Event,
        "stream": in_stream,
        **{name: lambda acc, name=name: getattr(acc, name)([1, 2]) for name in tensors},
        **{f"{name}: the attribute": lambda acc, name=name: getattr(acc, name) for name in tensors},
        "on_accelerator": lambda acc: [acc.on_accelerator(held), acc.on_accelerator(held.to("npu"))],
        "on_accelerator: without an index": lambda acc: acc.on_accelerator(torch.empty(1, device="npu")),
        "pin_memory": lambda acc: [acc.is_pinned(held), acc.is_pinned(acc.pin_memory(held))],
        "is_pinned": method("is_pinned", held),
        "unpin_memory": method("unpin_memory", held),
        "pin_empty": lambda acc: acc.is_pinned(acc.pin_empty(2, 3, dtype=torch.int32)),
        "pin_empty: on the device": lambda acc: acc.pin_empty(2, dtype=torch.int32, device="npu"),
        "pin_empty_like": lambda acc: acc.is_pinned(acc.pin_empty_like(held)),
        "register_host_memory": page_locked,
        "unregister_host_memory: unknown": method("unregister_host_memory", 4096),
        "capture_to_graph": captured,
        "capture_to_graph: without a graph": capture_nothing,
        "replay_graph": captured,
        "replay_graph: without a graph": method("replay_graph", None),
        "range_push": pushed,
        "range_pop": pushed,
        "supports_nvtx_domain": lambda acc: acc.supports_nvtx_domain,
        "set_compile_backend": compile_backend,
        "set_compile_backend: unknown": method("set_compile_backend", "nonsense"),
        "set_visible_devices_envs": visible([0, 1]),
        "set_visible_devices_envs: in any order": visible([3, 1]),
        "set_visible_devices_envs: one twice": visible([1, 1]),
        "get_op_builder": method("get_op_builder", "FusedAdamBuilder"),
        "create_op_builder: unknown": lambda acc: type(acc.create_op_builder("NoSuchBuilder")).__name__,
    }


def _available_beside_another(acc: Any) -> Any:
    """Memory that the allocator holds without a tensor in it is not free to another process."""
    import torch

    torch.empty(64 << 20, dtype=torch.uint8, device="npu")
    return acc.available_memory() == torch.npu.mem_get_info()[0]


def main() -> None:
    from stand_in import kernels

    kernels.install()
    import accel_core

    ours = accel_core.get_accelerator()
    # DeepSpeed logs to stdout, which is the answer's.
    with contextlib.redirect_stdout(sys.stderr):
        from deepspeed.accelerator.npu_accelerator import NPU_Accelerator

        theirs = NPU_Accelerator()
        asked = cases()
        answers = {}
        for name, case in asked.items():
            answers[name] = {"theirs": outcome(case, theirs), "ours": outcome(case, ours)}
    members = [name for name in dir(NPU_Accelerator) if not name.startswith("_")]
    told = {name.partition(":")[0] for name in asked}
    print(json.dumps({"answers": answers, "not asked": sorted(set(members) - told)}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
