"""Exact types and units of what the members answer."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import mmap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch

from accel_core import Accelerator, DeviceProperties
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require, require_raises, require_type

__all__ = ["TestReturnTypes"]

_YES_OR_NO = (
    "is_accelerator", "is_synchronized_device", "use_host_timers", "resolves_data_dependency",
    "handles_memory_backpressure", "is_available", "is_initialized", "is_bf16_supported", "is_bf16_native",
    "is_fp16_supported", "is_fp8_supported", "is_fp64_supported", "supports_graphs", "is_triton_supported",
    "prefer_triton_grouped_mm", "is_current_stream_capturing",
)  # fmt: skip
_SMALLEST = 1 << 20


class TestReturnTypes(BackendTestBase):
    """Members mean the same on every backend: exact types and units, and members that agree."""

    def test_identity(self, accelerator: Accelerator) -> None:
        """Name, device type and visible-devices variables are the declared ones; the repr has the name."""
        backend = accelerator.backend
        require(
            accelerator.name == backend.name,
            f"name is {accelerator.name!r}, declared {backend.name!r}",
        )
        require(
            accelerator.name in repr(accelerator),
            f"its repr, {accelerator!r}, does not name it",
        )
        kept = {accelerator: "kept"}.get(accelerator)
        require(
            kept, "hash() of it is another at each call, or it is not equal to itself"
        )
        for declared, told, member in (
            (
                "" if accelerator.name == "generic" else backend.device_type,
                accelerator.device_type,
                "device_type",
            ),
            (
                backend.visibility.variables,
                tuple(accelerator.visible_devices_envs()),
                "visible_devices_envs()",
            ),
        ):
            require(
                not declared or told == declared,
                f"{member} is {told!r}, declared {declared!r}",
            )
        missing = [
            each
            for each in backend.environment.forward
            if each not in accelerator.export_envs()
        ]
        require(
            not missing, f"export_envs() lacks {', '.join(missing)}, which is declared"
        )

    def test_device_type_is_torchs(self, accelerator: Accelerator) -> None:
        """`device_type` is what torch calls the device: it goes into `torch.device` and `autocast`."""
        kind = accelerator.device_type
        require_type(kind, str, "device_type")
        made = torch.empty(1, device=accelerator.device()).device.type
        require(
            kind == made,
            f"device_type is {kind!r}, and a tensor on device() is on {made!r}",
        )
        require(
            accelerator.is_accelerator() == (kind != "cpu"),
            f"is_accelerator() gave {accelerator.is_accelerator()} for {kind!r}",
        )

    def test_yes_or_no(self, accelerator: Accelerator) -> None:
        """Yes-or-no members return a `bool`: JSON and `is True` distinguish it from an int."""
        for name in _YES_OR_NO:
            require_type(getattr(accelerator, name)(), bool, f"{name}()")
        require_type(accelerator.supports_nvtx_domain, bool, "supports_nvtx_domain")

    def test_capabilities_agree(self, accelerator: Accelerator) -> None:
        """`capabilities()` has the same answers as the members: people and `--json` read it instead."""
        told = accelerator.capabilities()
        for name in told.__annotations__:
            member = getattr(accelerator, name)
            answer = member() if callable(member) else member
            given = getattr(told, name)
            require_type(given, bool, f"capabilities().{name}")
            require(
                given == answer,
                f"capabilities().{name} is {given!r}, and the member gives {answer!r}",
            )

    def test_available(self, accelerator: Accelerator) -> None:
        """A chosen backend is available and has devices; once a device is used, it is initialised."""
        require(
            accelerator.is_available() is True,
            "is_available() gave False for what is in use",
        )
        require_type(accelerator.device_count(), int, "device_count()")
        require(
            accelerator.device_count() > 0,
            f"device_count() gave {accelerator.device_count()}",
        )
        torch.ones(1, device=accelerator.device())
        require(
            accelerator.is_initialized() is True,
            "is_initialized() gave False for a device in use",
        )

    def test_current_device_is_an_index(self, accelerator: Accelerator) -> None:
        """`current_device()` is an `int` below `device_count()`: callers index lists with it."""
        current = accelerator.current_device()
        require_type(current, int, "current_device()")
        count = accelerator.device_count()
        require(
            0 <= current < count, f"current_device() gave {current}, of {count} devices"
        )

    def test_device_names(self, accelerator: Accelerator) -> None:
        """Names are torch's, `"npu"` and `"npu:1"`: they go into `.to()` and `map_location`."""
        plain, first = accelerator.device_name(), accelerator.device_name(0)
        require_type(plain, str, "device_name()")
        require_type(first, str, "device_name(0)")
        require(plain == accelerator.device_type, f"device_name() gave {plain!r}")
        kind = accelerator.device_type
        names = [
            accelerator.device_name(index)
            for index in range(accelerator.device_count())
        ]
        numbered = [f"{kind}:{index}" for index in range(len(names))]
        # Where a process owns one device, or the processor, torch has one name whatever the index.
        require(
            names in (numbered, [kind] * len(names)),
            f"the devices' names are {', '.join(names)}",
        )
        current = accelerator.current_device_name()
        require_type(current, str, "current_device_name()")
        expected = {
            accelerator.device_name(accelerator.current_device()),
            f"{kind}:{accelerator.current_device()}",
        }
        require(
            current in expected,
            f"current_device_name() gave {current!r}; expected one of {expected}",
        )

    def test_device_is_torchs(self, accelerator: Accelerator) -> None:
        """`device(i)` is a `torch.device` of `device_name(i)`: no string, no context manager, not None."""
        for index in (None, *range(accelerator.device_count())):
            found = accelerator.device(index)
            require_type(found, torch.device, f"device({index})")
            name = accelerator.device_name(index)
            require(
                found == torch.device(name),
                f"device({index}) gave {found}, and device_name {name!r}",
            )

    def test_total_memory_is_bytes(self, accelerator: Accelerator) -> None:
        """`total_memory` is an `int` of bytes, at least a mebibyte, by every way of asking."""
        total = accelerator.total_memory()
        require_type(total, int, "total_memory()")
        require(total >= _SMALLEST, f"total_memory() gave {total}: that many bytes?")
        first = accelerator.total_memory(accelerator.current_device())
        require(
            first == total,
            f"total_memory() gave {total}, and {first} for the current device by number",
        )

    def test_free_memory_is_part_of_all(self, accelerator: Accelerator) -> None:
        """`mem_get_info` is (free, total) in bytes, free first, as torch has it."""
        given = accelerator.mem_get_info()
        require(
            isinstance(given, tuple) and len(given) == 2,
            f"mem_get_info() gave {given!r}",
        )
        free, total = given
        require_type(free, int, "mem_get_info()[0]")
        require_type(total, int, "mem_get_info()[1]")
        require(0 <= free <= total, f"mem_get_info() gave {free} bytes free of {total}")
        for index in (None, *range(accelerator.device_count())):
            told, all_of_it = (
                accelerator.mem_get_info(index)[1],
                accelerator.total_memory(index),
            )
            what = f"mem_get_info({index}) tells {told} bytes, and total_memory({index}) {all_of_it}"
            require(told == all_of_it, what)
        available = accelerator.available_memory()
        require_type(available, int, "available_memory()")
        require(
            0 <= available <= total, f"available_memory() gave {available}, of {total}"
        )
        # What is cached is available too; what others hold may change in between.
        fits = available >= free // 2
        require(
            fits,
            f"available_memory() gave {available} bytes, and mem_get_info() {free} free",
        )

    def test_memory_amounts_are_bytes(self, accelerator: Accelerator) -> None:
        """Amounts are `int` bytes, peaks at least the amounts, and old names return the same as new ones."""
        block = torch.ones(1024, device=accelerator.device())
        for now, peak in (
            ("memory_allocated", "max_memory_allocated"), ("memory_reserved", "max_memory_reserved"),
        ):  # fmt: skip
            held, most = getattr(accelerator, now)(), getattr(accelerator, peak)()
            require_type(held, int, f"{now}()")
            require_type(most, int, f"{peak}()")
            require(0 <= held <= most, f"{now}() gave {held}, and {peak}() {most}")
        for old, new in (
            ("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved"),
        ):  # fmt: skip
            ours, theirs = getattr(accelerator, old)(), getattr(accelerator, new)()
            require_type(ours, int, f"{old}()")
            # Of a process's own memory two questions may have two answers: the host's is another by then.
            same = ours == theirs or not accelerator.is_accelerator()
            require(same, f"{old}() gave {ours}, and {new}() {theirs}")
        del block

    def test_memory_stats_have_torchs_keys(self, accelerator: Accelerator) -> None:
        """`memory_stats` is a flat mapping with torch's keys, such as `allocated_bytes.all.current`."""
        stats = accelerator.memory_stats()
        require(
            isinstance(stats, Mapping), f"memory_stats() gave {type(stats).__name__}"
        )
        nested = [key for key, value in stats.items() if isinstance(value, Mapping)]
        require(
            not nested, f"memory_stats() is not flat: {', '.join(map(str, nested))}"
        )
        for key in ("allocated_bytes.all.current", "allocated_bytes.all.peak"):
            require(
                key in stats,
                f"memory_stats() has no {key!r}; it has {', '.join(list(stats)[:5])}…",
            )
        for key, value in stats.items():
            if "_bytes." in key:
                require_type(value, int, f"memory_stats()[{key!r}]")
        kept = dict(stats)
        block = torch.empty(1 << 20, dtype=torch.uint8, device=accelerator.device())
        accelerator.memory_stats()
        require(
            dict(stats) == kept,
            "what memory_stats() gave changes with what is allocated later; expected a copy",
        )
        del block
        summary = accelerator.memory_summary()
        # A kind of text that notebooks show as it is.
        require(
            isinstance(summary, str),
            f"memory_summary() gave {type(summary).__name__}, expected text",
        )
        less = accelerator.memory_summary(abbreviated=True)
        for pool in [
            each
            for each in ("large pool", "small pool")
            if each in summary.replace("_", " ").lower()
        ]:
            require(
                pool not in less.replace("_", " ").lower(),
                f"memory_summary(abbreviated=True) tells of the {pool}; expected memory_summary() alone to",
            )
        pools = any(".large_pool." in key for key in stats)
        require(
            len(less) < len(summary) or not pools,
            "memory_summary() is no longer than memory_summary(abbreviated=True), and memory_stats() tells "
            "of the allocator's pools; expected these in the first",
        )

    def test_properties(self, accelerator: Accelerator) -> None:
        """`device_properties` has the device's name, and the same memory as `total_memory`."""
        for index in range(accelerator.device_count()):
            found = accelerator.device_properties(index)
            what = f"device_properties({index}) gave {found!r}; expected a DeviceProperties"
            require(isinstance(found, DeviceProperties), what)
            require_type(found.name, str, f"device_properties({index}).name")
            require(found.name.strip(), f"device_properties({index}).name is empty")
            told, total = found.total_memory, accelerator.total_memory(index)
            what = f"device_properties({index}).total_memory is {told}, total_memory({index}) {total}"
            require(told in (None, total), what)

    def test_identifiers(self, accelerator: Accelerator) -> None:
        """A device's UUID is text or None; there are as many visible ids as devices."""
        uuid = accelerator.device_uuid(0)
        require(
            uuid is None or type(uuid) is str,
            f"device_uuid(0) gave {uuid!r}; expected str or None",
        )
        told = [
            accelerator.device_uuid(index)
            for index in range(accelerator.device_count())
        ]
        alone = accelerator.device(0) == accelerator.device(len(told) - 1)
        same = alone or uuid is None or len(set(told)) == len(told)
        require(
            same,
            f"device_uuid(i) gave {told} for {len(told)} devices; expected one for each",
        )
        ids = accelerator.visible_device_ids()
        require(
            ids is None or type(ids) is tuple,
            f"visible_device_ids() gave {ids!r}; a tuple or None",
        )
        count = accelerator.device_count()
        require(
            ids is None or len(ids) == count,
            f"visible_device_ids() gave {ids!r}, of {count} devices",
        )
        variables = accelerator.visible_devices_envs()
        require_type(variables, list, "visible_devices_envs()")
        wrong = [
            each
            for each in variables
            if type(each) is not str or not each.isidentifier()
        ]
        require(
            not wrong,
            f"visible_devices_envs() has {wrong}, which are no names of variables",
        )

    def test_visible_devices_are_written(self, accelerator: Accelerator) -> None:
        """`set_visible_devices_envs` writes into the given mapping, and not into this process's
        environment.
        """
        import os

        before = dict(os.environ)
        environ: dict[str, str] = {}
        accelerator.set_visible_devices_envs(environ, [0])
        require(
            dict(os.environ) == before, "set_visible_devices_envs changed os.environ"
        )
        names = accelerator.visible_devices_envs()
        require(
            set(environ) <= set(names) and bool(environ) == bool(names),
            f"set_visible_devices_envs wrote {', '.join(environ) or 'nothing'}; "
            f"visible_devices_envs() gives {', '.join(names) or 'none'}",
        )
        wrong = [value for value in environ.values() if type(value) is not str]
        require(
            not wrong, f"set_visible_devices_envs wrote {wrong}: variables are text"
        )
        written: dict[str, list[int]] = {}
        for ids in ([0], [1], [0, 1], [1, 2]) if environ else ():
            given = dict(environ)
            accelerator.set_visible_devices_envs(given, ids)
            text = str(sorted(given.items()))
            said = f"set_visible_devices_envs wrote {given} for {ids}, and the same for {written.get(text)}"
            require(text not in written, said)
            written[text] = ids

    def test_forwarded_variables(self, accelerator: Accelerator) -> None:
        """`export_envs` is a list of prefixes; one of two letters would send half the environment along."""
        prefixes = accelerator.export_envs()
        require_type(prefixes, list, "export_envs()")
        wrong = [each for each in prefixes if type(each) is not str or len(each) < 3]
        require(
            not wrong,
            f"export_envs() has {wrong}; expected prefixes of three letters or more",
        )

    def test_communication(self, accelerator: Accelerator) -> None:
        """`communication_backend_name` is one that `init_process_group` takes; its version a tuple."""
        name = accelerator.communication_backend_name()
        require_type(name, str, "communication_backend_name()")
        known = [*torch.distributed.Backend.backend_list, "staged"]
        require(
            name in known,
            f"communication_backend_name() gave {name!r}; torch knows {', '.join(known)}",
        )
        kind, serves = (
            accelerator.device_type,
            torch.distributed.Backend.backend_capability,
        )
        own = [
            n
            for n, kinds in serves.items()
            if kind in kinds and n not in ("fake", "gloo", "staged")
        ]
        fits = (
            name in own or name == accelerator.backend.communication_backend or not own
        )
        said = f"communication_backend_name() gave {name!r}, and torch has {', '.join(own)} for {kind!r}"
        require(fits, said)
        others = serves.get(name, [kind])
        known = ["gloo", "staged", accelerator.backend.communication_backend]
        require(
            kind in others or name in known,
            f"communication_backend_name() gave {name!r}, which torch has for {', '.join(others)}",
        )
        version = accelerator.communication_backend_version()
        parts = version if isinstance(version, tuple) else ()
        fits = version is None or bool(
            parts and all(isinstance(part, int) for part in parts)
        )
        require(
            fits,
            f"communication_backend_version() gave {version!r}; a tuple of int or None",
        )

    def test_on_accelerator(self, accelerator: Accelerator) -> None:
        """`on_accelerator` returns True for the device's tensors, and False for the host's."""
        last = accelerator.device(accelerator.device_count() - 1)
        for what, tensor in {
            "a tensor on device()": torch.ones(1, device=accelerator.device()),
            f"a tensor on {last}": torch.ones(1, device=last),
            "an empty tensor": torch.ones(0, 3, device=last),
            "a view": torch.ones(3, 2, device=last).T[1:],
            "a Parameter": torch.nn.Parameter(torch.ones(1, device=last)),
        }.items():
            here = accelerator.on_accelerator(tensor)
            require(
                here is True,
                f"on_accelerator gave {here!r} for {what} of the device; expected True",
            )
        for place in ("cpu", "meta") if accelerator.is_accelerator() else ("meta",):
            there = accelerator.on_accelerator(torch.ones(1, device=place))
            require(
                there is False, f"on_accelerator gave {there!r} for a tensor on {place}"
            )

    def test_random_module(self, accelerator: Accelerator) -> None:
        """`random()` returns a module with torch's functions for random numbers."""
        module = accelerator.random()
        of_device = getattr(
            getattr(torch, accelerator.device_type, None), "random", None
        )
        fits = inspect.ismodule(module) and module in (torch.random, of_device)
        require(
            fits,
            f"random() gave {module!r}; expected torch.random, or the device's own",
        )

    def test_random_states(self, accelerator: Accelerator) -> None:
        """A generator's state is a ByteTensor on the host, and the seed an `int`: checkpoints hold both."""
        for index in (None, 0):
            state = accelerator.get_rng_state(index)
            fits = state.dtype is torch.uint8 and state.device.type == "cpu"
            require(
                fits, f"get_rng_state({index}) gave {state.dtype} on {state.device}"
            )
        require_type(accelerator.initial_seed(), int, "initial_seed()")
        generator = accelerator.default_generator(0)
        require(
            isinstance(generator, torch.Generator),
            f"default_generator(0) gave {generator!r}",
        )
        kind = generator.device.type
        require(kind == accelerator.device_type, f"default_generator(0) is for {kind}")
        for index in range(1, accelerator.device_count()):
            found = accelerator.default_generator(index).device
            fits = found == accelerator.device(index) or accelerator.device(
                index
            ) == accelerator.device(0)
            require(fits, f"default_generator({index}) is for {found}")

    def test_streams_are_classes(self, accelerator: Accelerator) -> None:
        """`Stream` and `Event` are classes, and every stream that is returned is an instance of `Stream`."""
        for name in ("Stream", "Event"):
            require(
                callable(getattr(accelerator, name)),
                f"{name} is {getattr(accelerator, name)!r}",
            )
        for name in ("current_stream", "default_stream"):
            stream = getattr(accelerator, name)()
            for method in ("synchronize", "wait_stream"):
                require(
                    hasattr(stream, method),
                    f"{name}() gave {stream!r}, which has no {method}",
                )

    def test_no_stream_is_no_change(self, accelerator: Accelerator) -> None:
        """`stream(None)` changes nothing, as with torch.cuda: callers pass a stream that may be None."""
        before = accelerator.current_stream()
        with accelerator.stream(None):
            inside = accelerator.current_stream()
        require(
            inside == before,
            f"inside stream(None) current_stream() gave {inside}; expected {before}",
        )

    def test_ranges_never_raise(self, accelerator: Accelerator) -> None:
        """Profiler ranges never raise, profiler or not: they stand in code that must run without one."""
        accelerator.range_push("outer", domain="accel", category="kit")
        accelerator.range_push("inner")
        accelerator.range_pop()
        accelerator.range_pop(domain="accel")
        accelerator.range_pop()  # one too many
        accelerator.range_push(7)  # type: ignore[arg-type]  # a step's number
        accelerator.range_pop()
        with accelerator.range("block"):
            pass
        with ThreadPoolExecutor(1) as other:  # and where nobody has left one open
            other.submit(accelerator.range_pop).result()
        _ranges_end(accelerator)

    def test_tidying_never_raises(self, accelerator: Accelerator) -> None:
        """Emptying caches and resetting peaks return None, and raise nothing if there is nothing to do."""
        for name in (
            "empty_cache", "empty_host_cache", "synchronize", "reset_peak_memory_stats",
            "reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats",
        ):  # fmt: skip
            given = getattr(accelerator, name)()
            require(given is None, f"{name}() gave {given!r}; expected None")

    def test_lazy_call_runs(self, accelerator: Accelerator) -> None:
        """`lazy_call` calls the function, at once or when the device is initialised."""
        ran: list[int] = []
        accelerator.lazy_call(lambda: ran.append(1))
        torch.ones(1, device=accelerator.device())
        accelerator.lazy_call(bool)
        require(
            ran == [1],
            f"lazy_call ran the function {len(ran)} times, the device started; expected once",
        )
        what = "lazy_call of a function that raises ValueError, the device started,"
        require_raises(
            lambda: accelerator.lazy_call(lambda: int("no number")), ValueError, what
        )

    def test_compile_backend(self, accelerator: Accelerator) -> None:
        """The compile backend is registered with torch; setting an unknown one is refused."""
        from torch._dynamo import list_backends

        chosen = accelerator.get_compile_backend()
        known = [*list_backends(exclude_tags=()), "inductor"]
        require(
            chosen in known,
            f"get_compile_backend() gave {chosen!r}; torch has {', '.join(known)}",
        )
        call = "set_compile_backend('no such backend')"
        said = require_raises(
            lambda: accelerator.set_compile_backend("no such backend"), ValueError, call
        )
        named = "no such backend" in said and "eager" in said
        require(
            named, f"{call} says {said!r}; expected what was given, and what there is"
        )
        after = accelerator.get_compile_backend()
        require(
            after == chosen,
            f"a refused set_compile_backend left {after!r} in the place of {chosen!r}",
        )
        accelerator.set_compile_backend("eager")
        given = accelerator.get_compile_backend()
        accelerator.set_compile_backend(chosen)
        require(
            given == "eager", f"set_compile_backend('eager') was followed by {given!r}"
        )

    def test_operators(self, accelerator: Accelerator) -> None:
        """Operators are found by their builders' names; a missing one is a class that says so."""
        folder = accelerator.op_builder_dir()
        require_type(folder, str, "op_builder_dir()")
        require(
            importlib.util.find_spec(folder),
            f"op_builder_dir() gave {folder!r}, which is no package",
        )
        table = accelerator.op_builders()
        require(
            isinstance(table, Mapping), f"op_builders() gave {type(table).__name__}"
        )
        told = {name: each.name for name, each in accelerator.operators().items()}
        require(
            told == {name: name for name in table},
            f"operators() tells {told}, op_builders() {[*table]}",
        )
        builder = accelerator.get_op_builder("NoSuchBuilder")
        require(
            isinstance(builder, type),
            f"get_op_builder('NoSuchBuilder') gave {builder!r}",
        )
        can = accelerator.create_op_builder("NoSuchBuilder").is_compatible()
        require(
            can is False,
            f"create_op_builder('NoSuchBuilder').is_compatible() gave {can!r}",
        )
        missing = accelerator.create_op_builder("NoSuchBuilder")
        require_raises(
            missing.load, RuntimeError, "create_op_builder('NoSuchBuilder').load()"
        )
        for name in table:
            require(
                isinstance(accelerator.get_op_builder(name), type),
                f"get_op_builder({name!r}) is no class",
            )
        require(
            isinstance(accelerator.build_extension(), type),
            "build_extension() is no class",
        )

    def test_host_memory(self, accelerator: Accelerator) -> None:
        """`register_host_memory` returns a `bool`; memory that it locked can be released."""
        alignment = accelerator.pin_memory_alignment()
        require_type(alignment, int, "pin_memory_alignment()")
        require(alignment > 0, f"pin_memory_alignment() gave {alignment}")
        size = max(alignment, mmap.PAGESIZE)
        pages = mmap.mmap(-1, 2 * size)
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        address = start + -start % alignment
        for time in ("first", "second"):
            locked = accelerator.register_host_memory(address, size)
            require_type(locked, bool, "register_host_memory of an aligned page")
            if not locked:
                require(
                    time == "first",
                    "memory that was locked and released cannot be locked again",
                )
                return
            view = torch.frombuffer(
                pages, dtype=torch.uint8, count=size, offset=address - start
            )
            before = accelerator.is_pinned(
                view
            )  # torch_npu 2.13 knows what it has locked itself alone
            accelerator.unregister_host_memory(address)
            left = accelerator.is_pinned(view)
            require(
                not (before and left),
                "after unregister_host_memory is_pinned of that memory is still True",
            )
            del view

    def test_vendor_defaults(self, accelerator: Accelerator) -> None:
        """`apply_vendor_defaults` returns what it changed; a second call changes nothing."""
        first = accelerator.apply_vendor_defaults()
        require(
            type(first) is tuple,
            f"apply_vendor_defaults() gave {first!r}; expected a tuple",
        )
        again = accelerator.apply_vendor_defaults()
        require(again == (), f"apply_vendor_defaults() changed {again!r} again")


def _ranges_end(accelerator: Accelerator) -> None:
    """Require that ranges end in order, after an error too, where torch's profiler sees them."""
    with torch.autograd.profiler.profile() as profiled:
        with suppress(KeyError), accelerator.range("accel: broken off"):
            raise KeyError
        accelerator.range_push("accel: around")
        with accelerator.range("accel: within"):
            torch.ones(2).sum()
        accelerator.range_pop()
        accelerator.range_push("accel: outer")
        accelerator.range_push("accel: inner")
        accelerator.range_pop()
        with torch.profiler.record_function("accel: between"):
            torch.ones(2).sum()
        accelerator.range_pop()
        with accelerator.range("accel: last"):
            torch.ones(2).sum()
        accelerator.range_push("accel: mine")
        with ThreadPoolExecutor(1) as other:
            other.submit(accelerator.range_push, "accel: another thread's").result()
            accelerator.range_pop()
            with accelerator.range("accel: after mine"):
                torch.ones(2).sum()
            other.submit(accelerator.range_pop).result()
    seen = {
        each.name: each.time_range
        for each in profiled.function_events
        if each.name.startswith("accel: ")
    }
    if "accel: last" not in seen:
        return  # they go to a profiler of the vendor's
    names = ("accel: broken off", "accel: outer", "accel: inner", "accel: around")
    missing = [name for name in names if name not in seen]
    require(
        not missing,
        f"torch's profiler has no range {', '.join(missing)}: it was not closed",
    )
    broken, outer, inner, around = (seen[name] for name in names)
    ended = around.end <= outer.start
    require(
        ended,
        "range_pop() after a block of range(…) does not close that before, says torch's profiler",
    )
    require(
        broken.end <= outer.start,
        "range(…) is open after an error in its block, says torch's profiler",
    )
    between = seen["accel: between"]
    inside = outer.start <= inner.start and inner.end <= between.start
    inside = inside and between.end <= outer.end <= seen["accel: last"].start
    require(
        inside,
        "range_pop() does not close the range that was opened last, says torch's profiler",
    )
    mine = seen["accel: mine"].end <= seen["accel: after mine"].start
    require(
        mine,
        "range_pop() did not close this thread's range, but another's, says torch's profiler",
    )
