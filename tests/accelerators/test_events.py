"""Events take torch's keywords, and are of the vendor's class."""

import pytest
import torch

from accel_core import TorchAccelerator, UnsupportedError


def test_an_event_takes_every_keyword_of_torchs(cpu, simulated):
    for accelerator in (cpu, simulated):
        event = accelerator.Event(enable_timing=True, blocking=True, external=False)
        assert isinstance(event, accelerator.Event)


def test_an_event_of_the_vendors_class_is_one_of_ours(simulated, vendor):
    assert issubclass(simulated.Event, vendor.Event)
    assert isinstance(vendor.Event(), simulated.Event)
    assert simulated.Event(True, blocking=True).enable_timing is True


def test_what_the_vendors_event_cannot_do_is_refused(simulated, vendor):
    with pytest.raises(
        UnsupportedError, match=r"Event\(interprocess=True\) is not supported"
    ):
        simulated.Event(interprocess=True)
    with pytest.raises(
        UnsupportedError, match=r"Event\(external=True\) is not supported"
    ):
        simulated.Event(external=True)


def test_without_graphs_an_external_event_is_an_event(simulated, vendor):
    """`external` only says how a graph captures the event."""
    del vendor.graph
    assert isinstance(simulated.Event(external=True), vendor.Event)


def test_a_class_that_takes_everything_stays_the_vendors(backend):
    cuda = TorchAccelerator(backend(name="cuda", device_type="cuda"))
    assert cuda.Event is torch.cuda.Event
