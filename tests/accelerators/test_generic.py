"""A device that torch reports and nobody knows: PrivateUse1, renamed, with torch's own Python backend.

The name of PrivateUse1 is given once per process, so what needs it runs in one of its own.
"""

import warnings

import pytest
import torch
from accel_tests.forks import forked
from accel_tests.tools import raising
from torch.utils import backend_registration

from accel_core import (
    BackendUnavailableError,
    HostEvent,
    TorchAccelerator,
    UnsupportedError,
)
from accel_core.builtin import GENERIC
from accel_core.interface.devices import current_torch_accelerator
from accel_core.interface.torch_device import GenericAccelerator


def on_novel(test):
    """Run the test in a fork, in which it may name PrivateUse1, where torch has a backend of Python's."""
    reason = "torch has no backend of Python's to try it on"
    return pytest.mark.skipif(torch.__version__ < (2, 10), reason=reason)(
        forked("torch")(test)
    )


def novel():
    """The accelerator of a device that torch calls `novel`; warnings are errors from here on."""
    warnings.simplefilter("error")
    backend_registration._setup_privateuseone_for_python_backend("novel")
    return GenericAccelerator(GENERIC)


@on_novel
def test_torch_names_the_device():
    acc = novel()
    assert acc.name == "generic"
    assert acc.device_name() == "novel"
    assert acc.device(0) == torch.device("novel:0")
    assert acc.current_device_name() == "novel:0"


@on_novel
def test_the_current_device_is_torchs():
    acc = novel()
    assert acc.is_available() is True
    assert acc.current_device() == 0
    assert acc.current_device == torch.novel.current_device


@on_novel
def test_streams_of_one_queue_serve_where_torchs_neither_record_nor_wait():
    acc = novel()
    assert issubclass(acc.Stream, torch.Stream)
    assert issubclass(acc.Event, HostEvent)
    stream = acc.current_stream()
    assert stream == acc.default_stream(0)
    assert stream.device == torch.device("novel:0")
    stream.wait_stream(acc.Stream())
    with acc.stream(stream), acc.stream(None):
        assert acc.current_stream() == stream


@on_novel
def test_the_staged_group_communicates():
    assert novel().communication_backend_name() == "staged"
    assert torch.distributed.Backend.backend_capability["staged"] == ["novel", "cpu"]


@on_novel
def test_the_compiler_is_aot_eager():
    assert novel().get_compile_backend() == "aot_eager"


@on_novel
@pytest.mark.parametrize(
    "member",
    [
        "memory_allocated",
        "max_memory_allocated",
        "total_memory",
        "mem_get_info",
        "reset_max_memory_cached",
    ],
)
def test_without_an_allocator_of_torchs_kind_memory_is_unsupported(member):
    """And not an internal assertion of torch's."""
    acc = novel()
    with pytest.raises(UnsupportedError, match=r"generic.*torch 2\."):
        getattr(acc, member)()


@on_novel
def test_without_an_allocator_of_torchs_kind_there_is_nothing_to_empty_or_to_count():
    acc = novel()
    acc.empty_cache()
    assert acc.memory_stats() == {}
    assert acc.memory_stats(0) == {}


@on_novel
def test_without_graphs_none_is_created_with_a_warning():
    acc = novel()
    assert acc.supports_graphs() is False
    assert acc.supports_graphs() is False, "the second call"
    with pytest.warns(UserWarning, match="graphs are not supported"):
        assert acc.create_graph() is None


class Graph:
    """In place of the graph that torch refuses on this device."""

    graph_pool, capture_error_mode = None, "default"

    def __init__(self):
        self.calls = []

    def __enter__(self):
        self.calls.append("begin")

    def __exit__(self, *_):
        self.calls.append("end")

    def replay(self):
        self.calls.append("replay")


def novel_with_graphs():
    made = novel()
    torch.accelerator.Graph = Graph
    return type(made)(GENERIC)


@on_novel
def test_torchs_graphs_are_used_where_the_device_has_them():
    acc = novel_with_graphs()
    assert acc.supports_graphs() is True
    graph = acc.create_graph()
    assert isinstance(graph, torch.accelerator.Graph)
    with acc.capture_to_graph(graph):
        graph.calls.append("work")
    acc.replay_graph(graph)
    assert graph.calls == ["begin", "work", "end", "replay"]


@on_novel
def test_the_options_of_a_capture_reach_torchs_graph():
    acc = novel_with_graphs()
    graph = acc.create_graph()
    with acc.capture_to_graph(graph, pool=(0, 1), capture_error_mode="relaxed"):
        pass
    assert graph.graph_pool == (0, 1)
    assert graph.capture_error_mode == "relaxed"


@on_novel
def test_a_graph_is_captured_on_a_stream_of_the_callers():
    acc = novel_with_graphs()
    graph = acc.create_graph()
    with acc.capture_to_graph(graph, stream=acc.Stream()):
        pass
    assert graph.calls == ["begin", "end"]


@on_novel
def test_an_option_that_torchs_graphs_lack_is_refused_by_name():
    acc = novel_with_graphs()
    graph = acc.create_graph()
    with pytest.raises(
        UnsupportedError,
        match=r"generic.* with warmup is not supported by torch .*'warmup'",
    ):
        acc.capture_to_graph(graph, warmup=3)


def test_two_accelerators_in_one_torch_are_refused(monkeypatch, backend):
    two = raising(RuntimeError("mutually exclusive accelerators were detected"))
    monkeypatch.setattr(torch.accelerator, "current_accelerator", two)
    with pytest.raises(
        BackendUnavailableError,
        match="generic: torch cannot determine its accelerator: mutually",
    ):
        GenericAccelerator(GENERIC)
    assert (
        TorchAccelerator(backend(name="cuda", device_type="cuda")).is_available()
        is False
    )


def test_without_an_accelerator_there_is_nothing_to_serve():
    if current_torch_accelerator(torch) is not None:
        pytest.skip("torch has an accelerator here")
    with pytest.raises(
        BackendUnavailableError, match="generic: torch reports no accelerator"
    ):
        GenericAccelerator(GENERIC)


@pytest.mark.parametrize(("count", "device"), [(0, None), (2, torch.device("cuda"))])
def test_what_torch_was_built_for_is_a_device_once_one_is_counted(
    monkeypatch, count, device
):
    """The torch that most people have is a CUDA build."""
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda")
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert current_torch_accelerator(torch) == device


def test_what_torch_was_built_for_may_be_asked_without_a_count(monkeypatch):
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda")
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert current_torch_accelerator(torch, check_count=False) == torch.device("cuda")


def test_a_device_that_a_package_named_is_not_counted(monkeypatch):
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda")
    )
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert current_torch_accelerator(torch) == torch.device("cuda")


def test_a_torch_that_raises_where_it_has_no_accelerator_has_none(monkeypatch):
    """As 2.6 does."""
    none = raising(
        RuntimeError("Cannot access accelerator device when none is available.")
    )
    monkeypatch.setattr(torch.accelerator, "current_accelerator", none)
    assert current_torch_accelerator(torch) is None
