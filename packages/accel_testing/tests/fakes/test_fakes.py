"""A fake computes and notes who calls it; its faults happen where, when and as they were asked for."""

import signal
import time
from contextlib import contextmanager

import pytest

import accel_core
from accel_core import InvalidDeviceError, ProbeResult, Status, UnsupportedError
from accel_core.backend import Visibility
from accel_core.op_providers import providers
from accel_testing import Call, FakeAccelerator, Fault, fake, installed
from accel_testing.faults import STEPS

pytestmark = pytest.mark.usefixtures("torch_world")


def verdict():
    """The verdict on acme, when something is chosen."""
    return next(v for v in accel_core.selection().verdicts if v.name == "acme")


@pytest.fixture
def acc():
    """A fake of two devices, which is chosen."""
    backend = fake("acme", devices=2, visibility=Visibility(("ACME_VISIBLE",)))
    with installed(backend, isolated=True):
        yield accel_core.get_accelerator()


def test_a_fake_is_an_accelerator_with_its_devices(acc):
    assert isinstance(acc, FakeAccelerator)
    assert acc.is_accelerator()
    assert acc.is_available()
    assert acc.device_count() == 2
    assert acc.visible_devices_envs() == ["ACME_VISIBLE"]


def test_a_device_is_made_current(acc):
    acc.set_device(1)
    assert acc.current_device() == 1


@pytest.mark.parametrize("index", [2, -1])
def test_a_device_that_is_not_there_is_refused(acc, index):
    with pytest.raises(InvalidDeviceError, match=str(index)):
        acc.set_device(index)


def test_choosing_is_not_noted_as_a_call(acc):
    assert acc.calls == []


def test_calls_are_noted_with_their_arguments(acc):
    acc.set_device(1)
    acc.current_device()
    acc.device_name(device_index=None)
    assert acc.calls == [
        Call("set_device", (1,), {}),
        Call("current_device", (), {}),
        Call("device_name", (), {"device_index": None}),
    ]


def test_a_call_equals_a_plain_tuple(acc):
    acc.current_device()
    assert acc.calls == [("current_device", (), {})]


def test_a_call_that_a_member_makes_itself_is_not_noted(acc):
    """`set_device` counts the devices."""
    acc.set_device(1)
    assert "device_count" not in [call.member for call in acc.calls]


def test_a_fake_without_devices_has_the_status_no_device():
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
def test_a_fault_before_there_is_an_accelerator_makes_the_backend_broken(at):
    with installed(
        fake("acme", Fault(at, raises=OSError("libacme.so"))), isolated=True
    ):
        with pytest.warns(accel_core.AcceleratorFallbackWarning, match=r"libacme\.so"):
            assert accel_core.get_accelerator().name == "cpu"
        assert verdict().status is Status.BROKEN
        assert verdict().cause == "OSError: libacme.so"


@pytest.mark.parametrize(
    ("lie", "status", "reason"),
    [
        (Fault("device_count", returns=-1), Status.INVALID, "returned -1"),
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
            "returned 'an accelerator'",
        ),
    ],
    ids=lambda value: value.at if isinstance(value, Fault) else "",
)
def test_a_wrong_answer_is_judged_with_its_reason(lie, status, reason):
    with (
        installed(fake("acme", lie), isolated=True),
        pytest.warns(accel_core.AcceleratorFallbackWarning),
    ):
        found = verdict()
    assert found.status is status
    assert reason in found.reason


@contextmanager
def chosen_with(*faults):
    """The chosen fake, with these faults."""
    with installed(fake("acme", *faults), isolated=True):
        yield accel_core.get_accelerator()


LOST_AT_THE_SECOND_CALL = Fault(
    "synchronize", raises=RuntimeError("device lost"), call=2
)


def test_a_fault_of_the_second_call_spares_the_others():
    with chosen_with(LOST_AT_THE_SECOND_CALL) as acc:
        acc.synchronize()
        with pytest.raises(RuntimeError, match="device lost"):
            acc.synchronize()
        acc.synchronize()


def test_a_call_that_raises_is_noted_too():
    with chosen_with(LOST_AT_THE_SECOND_CALL) as acc:
        acc.synchronize()
        with pytest.raises(RuntimeError):
            acc.synchronize()
        assert [call.member for call in acc.calls] == ["synchronize", "synchronize"]


def test_calls_are_counted_from_the_start_in_each_installation():
    for _ in range(2):
        with chosen_with(LOST_AT_THE_SECOND_CALL) as acc:
            acc.synchronize()


def test_a_fault_without_a_number_is_of_each_call():
    with chosen_with(Fault("empty_cache", raises=UnsupportedError)) as acc:
        for _ in range(2):
            with pytest.raises(UnsupportedError):
                acc.empty_cache()


def test_the_third_call_returns_what_the_fault_says():
    with chosen_with(Fault("device_name", returns="acme:7", call=3)) as acc:
        names = [acc.device_name() for _ in range(4)]
    assert names == ["cpu", "cpu", "acme:7", "cpu"]


def test_the_first_call_sleeps_and_returns_the_usual_answer():
    with chosen_with(Fault("use_host_timers", sleeps=0.2, call=1)) as acc:
        begun = time.monotonic()
        first = acc.use_host_timers()
        second = acc.use_host_timers()
        took = time.monotonic() - begun
    assert first is True
    assert second is True
    assert 0.2 <= took < 0.4


def test_a_flood_fills_stdout_and_stderr(capfd):
    with chosen_with(Fault("is_initialized", floods=100_000)) as acc:
        capfd.readouterr()
        assert acc.is_initialized()
        printed = capfd.readouterr()
    assert len(printed.out) == 100_000
    assert len(printed.err) == 100_000


def test_a_function_runs_at_the_second_call_beside_a_flood():
    ran = []
    flood = Fault("is_initialized", floods=10)
    runs = Fault("is_initialized", runs=lambda: ran.append(1), call=2)
    with chosen_with(flood, runs) as acc:
        assert acc.is_initialized()
        assert ran == []
        assert acc.is_initialized()
        assert ran == [1]


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        (Fault("import", exits=3), Status.CRASHED, "status 3"),
        (Fault("vendor_import", signal=signal.SIGSEGV), Status.CRASHED, "SIGSEGV"),
        (Fault("construction", hangs=True), Status.TIMED_OUT, "within 1 s"),
    ],
    ids=["exits", "signal", "hangs"],
)
def test_a_fault_that_ends_or_stops_a_process_is_met_in_a_child(fault, status, reason):
    """ACCEL_PROBE=isolated has discovery meet it there, as it does with a vendor's."""
    variables = {"ACCEL_PROBE": "isolated", "ACCEL_PROBE_TIMEOUT": "1"}
    begun = time.monotonic()
    with (
        installed(fake("acme", fault), isolated=True, variables=variables),
        pytest.warns(accel_core.AcceleratorFallbackWarning),
    ):
        found = verdict()
    assert found.status is status
    assert reason in found.reason
    assert time.monotonic() - begun < 30


def test_a_fault_of_accel_explain_changes_the_hint():
    faults = (
        Fault("vendor_import", raises=OSError),
        Fault("accel_explain", returns="plug it in"),
    )
    with (
        installed(fake("acme", *faults), isolated=True),
        pytest.warns(accel_core.AcceleratorFallbackWarning),
    ):
        assert verdict().hint == "plug it in"


def test_a_fault_of_accel_op_builders_is_told_by_the_operators():
    fault = Fault("accel_op_builders", raises=OSError("no kernels"))
    with installed(fake("acme", fault), isolated=True):
        first = providers(accel_core.get_accelerator().backend)[0]
        assert "accel-fake-acme" in first.name
        assert "no kernels" in first.advice
