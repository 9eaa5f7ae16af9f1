"""What vendors differ in that plugins leave to the base: their variables, integrated devices, events."""

import os
from types import SimpleNamespace

import pytest

from accel_core.accelerators import Accelerator
from accel_core.accelerators.cpu import CPUAccelerator
from accel_core.accelerators.records import read_properties
from accel_core.accelerators.streams import HostStream
from accel_core.backend import Environment


def test_vendor_defaults_are_set_when_asked_for_and_the_users_values_stay(backend, monkeypatch):
    monkeypatch.setenv("SIM_KEPT", "mine")
    monkeypatch.setenv("SIM_NEW", "")
    monkeypatch.delenv("SIM_NEW")  # so that it goes again when the test ends
    accelerator = CPUAccelerator(
        backend(device_type="cpu", environment=Environment(set=("SIM_KEPT=1", "SIM_NEW=a=b")))
    )
    assert "SIM_NEW" not in os.environ
    assert accelerator.apply_vendor_defaults() == ("SIM_NEW=a=b",)
    assert accelerator.apply_vendor_defaults() == ()
    assert (os.environ["SIM_KEPT"], os.environ["SIM_NEW"]) == ("mine", "a=b")


@pytest.mark.parametrize(
    ("said", "integrated"),
    [
        ({"is_integrated": 1}, True),
        ({"is_integrated": 0}, False),
        ({"is_integrated_gpu": True}, True),
        ({}, None),
    ],
)
def test_an_integrated_device_is_told_from_a_card(said, integrated):
    found = read_properties(SimpleNamespace(name="a device", **said), None)
    assert found.integrated is integrated


def test_an_event_that_takes_no_stream_can_be_recorded():
    class MetalEvent:
        recorded = False

        def record(self):
            self.recorded = True

    event = MetalEvent()
    assert HostStream().record_event(event) is event
    assert event.recorded


def test_in_one_queue_every_stream_is_the_current_one(backend):
    accelerator = Accelerator(backend(device_type="simulated"))
    side = accelerator.Stream()
    with accelerator.stream(side):
        assert accelerator.current_stream() == side
    assert {side, accelerator.current_stream(), accelerator.default_stream()} == {side}
    assert side != object()
