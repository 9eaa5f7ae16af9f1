"""`TorchAccelerator` over a simulated vendor, and over the device modules that torch ships.

Here what is bound, devices, random numbers and streams; the rest is in `test_torch_device_work.py` and
`test_training.py`.
"""

import functools
import types

import pytest
import torch
from accel_tests.tools import raising

from accel_core import (
    BackendUnavailableError,
    InvalidDeviceError,
    TorchAccelerator,
    UnsupportedError,
)
from accel_core.interface.streams import HostEvent, HostStream

#: Of these a refusal is told in our words: the vendor's function stands behind.
QUESTIONS = ("is_current_stream_capturing", "is_initialized")
SAME = (
    *QUESTIONS,
    "current_device",
    "empty_cache",
    "manual_seed",
    "manual_seed_all",
    "stream",
    "Stream",
)


# Binding


@pytest.mark.parametrize("name", SAME)
def test_a_member_that_means_the_same_is_the_vendors_function(simulated, vendor, name):
    member = getattr(simulated, name)
    assert (member.__wrapped__ if name in QUESTIONS else member) is getattr(
        vendor, name
    )


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
@pytest.mark.parametrize("name", SAME)
def test_the_same_holds_for_torchs_own_modules(backend, known, kind, name):
    known("mps")  # of neither, as a build without them says
    if not hasattr(getattr(torch, kind), name):
        pytest.skip("this torch is older than the function")
    member = getattr(TorchAccelerator(backend(name=kind, device_type=kind)), name)
    assert (member.__wrapped__ if name in QUESTIONS else member) is getattr(
        getattr(torch, kind), name
    )


@pytest.fixture
def known(monkeypatch):
    """`known(kind)`: `torch.accelerator` says that this type is its accelerator; nothing starts."""

    def say(kind):
        monkeypatch.setattr(
            torch.accelerator, "current_accelerator", lambda *_: torch.device(kind)
        )

    return say


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_torchs_accelerator_comes_first_where_torch_brings_the_device(
    backend, known, kind
):
    known(kind)
    made = TorchAccelerator(backend(name=kind, device_type=kind))
    assert made.current_device is torch.accelerator.current_device_index
    assert (
        made._candidate_functions("set_device")[0] is torch.accelerator.set_device_index
    )
    # Which tells more, or is what torch's calls; as it is, it breaks a compiled function's graph.
    counted = torch.compile(
        lambda x: x + made.device_count(), backend="eager", fullgraph=True
    )
    assert counted(torch.ones(1)) == 1


def test_a_package_that_took_a_type_over_comes_before_torch(backend, known):
    known("cuda")
    made = TorchAccelerator(
        backend(name="other", device_type="cuda", vendor_import="torch_other")
    )
    assert made.current_device is torch.cuda.current_device


def test_a_failure_of_torchs_function_is_raised_at_its_first_call(
    backend, known, monkeypatch
):
    """Metal's errors come late: the module's function would find nothing to wait for any more."""
    known("mps")
    monkeypatch.setattr(
        torch.accelerator, "synchronize", raising(RuntimeError("a kernel failed"))
    )
    monkeypatch.setattr(torch.mps, "synchronize", lambda: None)
    monkeypatch.setattr(torch.mps, "device_count", lambda: 1)
    made = TorchAccelerator(backend(name="mps", device_type="mps"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a kernel failed"):
            made.synchronize()


def test_memory_that_torch_cannot_tell_of_is_asked_of_the_module(
    backend, known, monkeypatch
):
    no_allocator = raising(RuntimeError("Allocator for mps is not a DeviceAllocator"))
    known("mps")
    monkeypatch.setattr(
        torch.accelerator, "memory_allocated", no_allocator, raising=False
    )
    monkeypatch.setattr(torch.mps, "memory_allocated", lambda: 17, raising=False)
    monkeypatch.setattr(torch.mps, "device_count", lambda: 1)
    made = TorchAccelerator(backend(name="mps", device_type="mps"))
    assert made.memory_allocated() == 17
    assert made.memory_allocated() == 17
    assert made.refused == {
        "memory_allocated": "Allocator for mps is not a DeviceAllocator"
    }


@pytest.mark.parametrize(
    ("words", "served"),
    [("kept for torch: use torch.accelerator", True), ("the device is lost", False)],
)
def test_a_function_that_names_torchs_is_left_out_and_a_device_that_fails_is_not(
    vendor, backend, known, monkeypatch, words, served
):
    known("maia")
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "maia")
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 1)
    vendor.current_device = vendor.initial_seed = raising(RuntimeError(words))
    made = TorchAccelerator(backend())
    if served:
        assert made.current_device() == 1
        assert made.current_device() == 1
        assert made.current_device is torch.accelerator.current_device_index
        assert made.refused == {"current_device": words}
    else:
        with pytest.raises(RuntimeError, match=words):
            made.current_device()
    if served:  # and where what is tried last fails as well, its reason is told
        vendor.default_generators = [
            types.SimpleNamespace(initial_seed=raising(RuntimeError("overflow")))
        ] * 2
        with pytest.raises(RuntimeError, match="overflow"):
            made.initial_seed()


def test_streams_that_torch_cannot_make_are_tried_at_the_first_call(
    without, known, monkeypatch
):
    known("maia")
    has_none = raising(RuntimeError("no stream of this device"))
    monkeypatch.setattr(torch.accelerator, "current_stream", has_none)
    made = without("Stream", "Event", "stream", "current_stream", "default_stream")
    assert (made._stream_class is torch.Stream) is hasattr(
        torch.Stream, "__enter__"
    )  # since torch 2.8
    assert isinstance(made.current_stream(), HostStream)


def test_a_parameter_of_another_name_is_put_in_place(simulated, vendor):
    assert simulated.memory_allocated() == 100
    assert simulated.memory_allocated(None) == 100
    simulated.memory_allocated(1)
    simulated.max_memory_allocated(device_index=1)
    assert [place for _, place in vendor.asked] == [0, 0, 1, 1]


def test_a_vendor_that_uses_our_name_is_bound_as_it_is(vendor, backend):
    def manual_seed(seed, *, timeout=1): ...

    vendor.manual_seed = manual_seed
    assert TorchAccelerator(backend()).manual_seed is manual_seed


@pytest.mark.parametrize(
    "synchronize",
    [
        lambda vendor: (
            lambda: vendor.current
        ),  # it takes no device, and runs with it selected
        lambda vendor: (
            lambda device: device
        ),  # it needs one, and is given the current one
        lambda vendor: (
            int
        ),  # Python cannot look into it: called with nothing, or with the device
    ],
)
def test_a_vendors_function_gets_the_device_as_it_takes_one(
    vendor, backend, synchronize
):
    vendor.synchronize = synchronize(vendor)
    accelerator = TorchAccelerator(backend())
    assert accelerator.synchronize() == 0
    assert accelerator.synchronize(1) == 1
    assert accelerator.current_device() == 0


def test_seeds_and_streams_of_other_parameter_names_keep_ours(vendor, backend):
    seen = []
    vendor.manual_seed = vendor.manual_seed_all = lambda value: seen.append(value)
    vendor.stream = lambda s: seen.append(s)
    accelerator = TorchAccelerator(backend())
    accelerator.manual_seed(seed=1)
    accelerator.manual_seed_all(seed=2)
    accelerator.stream(stream="s")
    assert seen == [1, 2, "s"]


def test_an_override_is_left_alone_and_may_call_up(vendor, backend):
    class Vendor(TorchAccelerator):
        def device_count(self):
            return super().device_count() + 10

        def memory_allocated(self, device_index=None):
            return super().memory_allocated(device_index) + 1

        @functools.cached_property
        def Event(self):
            return super().Event, HostEvent

    accelerator = Vendor(backend())
    assert accelerator.device_count() == 12
    assert accelerator.memory_allocated(1) == 101
    vendors, own = accelerator.Event
    assert issubclass(vendors, vendor.Event)
    assert own is HostEvent
    assert accelerator.current_device is vendor.current_device


def test_an_override_may_call_up_to_a_default(without):
    class Vendor(TorchAccelerator):
        def memory_allocated(self, device_index=None):
            return super().memory_allocated(device_index)

    with pytest.raises(UnsupportedError, match="memory_allocated"):
        without("memory_allocated", kind=Vendor).memory_allocated()


def test_a_compiled_program_may_ask_members_that_are_bound_and_overridden(
    vendor, backend
):
    class Vendor(TorchAccelerator):
        def device_count(self):
            return super().device_count() + 10

    accelerator = Vendor(backend())
    vendor.current = 1

    @torch.compile(fullgraph=True, backend="eager")
    def asked(x):
        return x + accelerator.device_count() + accelerator.current_device()

    assert asked(torch.zeros(1)).item() == 13


def test_a_vendor_that_is_not_imported_is_named(backend):
    absent = backend(vendor_import=("torch_first", "torch_second"))
    with pytest.raises(
        BackendUnavailableError,
        match=r"no module torch\.maia; import torch_first or torch_second before",
    ):
        TorchAccelerator(absent)


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_torchs_own_modules_without_a_device_are_unavailable_quietly(backend, kind):
    accelerator = TorchAccelerator(backend(name=kind, device_type=kind))
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    assert accelerator.is_available() is False
    assert accelerator.device_count() == 0
    assert accelerator.is_initialized() is False
    with pytest.warns(UserWarning, match="graphs are not supported"):
        assert accelerator.create_graph() is None
    assert accelerator.supported_dtypes() == [torch.float32]
    assert {*accelerator.capabilities().to_dict().values()} == {True, False}
    with pytest.raises(
        ValueError, match="index 0 is out of range: this process sees no devices"
    ):
        accelerator.set_device(0)


# Devices


def test_a_guard_that_is_no_class_is_not_used(vendor, backend):
    vendor.device = lambda index: pytest.fail("called")
    accelerator = TorchAccelerator(backend())
    with accelerator.device_guard(1):
        assert vendor.current == 1
    assert vendor.current == 0


def test_one_device_is_selected_without_the_vendors_help(without, vendor):
    accelerator = without("set_device", "device")
    with pytest.raises(UnsupportedError, match="set_device"):
        accelerator.set_device(1)
    vendor.device_count = lambda: 1
    without().set_device(0)


def test_properties_are_the_vendors(simulated, vendor):
    properties = simulated.device_properties(1)
    assert properties.to_dict() == {
        "name": "Simulated 1",
        "total_memory": 1 << 30,
        "capability": (9, 1),
        "uuid": "SIM-1",
        "pci_address": "0000:3c:00.0",
        "multiprocessors": 7,
        "integrated": None,
    }
    assert simulated.device_uuid() == "SIM-0"
    vendor.get_device_properties = lambda device: types.SimpleNamespace(name="Plain")


def test_properties_may_say_little(vendor, without):
    vendor.get_device_properties = lambda device=None: types.SimpleNamespace(
        name="Plain", major=3
    )
    properties = without("mem_get_info").device_properties()
    assert properties.name == "Plain"
    assert properties.total_memory is None
    assert properties.capability is None
    assert properties.uuid is None
    assert properties.pci_address is None
    assert properties.multiprocessors is None
    assert without("get_device_properties").device_properties(1).name == "maia:1"


def test_without_properties_the_name_is_that_of_get_device_name(without, vendor):
    vendor.get_device_name = lambda device=None: f"Maia 100 of slot {device}"
    accelerator = without("get_device_properties")
    assert accelerator.device_properties(1).name == "Maia 100 of slot 1"


def test_availability_counts_devices_and_never_raises(vendor, without):
    broken = raising(OSError("driver"))
    # Vendors' own is_available() may start a driver, which a forked child cannot start again.
    vendor.is_available = broken
    assert without().is_available() is True
    vendor.device_count = broken
    assert without().is_available() is False
    vendor.device_count = lambda: 0
    assert without().is_available() is False


# Random numbers


def test_devices_are_selected(simulated, vendor):
    simulated.set_device(1)
    assert simulated.current_device() == 1
    assert vendor.current == 1
    assert simulated.current_device_name() == "maia:1"
    assert simulated.device(1) == torch.device("maia:1")


def test_a_guard_selects_a_device_for_its_block(simulated, vendor):
    simulated.set_device(1)
    with simulated.device_guard(0) as entered:
        assert vendor.current == 0
        assert entered is None
    assert vendor.current == 1
    with simulated.device_guard(None):
        assert vendor.current == 1


def test_random_states_go_round_by_device(simulated, vendor):
    vendor.init()
    simulated.manual_seed_all(3)
    states = [simulated.get_rng_state(device_index=i) for i in range(2)]
    first = torch.rand(4, generator=vendor.default_generators[1])
    simulated.set_rng_state(states[1], device_index=1)
    assert torch.equal(torch.rand(4, generator=vendor.default_generators[1]), first)
    simulated.set_rng_state(states[0])
    assert torch.equal(simulated.get_rng_state(), states[0])


def test_streams_are_the_vendors(simulated, vendor):
    stream = simulated.Stream()
    with simulated.stream(stream):
        assert simulated.current_stream(0) is stream
        assert simulated.is_current_stream_capturing() is True
    assert simulated.default_stream() is None


def test_generators_are_there_before_the_device_has_started(simulated, vendor):
    assert vendor.default_generators == ()
    first = simulated.default_generator(1)
    assert vendor.started
    assert first is vendor.default_generators[1]
    assert simulated.default_generator(None) is vendor.default_generators[0]
    with pytest.raises(
        InvalidDeviceError,
        match="device index 2 is out of range: this process sees 2 devices",
    ):
        simulated.default_generator(2)
    with pytest.raises(InvalidDeviceError, match="device index -1 is out of range"):
        simulated.default_generator(-1)
    vendor.default_generators = vendor.default_generators[:1]
    with pytest.raises(UnsupportedError, match="torch lists no generator for device 1"):
        simulated.default_generator(1)


def test_a_vendor_that_keeps_generators_elsewhere_is_understood(vendor, without):
    generators = (torch.Generator(),)
    vendor.random = types.SimpleNamespace(default_generators=generators)
    assert without("default_generators").default_generator(0) is generators[0]


def test_without_generators_there_is_a_refusal(without):
    with pytest.raises(UnsupportedError, match="default_generator"):
        without("default_generators", "init").default_generator(0)


def test_random_calls_the_vendor_lacks_follow_from_generators(without, vendor):
    accelerator = without(
        "manual_seed",
        "manual_seed_all",
        "initial_seed",
        "get_rng_state",
        "set_rng_state",
    )
    vendor.init()
    accelerator.manual_seed_all(8)
    accelerator.manual_seed(9)
    assert [g.initial_seed() for g in vendor.default_generators] == [9, 8]
    assert accelerator.initial_seed() == 9
    state = accelerator.get_rng_state(1)
    accelerator.set_rng_state(state, 0)
    assert torch.equal(accelerator.get_rng_state(0), state)


# Streams


def test_no_stream_changes_nothing_whatever_the_vendor_does_with_none(vendor, without):
    vendor.stream = lambda stream: stream.context()
    with without("StreamContext").stream(None):
        assert vendor.running is None


def test_the_current_stream_stands_for_a_missing_default(without, vendor):
    vendor.running = "current"
    assert without("default_stream").default_stream() == "current"


def test_a_vendor_without_streams_has_one_queue(without):
    accelerator = without(
        "Stream", "Event", "stream", "current_stream", "default_stream"
    )
    assert isinstance(accelerator.current_stream(), HostStream)
    with accelerator.stream(accelerator.Stream()):
        assert isinstance(accelerator.current_stream().record_event(), HostEvent)
