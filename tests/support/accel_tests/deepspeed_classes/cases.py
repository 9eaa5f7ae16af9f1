"""What is asked of both classes: every member of DeepSpeed's, in the order of `cases`.

The same for every vendor; a vendor's own questions are added by its suite.
"""

import torch

from accel_tests.deepspeed_classes.device import member, members
from accel_tests.deepspeed_classes.memory import (
    memory,
    page_locked_memory,
    process_memory,
)

TENSORS = [
    f"{kind}Tensor"
    for kind in ("BFloat16", "Byte", "Double", "Float", "Half", "Int", "Long")
]


def cases(device):
    """Every member of DeepSpeed's class; the part before the colon is its name."""
    return {
        **before_the_start(device),
        **nature_and_devices(device),
        **random_numbers(device),
        **streams(device),
        **(process_memory() if device.type == "cpu" else memory(device)),
        **page_locked_memory(device),
        **data_types(device),
        **graphs(device),
        **compilation_and_profiling(device),
        **launching(),
        **operators(),
    }


def deferred(acc):
    called = []
    acc.lazy_call(lambda: called.append(1))
    return len(called)


def before_the_start(device):
    """Asked of a device that nothing has used yet: the first that needs its runtime starts it."""
    amounts = {
        "total_memory: of a device not selected yet": member(
            "total_memory", device.last
        ),
        "memory_stats: before the allocator": member("memory_stats", device.last),
    }
    return {
        "lazy_call: before the start": deferred,
        "default_generator: before the start": member(
            "default_generator", device.last_generator
        ),
        **(amounts if device.type != "cpu" else {}),
        "current_stream: of a device not selected yet": member(
            "current_stream", device.last
        ),
    }


def nature_and_devices(device):
    """The nature of the device, and devices by index."""

    def selected(index):
        def select(acc):
            try:
                acc.set_device(index)
                return acc.current_device()
            finally:
                acc.set_device(0)

        return select

    def in_a_block(acc):
        with acc.device(device.last):
            return acc.current_device()

    return {
        **members(
            "is_synchronized_device", "use_host_timers", "resolves_data_dependency",
            "handles_memory_backpressure", "is_available", "device_count", "current_device",
            "current_device_name", "device_name", "device", "synchronize",
        ),
        **{
            f"{name}: of device {device.last}": member(name, device.last)
            for name in ("device_name", "device", "synchronize")
        },
        "device: in a block": in_a_block,
        "set_device": member("set_device", 0),
        "set_device: the last": selected(device.last),
        "set_device: out of range": selected(7),
    }  # fmt: skip


def random_numbers(device):
    """Seeds, states, generators."""
    last = device.last_generator

    def restored(*index):
        def again(acc):
            state = acc.get_rng_state(*index)
            first = device.draw(*index)
            acc.set_rng_state(state, *index)
            return torch.equal(first, device.draw(*index))

        return again

    def state(acc):
        acc.manual_seed_all(6)
        return acc.get_rng_state()

    def seeded(acc):
        acc.manual_seed(5)
        return acc.initial_seed()

    def from_generator(acc):
        acc.default_generator(last).manual_seed(8)
        return device.draw(last)

    return {
        **members("random"),
        "default_generator": member("default_generator", 0),
        "default_generator: of the last": member("default_generator", last),
        "default_generator: seeded by itself": from_generator,
        "default_generator: out of range": member("default_generator", 7),
        "manual_seed": member("manual_seed", 3),
        "manual_seed_all": member("manual_seed_all", 3),
        "initial_seed": seeded,
        "get_rng_state": state,
        "set_rng_state": restored(),
        "set_rng_state: of the last": restored(last),
    }


def streams(device):
    """Streams and events."""

    def inside(acc):
        stream = acc.Stream()
        with acc.stream(stream):
            return acc.current_stream() == stream

    def waited(acc):
        stream = acc.Stream()
        stream.wait_stream(acc.current_stream())
        stream.synchronize()
        return stream.query()

    def timed(acc):
        start, end = acc.Event(enable_timing=True), acc.Event(enable_timing=True)
        start.record()
        device.block().fill_(1)
        end.record()
        end.synchronize()
        return [start.query(), start.elapsed_time(end) >= 0]

    return {
        **members("current_stream", "default_stream"),
        **{
            f"{name}: of device {device.last}": member(name, device.last)
            for name in ("current_stream", "default_stream")
        },
        "Stream": lambda acc: acc.Stream,
        "Stream: waits, and has finished": waited,
        "Event": lambda acc: acc.Event,
        "Event: measures": timed,
        "stream": inside,
    }


def data_types(device):
    """What can be computed in, and tensors made on the device."""
    host = torch.arange(4.0)

    def made(name):
        return lambda acc: getattr(acc, name)([1, 2])

    return {
        **members(
            "is_bf16_supported",
            "is_fp16_supported",
            "is_fp64_supported",
            "supported_dtypes",
        ),
        **{name: made(name) for name in TENSORS},
        **{
            f"{name}: the attribute": lambda acc, name=name: getattr(acc, name)
            for name in TENSORS
        },
        "FloatTensor: of a size": lambda acc: tuple(acc.FloatTensor(3).shape),
        "FloatTensor: for isinstance": lambda acc: isinstance(
            host.to(device.type), acc.FloatTensor
        ),
        "FloatTensor: for Tensor.type": lambda acc: host.type(acc.FloatTensor).device,
        "on_accelerator": lambda acc: [
            acc.on_accelerator(host),
            acc.on_accelerator(host.to(device.type)),
        ],
    }


def graphs(device):
    """Work captured once and replayed."""

    def replayed(acc):
        """Equal to 5 where the work was captured, and still 3 where it ran but once."""
        source, result = (
            torch.full((2,), 3.0, device=device.type),
            torch.zeros(2, device=device.type),
        )
        graph = acc.create_graph()
        acc.synchronize()
        with acc.capture_to_graph(graph):
            result.copy_(source)
        source.fill_(5.0)
        acc.replay_graph(graph)
        acc.synchronize()
        return result

    def while_capturing(ask):
        def capture(acc):
            graph, stream = acc.create_graph(), acc.Stream()
            acc.synchronize()
            with acc.capture_to_graph(graph, stream=stream):
                return ask(acc, stream)

        return capture

    def without_a_graph(acc):
        with acc.capture_to_graph(None):
            return "ran"

    return {
        **members("create_graph", "is_current_stream_capturing"),
        "is_current_stream_capturing: while it does": while_capturing(
            lambda acc, _: acc.is_current_stream_capturing()
        ),
        "capture_to_graph: on a stream": while_capturing(
            lambda acc, stream: acc.current_stream() == stream
        ),
        "capture_to_graph: without a graph": without_a_graph,
        "replay_graph: of what was captured": replayed,
        "replay_graph: without a graph": member("replay_graph", None),
    }


def compilation_and_profiling(device):
    """Compilers, Triton, the profiler's ranges, deferred calls."""

    def compile_backend(acc):
        before = acc.get_compile_backend()
        acc.set_compile_backend(device.compile_backend)
        try:
            return acc.get_compile_backend()
        finally:
            acc._compile_backend = (
                before  # hpu's is registered by its real package alone
            )

    return {
        **members("is_triton_supported", "prefer_triton_grouped_mm"),
        "supports_nvtx_domain": lambda acc: acc.supports_nvtx_domain,
        "range_push": member("range_push", "step"),
        "range_pop": member("range_pop"),
        "lazy_call": deferred,
        "lazy_call: what it gives": member("lazy_call", int),
        **members("get_compile_backend"),
        "set_compile_backend": compile_backend,
        "set_compile_backend: unknown": member("set_compile_backend", "nonsense"),
    }


def launching():
    """What a launcher asks."""

    def visible(*ids):
        def write(acc):
            environ = {}
            acc.set_visible_devices_envs(environ, list(ids))
            return [f"{name}={value}" for name, value in environ.items()]

        return write

    return {
        **members("communication_backend_name", "export_envs", "visible_devices_envs"),
        "set_visible_devices_envs": visible(0, 1),
        "set_visible_devices_envs: in any order": visible(3, 1),
        "set_visible_devices_envs: one twice": visible(1, 1),
        "set_visible_devices_envs: by UUID": visible("GPU-8f6b"),
    }


def operators():
    """Operators that need a build."""
    return {
        **members("op_builder_dir", "build_extension"),
        "get_op_builder": member("get_op_builder", "FusedAdamBuilder"),
        "get_op_builder: unknown": member("get_op_builder", "NoSuchBuilder"),
        "create_op_builder": lambda acc: type(
            acc.create_op_builder("FusedAdamBuilder")
        ),
        "create_op_builder: unknown": lambda acc: type(
            acc.create_op_builder("NoSuchBuilder")
        ),
    }
