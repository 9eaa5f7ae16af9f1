"""Checks of the exact types and units of members' results."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import mmap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch

from accel_core import Accelerator, DeviceProperties
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require, require_raises, require_type

__all__ = ["TestReturnTypes"]

_BOOL_MEMBERS = (
    "is_accelerator", "is_synchronized_device", "use_host_timers", "resolves_data_dependency",
    "handles_memory_backpressure", "is_available", "is_initialized", "is_bf16_supported", "is_bf16_native",
    "is_fp16_supported", "is_fp8_supported", "is_fp64_supported", "supports_graphs", "is_triton_supported",
    "prefer_triton_grouped_mm", "is_current_stream_capturing",
)  # fmt: skip
_MIN_MEMORY = 1 << 20


class TestReturnTypes(BackendTestBase):
    """Members must return the same types and units on every backend, and consistent results."""

    def test_identity(self, accelerator: Accelerator) -> None:
        """Name, device type and visible-devices variables are as declared, and the repr contains the name."""
        backend = accelerator.backend
        require(
            accelerator.name == backend.name,
            f"name is {accelerator.name!r}, declared {backend.name!r}",
        )
        require(
            accelerator.name in repr(accelerator),
            f"the accelerator's repr, {accelerator!r}, does not contain its name",
        )
        by_accelerator = {accelerator: True}
        require(
            accelerator in by_accelerator,
            "the accelerator's hash() changes between calls, or the accelerator is not equal to itself",
        )
        if backend.device_type and accelerator.name != "generic":
            require(
                accelerator.device_type == backend.device_type,
                f"device_type is {accelerator.device_type!r}, declared {backend.device_type!r}",
            )
        declared = backend.visibility.variables
        variables = tuple(accelerator.visible_devices_envs())
        require(
            not declared or variables == declared,
            f"visible_devices_envs() is {variables!r}, declared {declared!r}",
        )
        prefixes = accelerator.export_envs()
        missing = [
            prefix for prefix in backend.environment.forward if prefix not in prefixes
        ]
        require(
            not missing, f"export_envs() lacks {', '.join(missing)}, although declared"
        )

    def test_device_type_is_torchs(self, accelerator: Accelerator) -> None:
        """`device_type` is torch's name for the device, which `torch.device` and `autocast` accept."""
        device_type = accelerator.device_type
        require_type(device_type, str, "device_type")
        torch_type = torch.empty(1, device=accelerator.device()).device.type
        require(
            device_type == torch_type,
            f"device_type is {device_type!r}, but a tensor on device() is on {torch_type!r}",
        )
        require(
            accelerator.is_accelerator() == (device_type != "cpu"),
            f"is_accelerator() returned {accelerator.is_accelerator()} for {device_type!r}",
        )

    def test_yes_or_no(self, accelerator: Accelerator) -> None:
        """Boolean members return a `bool`, because JSON and `is True` distinguish a bool from an int."""
        for name in _BOOL_MEMBERS:
            require_type(getattr(accelerator, name)(), bool, f"{name}()")
        require_type(accelerator.supports_nvtx_domain, bool, "supports_nvtx_domain")

    def test_capabilities_agree(self, accelerator: Accelerator) -> None:
        """`capabilities()` agrees with the members, because users and `--json` read either of them."""
        capabilities = accelerator.capabilities()
        for name in capabilities.__annotations__:
            member = getattr(accelerator, name)
            answer = member() if callable(member) else member
            capability = getattr(capabilities, name)
            require_type(capability, bool, f"capabilities().{name}")
            require(
                capability == answer,
                f"capabilities().{name} is {capability!r}, but the member returned {answer!r}",
            )

    def test_available(self, accelerator: Accelerator) -> None:
        """A chosen backend is available and has devices, and is initialized after a device was used."""
        require(
            accelerator.is_available() is True,
            "is_available() returned False for the accelerator in use",
        )
        require_type(accelerator.device_count(), int, "device_count()")
        require(
            accelerator.device_count() > 0,
            f"device_count() returned {accelerator.device_count()}",
        )
        torch.ones(1, device=accelerator.device())
        require(
            accelerator.is_initialized() is True,
            "is_initialized() returned False for a device in use",
        )

    def test_current_device_is_an_index(self, accelerator: Accelerator) -> None:
        """`current_device()` is an `int` below `device_count()`, because callers use it as a list index."""
        current = accelerator.current_device()
        require_type(current, int, "current_device()")
        count = accelerator.device_count()
        require(
            0 <= current < count,
            f"current_device() returned {current}, but there are {count} devices",
        )

    def test_device_names(self, accelerator: Accelerator) -> None:
        """Names are torch's, such as `"npu"` and `"npu:1"`, because `.to()` and `map_location` take them."""
        device_type = accelerator.device_type
        name_of_type, first_name = accelerator.device_name(), accelerator.device_name(0)
        require_type(name_of_type, str, "device_name()")
        require_type(first_name, str, "device_name(0)")
        require(name_of_type == device_type, f"device_name() returned {name_of_type!r}")
        indices = range(accelerator.device_count())
        names = [accelerator.device_name(index) for index in indices]
        with_index = [f"{device_type}:{index}" for index in indices]
        # For the CPU, and for a process's only device, torch uses one name for every index.
        require(
            names in (with_index, [device_type] * len(names)),
            f"the devices' names are {', '.join(names)}",
        )
        current_name = accelerator.current_device_name()
        require_type(current_name, str, "current_device_name()")
        current = accelerator.current_device()
        expected = {accelerator.device_name(current), f"{device_type}:{current}"}
        require(
            current_name in expected,
            f"current_device_name() returned {current_name!r}; expected one of {expected}",
        )

    def test_device_is_torchs(self, accelerator: Accelerator) -> None:
        """`device(i)` is a `torch.device` for `device_name(i)`, and not a string, context manager or None."""
        for index in (None, *range(accelerator.device_count())):
            device = accelerator.device(index)
            require_type(device, torch.device, f"device({index})")
            name = accelerator.device_name(index)
            require(
                device == torch.device(name),
                f"device({index}) returned {device}, but device_name returned {name!r}",
            )

    def test_total_memory_is_bytes(self, accelerator: Accelerator) -> None:
        """`total_memory` returns the same `int` of bytes, at least a mebibyte, with and without an index."""
        total = accelerator.total_memory()
        require_type(total, int, "total_memory()")
        require(
            total >= _MIN_MEMORY,
            f"total_memory() returned {total}; expected a number of bytes",
        )
        by_index = accelerator.total_memory(accelerator.current_device())
        require(
            by_index == total,
            f"total_memory() returned {total}, but {by_index} with the current device's index",
        )

    def test_free_memory_is_part_of_all(self, accelerator: Accelerator) -> None:
        """`mem_get_info` returns (free, total) in bytes, in torch's order."""
        info = accelerator.mem_get_info()
        require(
            isinstance(info, tuple) and len(info) == 2,
            f"mem_get_info() returned {info!r}",
        )
        free, total = info
        require_type(free, int, "mem_get_info()[0]")
        require_type(total, int, "mem_get_info()[1]")
        require(
            0 <= free <= total, f"mem_get_info() returned {free} free bytes of {total}"
        )
        for index in (None, *range(accelerator.device_count())):
            _free, from_info = accelerator.mem_get_info(index)
            total_memory = accelerator.total_memory(index)
            require(
                from_info == total_memory,
                f"mem_get_info({index}) reports {from_info} bytes, but total_memory({index}) {total_memory}",
            )
        available = accelerator.available_memory()
        require_type(available, int, "available_memory()")
        require(
            0 <= available <= total,
            f"available_memory() returned {available} of {total} bytes",
        )
        # Cached memory is available too, and other processes may allocate memory between the calls.
        require(
            available >= free // 2,
            f"available_memory() returned {available} bytes, but mem_get_info() returned {free} free bytes",
        )

    def test_memory_amounts_are_bytes(self, accelerator: Accelerator) -> None:
        """Amounts are `int` bytes, peaks are at least the amounts, and old names agree with new names."""
        block = torch.ones(1024, device=accelerator.device())
        for name, peak_name in (
            ("memory_allocated", "max_memory_allocated"), ("memory_reserved", "max_memory_reserved"),
        ):  # fmt: skip
            amount = getattr(accelerator, name)()
            peak = getattr(accelerator, peak_name)()
            require_type(amount, int, f"{name}()")
            require_type(peak, int, f"{peak_name}()")
            require(
                0 <= amount <= peak,
                f"{name}() returned {amount}, but {peak_name}() returned {peak}",
            )
        for old, new in (
            ("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved"),
        ):  # fmt: skip
            by_old_name = getattr(accelerator, old)()
            by_new_name = getattr(accelerator, new)()
            require_type(by_old_name, int, f"{old}()")
            # On the CPU, two calls may differ, because the process's memory changes between the calls.
            is_same = by_old_name == by_new_name or not accelerator.is_accelerator()
            require(
                is_same,
                f"{old}() returned {by_old_name}, but {new}() returned {by_new_name}",
            )
        del block

    def test_memory_stats_have_torchs_keys(self, accelerator: Accelerator) -> None:
        """`memory_stats` returns a flat mapping with torch's keys, such as `allocated_bytes.all.current`."""
        stats = accelerator.memory_stats()
        require(
            isinstance(stats, Mapping),
            f"memory_stats() returned {type(stats).__name__}",
        )
        nested = [
            str(key) for key, value in stats.items() if isinstance(value, Mapping)
        ]
        require(not nested, f"memory_stats() is not flat: {', '.join(nested)}")
        for key in ("allocated_bytes.all.current", "allocated_bytes.all.peak"):
            require(
                key in stats,
                f"memory_stats() does not contain {key!r}; it contains {', '.join(list(stats)[:5])}…",
            )
        for key, value in stats.items():
            if "_bytes." in key:
                require_type(value, int, f"memory_stats()[{key!r}]")
        stats_before = dict(stats)
        block = torch.empty(1 << 20, dtype=torch.uint8, device=accelerator.device())
        accelerator.memory_stats()
        require(
            dict(stats) == stats_before,
            "the result of memory_stats() changed after a later allocation; expected a copy",
        )
        del block
        self._require_summaries(accelerator, stats)

    def _require_summaries(
        self, accelerator: Accelerator, stats: Mapping[str, Any]
    ) -> None:
        """Require that `memory_summary` returns text, and that the abbreviated text omits the pools."""
        summary = accelerator.memory_summary()
        require(
            isinstance(
                summary, str
            ),  # a subclass of str, which notebooks display, is accepted too
            f"memory_summary() returned {type(summary).__name__}, expected text",
        )
        abbreviated = accelerator.memory_summary(abbreviated=True)
        summary_text = summary.replace("_", " ").lower()
        abbreviated_text = abbreviated.replace("_", " ").lower()
        for pool in ("large pool", "small pool"):
            require(
                pool not in summary_text or pool not in abbreviated_text,
                f"memory_summary(abbreviated=True) contains the {pool}; expected it only in memory_summary()",
            )
        has_pools = any(".large_pool." in key for key in stats)
        require(
            len(abbreviated) < len(summary) or not has_pools,
            "memory_summary() is not longer than memory_summary(abbreviated=True); expected the "
            "allocator's pools, which memory_stats() contains, in the former",
        )

    def test_properties(self, accelerator: Accelerator) -> None:
        """`device_properties` contains the device's name, and the same amount of memory as `total_memory`."""
        for index in range(accelerator.device_count()):
            properties = accelerator.device_properties(index)
            require(
                isinstance(properties, DeviceProperties),
                f"device_properties({index}) returned {properties!r}; expected a DeviceProperties",
            )
            require_type(properties.name, str, f"device_properties({index}).name")
            require(
                properties.name.strip(), f"device_properties({index}).name is empty"
            )
            memory, total = properties.total_memory, accelerator.total_memory(index)
            require(
                memory in (None, total),
                f"device_properties({index}).total_memory is {memory}, total_memory({index}) {total}",
            )

    def test_identifiers(self, accelerator: Accelerator) -> None:
        """A device's UUID is text or None, and the number of visible ids is the number of devices."""
        uuid = accelerator.device_uuid(0)
        require(
            uuid is None or type(uuid) is str,
            f"device_uuid(0) returned {uuid!r}; expected str or None",
        )
        count = accelerator.device_count()
        uuids = [accelerator.device_uuid(index) for index in range(count)]
        is_one_device = accelerator.device(0) == accelerator.device(count - 1)
        are_distinct = len(set(uuids)) == count
        require(
            is_one_device or uuid is None or are_distinct,
            f"device_uuid(i) returned {uuids} for {count} devices; expected a different UUID for each device",
        )
        ids = accelerator.visible_device_ids()
        require(
            ids is None or type(ids) is tuple,
            f"visible_device_ids() returned {ids!r}; expected a tuple or None",
        )
        require(
            ids is None or len(ids) == count,
            f"visible_device_ids() returned {ids!r}, but there are {count} devices",
        )
        variables = accelerator.visible_devices_envs()
        require_type(variables, list, "visible_devices_envs()")
        invalid = [
            name
            for name in variables
            if type(name) is not str or not name.isidentifier()
        ]
        require(
            not invalid,
            f"visible_devices_envs() contains {invalid}; expected names of environment variables",
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
        not_text = [value for value in environ.values() if type(value) is not str]
        require(
            not not_text,
            f"set_visible_devices_envs wrote {not_text}; expected values of type str",
        )
        ids_by_variables: dict[str, list[int]] = {}
        for ids in ([0], [1], [0, 1], [1, 2]) if environ else ():
            copied = dict(environ)
            accelerator.set_visible_devices_envs(copied, ids)
            variables = str(sorted(copied.items()))
            other_ids = ids_by_variables.get(variables)
            require(
                other_ids is None,
                f"set_visible_devices_envs wrote {copied} for both {ids} and {other_ids}",
            )
            ids_by_variables[variables] = ids

    def test_forwarded_variables(self, accelerator: Accelerator) -> None:
        """`export_envs` is a list of prefixes; a prefix of two letters would match too many variables."""
        prefixes = accelerator.export_envs()
        require_type(prefixes, list, "export_envs()")
        invalid = [
            prefix for prefix in prefixes if type(prefix) is not str or len(prefix) < 3
        ]
        require(
            not invalid,
            f"export_envs() has {invalid}; expected prefixes of three letters or more",
        )

    def test_communication(self, accelerator: Accelerator) -> None:
        """`communication_backend_name` is valid for `init_process_group`, and its version is a tuple."""
        name = accelerator.communication_backend_name()
        require_type(name, str, "communication_backend_name()")
        known = [*torch.distributed.Backend.backend_list, "staged"]
        require(
            name in known,
            f"communication_backend_name() returned {name!r}; torch supports {', '.join(known)}",
        )
        self._require_backend_of_device(accelerator, name)
        version = accelerator.communication_backend_version()
        is_version = (
            isinstance(version, tuple)
            and len(version) > 0
            and all(isinstance(part, int) for part in version)
        )
        require(
            version is None or is_version,
            f"communication_backend_version() returned {version!r}; expected a tuple of int, or None",
        )

    def _require_backend_of_device(self, accelerator: Accelerator, name: str) -> None:
        """Require that the communication backend is declared, or that torch supports it for the device."""
        device_type = accelerator.device_type
        declared = accelerator.backend.communication_backend
        device_types_by_backend = torch.distributed.Backend.backend_capability
        through_host = ("gloo", "staged")
        of_device = [
            backend
            for backend, device_types in device_types_by_backend.items()
            if device_type in device_types and backend not in ("fake", *through_host)
        ]
        require(
            name in of_device or name == declared or not of_device,
            f"communication_backend_name() returned {name!r}, but torch uses {', '.join(of_device)} for "
            f"{device_type!r}",
        )
        device_types = device_types_by_backend.get(name, [device_type])
        require(
            device_type in device_types or name in (*through_host, declared),
            f"communication_backend_name() returned {name!r}, which torch uses for {', '.join(device_types)}",
        )

    def test_on_accelerator(self, accelerator: Accelerator) -> None:
        """`on_accelerator` returns True for the device's tensors, and False for the host's."""
        last = accelerator.device(accelerator.device_count() - 1)
        for description, tensor in {
            "a tensor on device()": torch.ones(1, device=accelerator.device()),
            f"a tensor on {last}": torch.ones(1, device=last),
            "an empty tensor": torch.ones(0, 3, device=last),
            "a view": torch.ones(3, 2, device=last).T[1:],
            "a Parameter": torch.nn.Parameter(torch.ones(1, device=last)),
        }.items():
            answer = accelerator.on_accelerator(tensor)
            require(
                answer is True,
                f"on_accelerator returned {answer!r} for {description} of the device; expected True",
            )
        other_devices = ["meta"]
        if accelerator.is_accelerator():
            other_devices.append("cpu")
        for device in other_devices:
            answer = accelerator.on_accelerator(torch.ones(1, device=device))
            require(
                answer is False,
                f"on_accelerator returned {answer!r} for a tensor on {device}",
            )

    def test_random_module(self, accelerator: Accelerator) -> None:
        """`random()` returns a module with torch's functions for random numbers."""
        module = accelerator.random()
        device_module = getattr(
            getattr(torch, accelerator.device_type, None), "random", None
        )
        is_right = inspect.ismodule(module) and module in (torch.random, device_module)
        require(
            is_right,
            f"random() returned {module!r}; expected torch.random, or the device's module",
        )

    def test_random_states(self, accelerator: Accelerator) -> None:
        """A generator's state is a ByteTensor on the host, and its seed an `int`, for checkpoints."""
        for index in (None, 0):
            state = accelerator.get_rng_state(index)
            is_right = state.dtype is torch.uint8 and state.device.type == "cpu"
            require(
                is_right,
                f"get_rng_state({index}) returned {state.dtype} on {state.device}",
            )
        require_type(accelerator.initial_seed(), int, "initial_seed()")
        generator = accelerator.default_generator(0)
        require(
            isinstance(generator, torch.Generator),
            f"default_generator(0) returned {generator!r}",
        )
        device_type = generator.device.type
        require(
            device_type == accelerator.device_type,
            f"default_generator(0) is for {device_type}",
        )
        for index in range(1, accelerator.device_count()):
            device = accelerator.default_generator(index).device
            expected = accelerator.device(index)
            is_only_device = expected == accelerator.device(0)
            require(
                device == expected or is_only_device,
                f"default_generator({index}) is for {device}",
            )

    def test_streams_are_classes(self, accelerator: Accelerator) -> None:
        """`Stream` and `Event` are classes, and every returned stream is an instance of `Stream`."""
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
                    f"{name}() returned {stream!r}, which has no {method}",
                )

    def test_no_stream_is_no_change(self, accelerator: Accelerator) -> None:
        """`stream(None)` changes nothing, as in torch.cuda, because callers may pass None."""
        before = accelerator.current_stream()
        with accelerator.stream(None):
            inside = accelerator.current_stream()
        require(
            inside == before,
            f"inside stream(None), current_stream() returned {inside}; expected {before}",
        )

    def test_ranges_never_raise(self, accelerator: Accelerator) -> None:
        """Profiler ranges never raise an error, with or without a profiler."""
        accelerator.range_push("outer", domain="accel", category="kit")
        accelerator.range_push("inner")
        accelerator.range_pop()
        accelerator.range_pop(domain="accel")
        accelerator.range_pop()  # no range is open
        accelerator.range_push(7)  # type: ignore[arg-type]  # the number of a training step
        accelerator.range_pop()
        with accelerator.range("block"):
            pass
        with ThreadPoolExecutor(1) as other:  # the thread has no open range
            other.submit(accelerator.range_pop).result()
        _require_ranges_end(accelerator)

    def test_tidying_never_raises(self, accelerator: Accelerator) -> None:
        """Emptying caches and resetting peaks return None, even if there is nothing to empty or reset."""
        for name in (
            "empty_cache", "empty_host_cache", "synchronize", "reset_peak_memory_stats",
            "reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats",
        ):  # fmt: skip
            result = getattr(accelerator, name)()
            require(result is None, f"{name}() returned {result!r}; expected None")

    def test_lazy_call_runs(self, accelerator: Accelerator) -> None:
        """`lazy_call` calls the function immediately, or when the device is initialized."""
        calls: list[int] = []
        accelerator.lazy_call(lambda: calls.append(1))
        torch.ones(1, device=accelerator.device())
        accelerator.lazy_call(bool)
        require(
            calls == [1],
            f"on an initialized device, lazy_call ran the function {len(calls)} times; expected once",
        )
        description = (
            "lazy_call of a function that raises ValueError, on an initialized device,"
        )
        require_raises(
            lambda: accelerator.lazy_call(lambda: int("no number")),
            ValueError,
            description,
        )

    def test_compile_backend(self, accelerator: Accelerator) -> None:
        """The compile backend is registered with torch, and setting an unknown backend raises an error."""
        from torch._dynamo import list_backends

        chosen = accelerator.get_compile_backend()
        known = [*list_backends(exclude_tags=()), "inductor"]
        require(
            chosen in known,
            f"get_compile_backend() returned {chosen!r}; torch supports {', '.join(known)}",
        )
        call = "set_compile_backend('no such backend')"
        message = require_raises(
            lambda: accelerator.set_compile_backend("no such backend"), ValueError, call
        )
        names_both = "no such backend" in message and "eager" in message
        require(
            names_both,
            f"the error of {call} is {message!r}; expected the given name and the available names",
        )
        after = accelerator.get_compile_backend()
        require(
            after == chosen,
            f"a rejected set_compile_backend changed the compile backend from {chosen!r} to {after!r}",
        )
        accelerator.set_compile_backend("eager")
        backend_after = accelerator.get_compile_backend()
        accelerator.set_compile_backend(chosen)
        require(
            backend_after == "eager",
            f"after set_compile_backend('eager'), get_compile_backend() returned {backend_after!r}",
        )

    def test_operators(self, accelerator: Accelerator) -> None:
        """Operators are found by their builders' names; a missing operator has a builder that reports so."""
        folder = accelerator.op_builder_dir()
        require_type(folder, str, "op_builder_dir()")
        require(
            importlib.util.find_spec(folder),
            f"op_builder_dir() returned {folder!r}, which is not a package",
        )
        table = accelerator.op_builders()
        require(
            isinstance(table, Mapping), f"op_builders() returned {type(table).__name__}"
        )
        names = {
            name: operator.name for name, operator in accelerator.operators().items()
        }
        require(
            names == {name: name for name in table},
            f"operators() lists {names}, but op_builders() lists {[*table]}",
        )
        builder = accelerator.get_op_builder("NoSuchBuilder")
        require(
            isinstance(builder, type),
            f"get_op_builder('NoSuchBuilder') returned {builder!r}",
        )
        is_compatible = accelerator.create_op_builder("NoSuchBuilder").is_compatible()
        require(
            is_compatible is False,
            f"create_op_builder('NoSuchBuilder').is_compatible() returned {is_compatible!r}",
        )
        missing = accelerator.create_op_builder("NoSuchBuilder")
        require_raises(
            missing.load, RuntimeError, "create_op_builder('NoSuchBuilder').load()"
        )
        for name in table:
            require(
                isinstance(accelerator.get_op_builder(name), type),
                f"get_op_builder({name!r}) did not return a class",
            )
        require(
            isinstance(accelerator.build_extension(), type),
            "build_extension() did not return a class",
        )

    def test_host_memory(self, accelerator: Accelerator) -> None:
        """`register_host_memory` returns a `bool`, and memory that it pinned can be released."""
        alignment = accelerator.pin_memory_alignment()
        require_type(alignment, int, "pin_memory_alignment()")
        require(alignment > 0, f"pin_memory_alignment() returned {alignment}")
        size = max(alignment, mmap.PAGESIZE)
        pages = mmap.mmap(-1, 2 * size)
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        offset = -start % alignment  # the offset of the first aligned address
        address = start + offset
        for attempt in (1, 2):
            is_locked = accelerator.register_host_memory(address, size)
            require_type(is_locked, bool, "register_host_memory of an aligned page")
            if not is_locked:
                require(
                    attempt == 1,
                    "memory that was pinned and released cannot be pinned again",
                )
                return
            view = torch.frombuffer(pages, dtype=torch.uint8, count=size, offset=offset)
            # torch_npu 2.13 reports only memory that it has pinned itself as pinned.
            was_pinned = accelerator.is_pinned(view)
            accelerator.unregister_host_memory(address)
            is_pinned = accelerator.is_pinned(view)
            require(
                not (was_pinned and is_pinned),
                "after unregister_host_memory, is_pinned of the memory is still True",
            )
            del view

    def test_vendor_defaults(self, accelerator: Accelerator) -> None:
        """`apply_vendor_defaults` returns the changes that it made; a second call changes nothing."""
        first = accelerator.apply_vendor_defaults()
        require(
            type(first) is tuple,
            f"apply_vendor_defaults() returned {first!r}; expected a tuple",
        )
        again = accelerator.apply_vendor_defaults()
        require(again == (), f"apply_vendor_defaults() changed {again!r} again")


def _require_ranges_end(accelerator: Accelerator) -> None:
    """Require that ranges end in order, even after an error, if torch's profiler records them."""
    with torch.autograd.profiler.profile() as profile:
        _open_and_close_ranges(accelerator)
    ranges = {
        event.name.removeprefix("accel: "): event.time_range
        for event in profile.function_events
        if event.name.startswith("accel: ")
    }
    if "last" not in ranges:
        return  # the ranges are recorded by the vendor's profiler
    names = ("broken off", "outer", "inner", "around")
    missing = [f"accel: {name}" for name in names if name not in ranges]
    require(
        not missing,
        f"torch's profiler did not record the range {', '.join(missing)}: it was not closed",
    )
    outer, inner, between = ranges["outer"], ranges["inner"], ranges["between"]
    require(
        ranges["around"].end <= outer.start,
        "range_pop() after a block of range(…) did not close the previous range in torch's profiler",
    )
    require(
        ranges["broken off"].end <= outer.start,
        "range(…) is still open in torch's profiler after an error in its block",
    )
    is_inner_closed_first = outer.start <= inner.start and inner.end <= between.start
    is_outer_closed_next = between.end <= outer.end <= ranges["last"].start
    require(
        is_inner_closed_first and is_outer_closed_next,
        "range_pop() did not close the range that was opened last in torch's profiler",
    )
    require(
        ranges["mine"].end <= ranges["after mine"].start,
        "range_pop() closed another thread's range in torch's profiler",
    )


def _open_and_close_ranges(accelerator: Accelerator) -> None:
    """Open and close ranges: after an error, nested, and while another thread has an open range."""
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
    with ThreadPoolExecutor(1) as other_thread:
        other_thread.submit(accelerator.range_push, "accel: another thread's").result()
        accelerator.range_pop()
        with accelerator.range("accel: after mine"):
            torch.ones(2).sum()
        other_thread.submit(accelerator.range_pop).result()
