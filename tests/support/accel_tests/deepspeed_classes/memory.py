"""What is asked about memory: a device's, this process's, and pinned memory."""

import ctypes
import mmap

import torch

from accel_tests.deepspeed_classes.device import MEGABYTE, member, members

AMOUNTS = (
    "memory_allocated", "memory_reserved", "memory_cached",
    "max_memory_allocated", "max_memory_reserved", "max_memory_cached",
)  # fmt: skip
RESETS = (
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
)


def memory(device):
    """Device memory, a megabyte coming and going."""
    amounts = (*AMOUNTS, "memory_stats", "total_memory")

    def while_held(name, *index):
        def ask(acc):
            block = device.block()
            answer = getattr(acc, name)(*index)
            del block
            return answer

        return ask

    def after_reset(name):
        def peak(acc):
            device.block()
            getattr(acc, name)()
            return acc.max_memory_allocated() - acc.memory_allocated()

        return peak

    def beside_another_user(acc):
        # What the allocator holds without a tensor in it is not free to another process.
        device.block(64 * MEGABYTE)
        return acc.available_memory() == _free(device)

    def cache_emptied(acc):
        device.block(64 * MEGABYTE)
        acc.empty_cache()
        return acc.memory_reserved()

    return {
        **members("empty_cache", *amounts, *RESETS),
        **{
            f"{name}: of device {device.last}": member(name, device.last)
            for name in amounts
        },
        **{
            f"{name}: of a megabyte": while_held(name)
            for name in ("memory_allocated", "memory_stats")
        },
        **{f"{name}: then the peak": after_reset(name) for name in RESETS},
        "empty_cache: then what is reserved": cache_emptied,  # before what is free is asked
        **members("available_memory"),
        "available_memory: beside another user": beside_another_user,
    }


def _free(device):
    """What the vendor says is free, by the module's own function or torch's."""
    module = getattr(torch, device.type)
    if hasattr(module, "recommended_max_memory"):  # mps
        return int(module.recommended_max_memory() - module.driver_allocated_memory())
    ask = getattr(module, "mem_get_info", torch.accelerator.get_memory_info)
    return int(ask()[0])


def process_memory():
    """The same of the CPU, whose amounts are this process's: no two answers are equal to the byte."""
    import psutil

    process, host = psutil.Process(), psutil.virtual_memory
    tolerance = 64 * MEGABYTE

    def near_resident(name, *index):
        def ask(acc):
            amount = getattr(acc, name)(*index)
            return [type(amount), abs(amount - process.memory_info().rss) < tolerance]

        return ask

    def keys(acc):
        return sorted(acc.memory_stats())

    def peak(acc):
        # Came and went between two questions.
        acc.reset_peak_memory_stats()
        torch.ones(2 * tolerance, dtype=torch.uint8)
        return acc.max_memory_allocated() - acc.memory_allocated() > tolerance

    def after_reset(name):
        def ask(acc):
            acc.memory_allocated()
            getattr(acc, name)()
            return acc.max_memory_allocated() - acc.memory_allocated() < tolerance

        return ask

    return {
        **members("empty_cache", *RESETS),
        **{name: near_resident(name) for name in AMOUNTS},
        **{f"{name}: of device 1": near_resident(name, 1) for name in AMOUNTS},
        "memory_stats": keys,
        "max_memory_allocated: of what came and went": peak,
        **{f"{name}: then the peak": after_reset(name) for name in RESETS},
        # A control group (container) may allow less than the host has.
        "total_memory": lambda acc: 0 < acc.total_memory() <= host().total,
        "available_memory": lambda acc: (
            0 < acc.available_memory() <= host().available + tolerance
        ),
    }


def page_locked_memory(device):
    """Pinned host memory."""
    held = torch.arange(6.0).view(2, 3)
    elsewhere = "meta" if device.type == "cpu" else device.type

    def pinned(acc):
        made = acc.pin_memory(held)
        return [acc.is_pinned(made), torch.equal(made, held), made.device]

    def template(acc):
        made = acc.pin_memory(held, make_copy=False, match_shape=False)
        return [acc.is_pinned(made), tuple(made.shape)]

    def empty(acc):
        made = acc.pin_empty(2, 3, dtype=torch.int32)
        return [acc.is_pinned(made), tuple(made.shape), made.dtype]

    def empty_like(acc):
        made = acc.pin_empty_like(held)
        return [acc.is_pinned(made), tuple(made.shape), made.dtype]

    def registered(acc):
        pages = mmap.mmap(-1, 4096)
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        first = acc.register_host_memory(address, 4096)
        try:
            return [first, acc.register_host_memory(address, 4096)]
        finally:
            acc.unregister_host_memory(address)

    return {
        "is_pinned": member("is_pinned", held),
        "pin_memory": pinned,
        "pin_memory: as a template": template,
        "unpin_memory": member("unpin_memory", held),
        "pin_empty": empty,
        "pin_empty: not on the host": member(
            "pin_empty", 2, dtype=torch.int32, device=elsewhere
        ),
        "pin_empty_like": empty_like,
        **members("pin_memory_alignment"),
        "register_host_memory": registered,
        "unregister_host_memory: unknown": member("unregister_host_memory", 4096),
    }
