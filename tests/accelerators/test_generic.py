"""A device that torch reports and nobody knows: PrivateUse1, renamed, with torch's own Python backend.

The name of PrivateUse1 is given once per process, so what needs it runs in one of its own.
"""

import warnings

import pytest
import torch
from accel_tests.forks import forked
from accel_tests.tools import raising
from torch.utils import backend_registration

from accel_core import BackendUnavailableError, HostEvent, TorchAccelerator, UnsupportedError
from accel_core.accelerators.devices import torchs_device
from accel_core.accelerators.torch_device import GenericAccelerator
from accel_core.detection.discovery import GENERIC


def refused(call, *arguments):
    """What the error says."""
    with pytest.raises(UnsupportedError) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.mark.skipif(torch.__version__ < (2, 10), reason="torch has no backend of Python's to try it on")
@forked("torch")
def test_torch_names_the_device_and_serves_what_the_vendor_lacks():
    warnings.simplefilter("error")
    backend_registration._setup_privateuseone_for_python_backend("novel")
    acc = GenericAccelerator(GENERIC)
    assert (acc.name, acc.device_name(), acc.device(0)) == ("generic", "novel", torch.device("novel:0"))
    assert acc.is_available() is True
    assert acc.current_device() == 0
    assert acc.current_device == torch.novel.current_device
    assert acc.current_device_name() == "novel:0"
    # torch makes streams of it, and neither records nor waits: the stand-ins of one queue serve.
    assert issubclass(acc.Stream, torch.Stream)
    assert issubclass(acc.Event, HostEvent)
    stream = acc.current_stream()
    assert stream == acc.default_stream(0)
    assert stream.device == torch.device("novel:0")
    stream.wait_stream(acc.Stream())
    with acc.stream(stream), acc.stream(None):
        assert acc.current_stream() == stream
    assert acc.communication_backend_name() == "staged"
    assert torch.distributed.Backend.backend_capability["staged"] == ["novel", "cpu"]
    assert acc.get_compile_backend() == "aot_eager"

    # No allocator of torch's kind: defaults, not internal assertions.
    acc.empty_cache()
    for ask in (acc.memory_allocated, acc.total_memory, acc.mem_get_info, acc.reset_max_memory_cached):
        said = refused(ask)
        assert "generic" in said
        assert "torch 2." in said
    refused(acc.max_memory_allocated, 0)
    assert acc.memory_stats() == acc.memory_stats(0) == {}
    assert acc.supports_graphs() is acc.supports_graphs() is False
    with pytest.warns(UserWarning, match="graphs are not supported"):
        assert acc.create_graph() is None

    # Where the device has graphs, torch's are used.
    order = []

    class Graph:  # in place of the one that torch refuses here
        graph_pool, capture_error_mode = None, "default"

        def __enter__(self):
            order.append("begin")

        def __exit__(self, *_):
            order.append("end")

        def replay(self):
            order.append("replay")

    torch.accelerator.Graph = Graph
    acc = GenericAccelerator(GENERIC)
    graph = acc.create_graph()
    assert acc.supports_graphs() is True
    assert type(graph) is Graph
    with acc.capture_to_graph(graph, pool=(0, 1), capture_error_mode="relaxed"):
        order.append("work")
    with acc.capture_to_graph(graph, stream=acc.Stream()):
        pass
    acc.replay_graph(graph)
    assert order == ["begin", "work", "end", "begin", "end", "replay"]
    assert (graph.graph_pool, graph.capture_error_mode) == ((0, 1), "relaxed")
    with pytest.raises(UnsupportedError, match=r"generic.* with warmup is not supported by torch .*'warmup'"):
        acc.capture_to_graph(graph, warmup=3)


def test_two_accelerators_in_one_torch_are_refused(monkeypatch, backend):
    two = raising(RuntimeError("mutually exclusive accelerators were detected"))
    monkeypatch.setattr(torch.accelerator, "current_accelerator", two)
    with pytest.raises(BackendUnavailableError, match="generic: torch cannot name its accelerator: mutually"):
        GenericAccelerator(GENERIC)
    assert TorchAccelerator(backend(name="cuda", device_type="cuda")).is_available() is False


def test_without_an_accelerator_there_is_nothing_to_serve():
    if torchs_device(torch) is not None:
        pytest.skip("torch has an accelerator here")
    with pytest.raises(BackendUnavailableError, match="generic: torch reports no accelerator"):
        GenericAccelerator(GENERIC)


def test_what_torch_was_built_for_is_no_device_before_one_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torch that most people have is a CUDA build, and 2.6 raises where it has no accelerator."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    for count, found in ((0, None), (2, torch.device("cuda"))):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert torchs_device(torch) == found
    assert torchs_device(torch, counted=False) == torch.device("cuda")
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert torchs_device(torch) == torch.device("cuda")
    none = raising(RuntimeError("Cannot access accelerator device when none is available."))
    monkeypatch.setattr(torch.accelerator, "current_accelerator", none)
    assert torchs_device(torch) is None
