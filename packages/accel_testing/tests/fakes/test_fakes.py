"""A fake computes and notes who calls it; its faults happen where, when and as they were asked for."""

import signal
import time

import pytest

import accel_core
from accel_core import InvalidDeviceError, ProbeResult, Status, UnsupportedError
from accel_core.backend import Visibility
from accel_core.op_providers import providers
from accel_testing import Call, FakeAccelerator, Fault, fake, installed
from accel_testing.faults import STEPS

pytestmark = pytest.mark.usefixtures("torch_world")


def verdict():
    """What is said of acme when something is chosen."""
    return next(v for v in accel_core.selection().verdicts if v.name == "acme")


def test_it_says_that_it_is_an_accelerator_and_notes_each_call():
    with installed(
        fake("acme", devices=2, visibility=Visibility(variables=("ACME_VISIBLE",))),
        isolated=True,
    ):
        acc = accel_core.get_accelerator()
        assert isinstance(acc, FakeAccelerator)
        assert acc.calls == []  # who chose is not noted
        assert (acc.is_accelerator(), acc.is_available(), acc.device_count()) == (
            True,
            True,
            2,
        )
        acc.set_device(1)
        assert acc.current_device() == 1
        for index in (2, -1):
            with pytest.raises(InvalidDeviceError, match=str(index)):
                acc.set_device(index)
        assert acc.visible_devices_envs() == ["ACME_VISIBLE"]
        assert acc.calls[3:5] == [
            Call("set_device", (1,), {}),
            ("current_device", (), {}),
        ]
        assert [call.member for call in acc.calls].count(
            "device_count"
        ) == 1  # not what set_device asks
        acc.calls.clear()
        acc.device_name(device_index=None)
        assert acc.calls == [("device_name", (), {"device_index": None})]
    with installed(fake("acme", devices=0), isolated=True):
        with pytest.warns(accel_core.AcceleratorFallbackWarning):
            assert verdict().status is Status.NO_DEVICE
        pinned = accel_core.accelerator("acme")
        assert not pinned.is_available()
        with pytest.raises(InvalidDeviceError, match="no device"):
            pinned.current_device()


@pytest.mark.parametrize(
    "at", [*STEPS, "accel_backends", "accel_probe", "accel_create", "device_count"]
)
def test_who_fails_before_there_is_an_accelerator_is_told_of(at):
    with installed(
        fake("acme", Fault(at, raises=OSError("libacme.so"))), isolated=True
    ):
        with pytest.warns(accel_core.AcceleratorFallbackWarning, match=r"libacme\.so"):
            assert accel_core.get_accelerator().name == "cpu"
        assert (verdict().status, verdict().cause) == (
            Status.BROKEN,
            "OSError: libacme.so",
        )


@pytest.mark.parametrize(
    ("lie", "status", "said"),
    [
        (Fault("device_count", returns=-1), Status.INVALID, "gave -1"),
        (
            Fault("accel_probe", returns=ProbeResult(False, "it is asleep")),
            Status.NO_DEVICE,
            "it is asleep",
        ),
        (
            Fault("accel_backends", returns=None),
            Status.INVALID,
            "the plugin declares no backend",
        ),
        (
            Fault("accel_create", returns="an accelerator"),
            Status.INVALID,
            "gave 'an accelerator'",
        ),
    ],
    ids=lambda value: value.at if isinstance(value, Fault) else "",
)
def test_a_lie_is_found_out(lie, status, said):
    with (
        installed(fake("acme", lie), isolated=True),
        pytest.warns(accel_core.AcceleratorFallbackWarning),
    ):
        assert (verdict().status, said in verdict().reason) == (status, True)


def test_the_nth_call_is_the_one(capfd):
    ran = []
    faults = (
        Fault("synchronize", raises=RuntimeError("device lost"), call=2),
        Fault("empty_cache", raises=UnsupportedError),
        Fault("device_name", returns="acme:7", call=3),
        Fault("use_host_timers", sleeps=0.2, call=1),
        Fault("is_initialized", floods=100_000),
        Fault("is_initialized", runs=lambda: ran.append(1), call=2),
    )
    with installed(fake("acme", *faults), isolated=True):
        acc = accel_core.get_accelerator()
        acc.synchronize()
        with pytest.raises(RuntimeError, match="device lost"):
            acc.synchronize()
        acc.synchronize()
        for _ in range(2):
            with pytest.raises(UnsupportedError):
                acc.empty_cache()
        assert [acc.device_name() for _ in range(4)] == ["cpu", "cpu", "acme:7", "cpu"]
        assert [call.member for call in acc.calls].count("synchronize") == 3
        begun = time.monotonic()
        assert acc.use_host_timers() is acc.use_host_timers() is True
        assert 0.2 <= time.monotonic() - begun < 0.4
        capfd.readouterr()
        assert acc.is_initialized()
        assert list(map(len, capfd.readouterr())) == [100_000, 100_000]
        assert ran == []
        assert acc.is_initialized()
        assert ran == [1]
    with installed(
        fake("acme", *faults), isolated=True
    ):  # counted from the start again
        accel_core.get_accelerator().synchronize()


def test_what_ends_or_stops_a_process_is_met_in_a_child(torch_world):
    """ACCEL_PROBE=isolated has discovery meet it there, as it does with a vendor's."""
    variables = {"ACCEL_PROBE": "isolated", "ACCEL_PROBE_TIMEOUT": "1"}
    for fault, status, said in (
        (Fault("import", exits=3), Status.CRASHED, "status 3"),
        (Fault("vendor_import", signal=signal.SIGSEGV), Status.CRASHED, "SIGSEGV"),
        (Fault("construction", hangs=True), Status.TIMED_OUT, "within 1 s"),
    ):
        begun = time.monotonic()
        with (
            installed(fake("acme", fault), isolated=True, variables=variables),
            pytest.warns(accel_core.AcceleratorFallbackWarning),
        ):
            found = verdict()
        assert (found.status, said in found.reason) == (status, True), found
        assert time.monotonic() - begun < 30


def test_every_hook_has_its_fault():
    """Also those that nobody comes to who merely chooses."""
    told = Fault("accel_explain", returns="plug it in")
    with (
        installed(
            fake("acme", Fault("vendor_import", raises=OSError), told), isolated=True
        ),
        pytest.warns(accel_core.AcceleratorFallbackWarning),
    ):
        assert verdict().hint == "plug it in"
    with installed(
        fake("acme", Fault("accel_op_builders", raises=OSError("no kernels"))),
        isolated=True,
    ):
        first = providers(accel_core.get_accelerator().backend)[0]
        assert "accel-fake-acme" in first.name
        assert "no kernels" in first.advice
