"""Broken accelerators that nobody chose: each member and each kernel, broken in each way that fits it.

What a member gives and takes decides how it can be broken, and what a kernel does with numbers. All of them
are tried, so that the score is not that of who wrote the checks.
"""

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import accel_core
from accel_core import Accelerator
from conformance_mutants.breaking import whole
from conformance_mutants.kernels import KERNELS


class Generated(NamedTuple):
    """One broken accelerator: members in the place of whole ones, or a kernel that is broken meanwhile."""

    #: How it is broken: `"answers for the current device"`.
    kind: str
    members: dict[str, Any]
    kernel: Callable[[], contextlib.AbstractContextManager[None]] = (
        contextlib.nullcontext
    )


def generated():
    """All of them, by `"total_memory: answers for the current device"`."""
    found = {f"{name}: {made.kind}": made for name, made in _of_members()}
    found |= {
        f"{op}: {kind}": Generated(kind, {}, broken)
        for op, kinds in KERNELS.items()
        for kind, broken in kinds
    }
    return found


# --- members -------------------------------------------------------------------------------------------


def _of_members():
    chosen = accel_core.get_accelerator()
    for name in dir(Accelerator):
        member = inspect.getattr_static(Accelerator, name)
        if name.startswith("_") or not inspect.isfunction(member):
            continue
        signature = inspect.signature(member)
        parameters = list(signature.parameters)[1:]
        gives = str(signature.return_annotation)
        if parameters[:1] == ["device_index"] and name not in _ALIKE:
            yield (
                name,
                Generated("is the current device's", {name: _always_at(None, name)}),
            )
            yield name, Generated("is the first device's", {name: _always_at(0, name)})
        for kind, (names, effect) in _BESIDE.items():
            if name in names:
                yield name, Generated(kind, {name: _and(name, effect)})
        if any(
            p.kind is p.VAR_KEYWORD or p.default is False
            for p in signature.parameters.values()
        ):
            yield name, Generated("forgets its options", {name: _without_options(name)})
        if (
            gives == "bool"
            and not parameters
            and name not in _TRUE
            and not getattr(chosen, name)()
        ):
            yield name, Generated("claims what is not so", {name: lambda self: True})
        if gives in ("int", "tuple[int, int]", "float"):
            yield name, Generated("in other units", {name: _in_kibi(name)})
        if gives == "None" and name not in _NOTHING_TO_SEE:
            yield name, Generated("does nothing", {name: lambda self, *_, **__: None})
        if name not in _NOTHING_TO_SEE and gives.startswith(
            ("AbstractContextManager", "contextlib.", "Iterator", "Generator")
        ):
            yield name, Generated("does nothing", {name: _no_context})
            yield (
                name,
                Generated(
                    "leaves by an error what it has changed",
                    {name: _stays_after_error(name)},
                ),
            )
        if name in _CHANGING:
            yield name, Generated("keeps its first answer", {name: _kept(name)})
        if name not in _CONSTANT:
            yield (
                name,
                Generated("fails in another thread", {name: _main_thread_alone(name)}),
            )
    for method in ("wait_stream", "wait_event", "synchronize"):
        yield (
            "Stream",
            Generated(
                f"{method} does nothing", {"Stream": _class_without("Stream", method)}
            ),
        )
    for method in ("wait", "synchronize", "record"):
        yield (
            "Event",
            Generated(
                f"{method} does nothing", {"Event": _class_without("Event", method)}
            ),
        )


#: Of the simulated devices the same, and two that select.
_ALIKE = (
    "device_uuid",
    "get_device_capability",
    "device_guard",
    "set_device",
    "device",
)
#: A preference, and what the simulated device can do.
_TRUE = ("prefer_triton_grouped_mm", "is_fp8_supported")
#: What they do is seen by a profiler alone, or not at all on `acme`: `generic` knows no variable of visible
#: devices, and memory of one's own is not locked there.
_NOTHING_TO_SEE = (
    "range_push", "range_pop", "range", "unpin_memory", "empty_host_cache", "set_visible_devices_envs",
    "register_host_memory", "unregister_host_memory",
    "instantiate_graph", "enable_graph_debug_mode", "debug_dump_graph",
)  # fmt: skip
#: What a process asks once, on its main thread.
_CONSTANT = (
    "is_accelerator", "communication_backend_name", "communication_backend_version", "visible_devices_envs",
    "op_builder_dir", "random", "training_dtype", "op_builders", "build_extension", "pin_memory_alignment",
    "apply_vendor_defaults", "device_type", "supports_graphs", "is_synchronized_device", "use_host_timers",
    "resolves_data_dependency", "handles_memory_backpressure", "is_bf16_supported", "is_bf16_native",
    "is_fp16_supported", "is_fp8_supported", "is_fp64_supported", "is_triton_supported", "is_initialized",
    "prefer_triton_grouped_mm", "register_host_memory", "unregister_host_memory", "synchronize_all",
    "set_per_process_memory_fraction",
)  # fmt: skip
#: What is another thing each time: an answer that is kept is wrong.
_CHANGING = (
    "available_memory", "create_graph", "current_device", "current_device_name", "current_stream",
    "get_compile_backend", "get_device_capability", "get_rng_state", "grad_scaler", "initial_seed",
    "is_current_stream_capturing", "max_memory_allocated", "max_memory_cached", "max_memory_reserved",
    "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "memory_summary",
    "pin_empty", "pin_empty_like", "pin_memory",
)  # fmt: skip


#: What a member that asks or selects may not do beside it, and some of those that are asked for it.
_BESIDE = {
    "waits": (
        ("current_stream", "memory_allocated", "set_device"),
        lambda self: self.synchronize(),
    ),
    "empties the cache": (
        ("set_device", "memory_stats"),
        lambda self: self.empty_cache(),
    ),
    "resets the peaks": (
        ("empty_cache", "mem_get_info"),
        lambda self: self.reset_peak_memory_stats(),
    ),
    "selects the first device": (
        ("empty_cache", "set_rng_state"),
        lambda self: self.set_device(0),
    ),
}


def _and(name, effect):
    def member(self, *args, **kwargs):
        found = whole(self, name, *args, **kwargs)
        effect(accel_core.get_accelerator())
        return found

    return member


def _without_options(name):
    return lambda self, *args, **kwargs: whole(self, name, *args)


def _always_at(index, name):
    """The index that is given is looked at, and then forgotten."""

    def member(self, device_index=None, *args, **kwargs):
        if device_index is not None:
            self._checked_index(device_index)
        return whole(self, name, index, *args, **kwargs)

    return functools.wraps(getattr(Accelerator, name))(member)


def _in_kibi(name):
    def member(self, *args, **kwargs):
        found = whole(self, name, *args, **kwargs)
        return (
            tuple(each // 1024 for each in found)
            if isinstance(found, tuple)
            else found // 1024
        )

    return member


@contextlib.contextmanager
def _no_context(self, *args, **kwargs):
    yield


_left_open = []


def close_what_is_open():
    """Leave the blocks that broken accelerators have left open: the next check is to begin as usual."""
    while _left_open:
        with contextlib.suppress(Exception):
            _left_open.pop().__exit__(None, None, None)


def _stays_after_error(name):
    @contextlib.contextmanager
    def member(self, *args, **kwargs):
        block = whole(self, name, *args, **kwargs)
        _left_open.append(block)
        given = block.__enter__()
        yield given
        block.__exit__(None, None, None)

    return member


def _kept(name):
    """The first answer to each question, whatever has happened since."""
    answers = {}

    def member(self, *args, **kwargs):
        asked = (str(args), str(kwargs))
        if asked not in answers:
            answers[asked] = whole(self, name, *args, **kwargs)
        return answers[asked]

    return member


def _main_thread_alone(name):
    def member(self, *args, **kwargs):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("the context belongs to another thread")
        return whole(self, name, *args, **kwargs)

    return member


def _class_without(name, method):
    base = getattr(torch, name)

    def nothing(self, *args, **kwargs):
        return None

    made = type(name, (base,), {method: nothing})
    first = {"Stream": {"device": "acme"}, "Event": {"device": "acme"}}[name]
    return property(
        lambda self: (
            lambda *args, **options: made(
                *args, **{**(first if not args else {}), **options}
            )
        )
    )
