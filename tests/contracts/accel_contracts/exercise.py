"""Every member of an accelerator, called in each way that the interface documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import torch

from accel_core import Accelerator

__all__ = ["CALLS", "exercise", "members"]

#: What a call that does not fit, or a name that is not there, comes out as.
FAULTS = (AttributeError, TypeError, NameError, KeyError)

_NOTHING: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
_INDEXED = [_NOTHING, ((1,), {}), ((), {"device_index": 0})]
_PLAIN = [_NOTHING]


def _host() -> torch.Tensor:
    return torch.zeros(2)


#: Member: its calls, each a pair of positional and keyword arguments. Members that are left out here are
#: called in `_together`.
CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    **dict.fromkeys(
        ("available_memory", "current_stream", "default_stream", "device", "device_name",
         "device_properties", "device_uuid", "get_device_capability", "get_rng_state",
         "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
         "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "memory_summary",
         "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
         "reset_peak_memory_stats", "synchronize", "total_memory"),
        _INDEXED,
    ),
    **dict.fromkeys(
        ("build_extension", "capabilities", "communication_backend_name", "communication_backend_version",
         "create_graph", "current_device", "current_device_name", "device_count", "empty_cache",
         "empty_host_cache", "grad_scaler", "is_accelerator", "training_dtype",
         "export_envs", "get_compile_backend", "handles_memory_backpressure", "initial_seed", "is_available",
         "is_bf16_native", "is_bf16_supported", "is_current_stream_capturing", "is_fp16_supported",
         "is_fp64_supported", "is_fp8_supported", "is_initialized", "is_synchronized_device",
         "is_triton_supported",
         "op_builder_dir", "op_builders", "operators", "pin_memory_alignment", "prefer_triton_grouped_mm",
         "random", "resolves_data_dependency", "supported_dtypes", "supports_graphs", "use_host_timers",
         "visible_device_ids", "visible_devices_envs", "apply_vendor_defaults"),
        _PLAIN,
    ),
    **{
        f"{kind}Tensor": [(([1, 0],), {})]
        for kind in ("BFloat16", "Byte", "Double", "Float", "Half", "Int", "Long")
    },
    "autocast": [_NOTHING, ((torch.bfloat16,), {"enabled": False})],
    "create_op_builder": [(("FusedAdamBuilder",), {})],
    "get_op_builder": [(("FusedAdamBuilder",), {})],
    "default_generator": [((0,), {}), ((None,), {})],
    "is_pinned": [((_host(),), {})],
    "lazy_call": [((lambda: None,), {})],
    "manual_seed": [((1,), {}), ((), {"seed": 1})],
    "manual_seed_all": [((1,), {}), ((), {"seed": 1})],
    "on_accelerator": [((_host(),), {})],
    "pin_empty": [((2,), {"dtype": torch.float32})],
    "pin_empty_like": [((_host(),), {})],
    "pin_memory": [((_host(),), {}), ((_host(),), {"make_copy": False, "match_shape": False})],
    "unpin_memory": [((_host(),), {})],
    "register_host_memory": [((0, 4096), {})],
    "unregister_host_memory": [((0,), {})],
    "set_compile_backend": [(("eager",), {})],
    "set_device": [((1,), {}), ((), {"device_index": 0})],
    "set_per_process_memory_fraction": [((0.5,), {}), ((0.5, 1), {})],
    "set_rng_state": [((torch.Generator().get_state(),), {}), ((torch.Generator().get_state(), 1), {})],
    "set_visible_devices_envs": [(({}, [0, 1]), {})],
}  # fmt: skip
_TOGETHER = (
    "Event", "Stream", "capture_to_graph", "device_guard", "fork_rng", "range", "range_pop", "range_push",
    "replay_graph", "set_stream", "stream",
)  # fmt: skip
#: Plain values.
_VALUES = ("api_level", "backend", "device_type", "name", "supports_nvtx_domain")


def members() -> set[str]:
    """What this module calls, or leaves as a plain value."""
    return {*CALLS, *_TOGETHER, *_VALUES}


def exercise(accelerator: Accelerator) -> list[str]:
    """Call everything; say what failed in a way that only a wrong name or call does."""
    problems: list[str] = []

    @contextmanager
    def noted(what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # Anything else may be raised here, and torch may raise what it likes: there is no device.
            if isinstance(error, FAULTS) and _is_our_fault(error):
                problems.append(f"{what}: {type(error).__name__}: {error}")

    for member, calls in CALLS.items():
        for args, kwargs in calls:
            with noted(member):
                getattr(accelerator, member)(*args, **kwargs)
    for work in (_streams, _graphs, _contexts, _ranges):
        with noted(work.__name__.strip("_")):
            work(accelerator, noted)
    return problems


def _is_our_fault(error: BaseException) -> bool:
    """Whether the last frame outside the recorder is accel_core's, the plugin's, or that of a caller here."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    names = [name for name in names if name != "accel_testing.recorder"]
    return str(names[-1]).startswith("accel_")


Noted = Callable[[str], Any]


def _streams(accelerator: Accelerator, noted: Noted) -> None:
    stream, other = accelerator.Stream(), accelerator.Stream(device=accelerator.device(0), priority=0)
    event, timed = accelerator.Event(), accelerator.Event(enable_timing=True)
    for context in (stream, None):
        with noted("stream"), accelerator.stream(context):
            pass
    with noted("set_stream"):
        accelerator.set_stream(stream)
    with noted("stream and event"):
        event.record()
        timed.record()
        timed.elapsed_time(timed)
        event.query()
        event.synchronize()
        event.wait()
        stream.wait_event(event)
        stream.wait_stream(other)
        stream.record_event()
        stream.synchronize()
        stream.query()


def _graphs(accelerator: Accelerator, noted: Noted) -> None:
    graph = accelerator.create_graph()
    for more in ({}, {"stream": accelerator.Stream()}, {"pool": (0, 0)}):
        with noted(f"capture_to_graph with {', '.join(more)}"), accelerator.capture_to_graph(graph, **more):
            pass
    accelerator.replay_graph(graph)


def _contexts(accelerator: Accelerator, noted: Noted) -> None:
    for index in (0, None):
        with noted("device_guard"), accelerator.device_guard(index):
            pass
    for devices in (None, [0]):
        with noted("fork_rng"), accelerator.fork_rng(devices):
            pass


def _ranges(accelerator: Accelerator, noted: Noted) -> None:
    for domain in (None, "a domain"):
        accelerator.range_push("work", domain=domain, category="c")
        accelerator.range_pop(domain=domain)
    with noted("range"), accelerator.range("work"):
        pass
