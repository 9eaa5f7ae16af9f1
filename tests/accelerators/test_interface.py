"""What every accelerator gets from the base class: identity, and defaults built on a few primitives."""

import os
import pickle
import re
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch

from accel_core import (
    Accelerator,
    Capabilities,
    Provenance,
    UnsupportedError,
)
from accel_core.backend import Environment
from accel_core.interface.cpu import CPUAccelerator
from accel_core.interface.devices import Base
from accel_core.interface.records import read_properties
from accel_core.interface.streams import HostStream


class Small(Accelerator):
    """A device of its own kind with three units: as little as a plugin may write."""

    def __init__(self, backend):
        super().__init__(backend)
        self.selected = 0
        self.waited = 0
        self.generators = [torch.Generator() for _ in range(3)]

    def device_count(self):
        return 3

    def current_device(self):
        return self.selected

    def _select(self, index):
        self.selected = index

    def synchronize(self, device_index=None):
        self.waited += 1

    def default_generator(self, device_index):
        return self.generators[self.selected if device_index is None else device_index]

    def memory_allocated(self, device_index=None):
        return 10

    def total_memory(self, device_index=None):
        return 100


@pytest.fixture
def small(backend):
    return Small(backend())


@pytest.fixture
def bare(backend):
    return Accelerator(backend())


# Identity


def test_an_accelerator_tells_what_it_is(backend):
    declared = backend(provenance=Provenance("accel-simulated", "1.2"))
    accelerator = Small(declared)
    assert repr(accelerator) == "<Small 'simulated' (accel-simulated 1.2)>"
    assert repr(Small(backend())) == "<Small 'simulated'>"
    assert accelerator.backend is declared
    assert accelerator.name == "simulated"
    assert (
        accelerator._name
        == accelerator.device_name()
        == declared.device_type
        != "simulated"
    )


def test_a_pickle_of_one_made_by_hand_holds_its_declaration(backend):
    """No process knows it by its name."""
    declared = backend(provenance=Provenance("accel-simulated", "1.2"))
    again = pickle.loads(pickle.dumps(Small(declared)))
    assert type(again) is Small
    assert again.name == "simulated"
    assert again.backend == declared


def test_every_yes_or_no_is_in_one_record(cpu):
    found = cpu.capabilities()
    assert isinstance(found, Capabilities)
    assert {type(value) for value in found.to_dict().values()} == {bool}
    with pytest.raises(AttributeError):
        found.is_available = False


# Devices


def test_a_device_that_can_be_counted_is_available(small):
    assert small.is_available() is True
    assert small.is_initialized() is True


def test_names_are_made_of_the_device_type_and_the_index(small):
    small.set_device(2)
    assert small.current_device() == 2
    assert small.current_device_name() == "maia:2"
    assert small.device_name() == "maia"
    assert small.device() == torch.device("maia")
    assert small.device(1) == torch.device("maia", 1)


def test_after_a_guard_the_device_is_the_one_before(small):
    small.set_device(2)
    for guarded in (1, 2):
        with small.device_guard(guarded):
            assert small.current_device() == guarded
            small.set_device(0)
        assert small.current_device() == 2


def test_a_device_without_an_index_leaves_the_current_one(small):
    small.set_device(torch.device("maia", 1))
    small.set_device(torch.device("maia"))
    assert small.current_device() == 1


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_out_of_range_is_a_value_error(small, index):
    for call in (
        small.set_device,
        small.device_guard,
        small.device_properties,
        small.get_rng_state,
    ):
        with pytest.raises(
            ValueError,
            match=rf"simulated: device index {index} is out of range: this process sees 3 devices",
        ):
            call(index)


def test_one_device_needs_no_selecting(backend):
    class One(Accelerator):
        def device_count(self):
            return 1

    One(backend()).set_device(0)
    with pytest.raises(ValueError, match="this process sees 1 device"):
        One(backend()).set_device(1)


def test_properties_leave_out_what_nobody_knows(small, backend):
    untold = dict.fromkeys(
        ("capability", "uuid", "pci_address", "multiprocessors", "integrated")
    )
    assert small.device_properties(1).to_dict() == {
        "name": "maia:1",
        "total_memory": 100,
        **untold,
    }

    class Unknown(Small):
        def total_memory(self, device_index=None):
            return Accelerator.total_memory(self, device_index)

    assert Unknown(backend()).device_properties().total_memory is None


@pytest.mark.parametrize(
    ("member", "arguments"),
    [
        ("current_device", ()),
        ("current_device_name", ()),
        ("device_count", ()),
        ("synchronize", ()),
        ("default_generator", (0,)),
        ("initial_seed", ()),
        ("get_rng_state", ()),
        ("memory_allocated", ()),
        ("memory_reserved", (0,)),
        ("max_memory_allocated", ()),
        ("max_memory_cached", ()),
        ("reset_max_memory_allocated", ()),
        ("total_memory", ()),
        ("available_memory", ()),
        ("set_per_process_memory_fraction", (0.5, 0)),
    ],
)
def test_a_member_that_would_have_to_lie_is_refused(bare, member, arguments):
    with pytest.raises(
        UnsupportedError, match=r"^simulated: \w+ is not supported by torch 2\."
    ) as caught:
        getattr(bare, member)(*arguments)
    assert isinstance(caught.value, NotImplementedError)


def test_a_device_that_cannot_count_is_not_available(bare):
    assert bare.is_available() is False


def test_several_devices_need_a_way_to_select(backend):
    class Two(Accelerator):
        def device_count(self):
            return 2

    with pytest.raises(UnsupportedError, match="set_device"):
        Two(backend()).set_device(1)


def test_a_refusal_names_the_vendor_and_its_version(backend):
    origin = Provenance("accel-simulated", "1.2")
    installed = Accelerator(
        backend(vendor_import=("no_such_vendor", "pytest.nothing"), provenance=origin)
    )
    expected = rf"^simulated \(accel-simulated 1.2\): total_memory .* pytest {metadata.version('pytest')}$"
    with pytest.raises(UnsupportedError, match=expected):
        installed.total_memory()
    with pytest.raises(
        UnsupportedError,
        match=rf"total_memory .* torch {re.escape(torch.__version__)}$",
    ):
        Accelerator(backend(vendor_import="no_such_vendor")).total_memory()


# Random numbers


def test_one_generator_a_device_gives_all_the_random_calls(small):
    small.manual_seed_all(5)
    assert [g.initial_seed() for g in small.generators] == [5, 5, 5]
    small.set_device(1)
    small.manual_seed(6)
    assert small.initial_seed() == 6
    assert small.initial_seed(0) == 5
    assert small.generators[0].initial_seed() == 5
    state = small.get_rng_state()
    states = [generator.get_state() for generator in small.generators]
    restored = small.get_rng_state_all()
    assert len(restored) == 3
    assert all(map(torch.equal, restored, states))
    first = torch.rand(4, generator=small.generators[1])
    small.set_rng_state(state)
    assert torch.equal(torch.rand(4, generator=small.generators[1]), first)


# Streams


def test_a_device_without_streams_has_one_queue(small):
    stream = small.Stream(device=0, priority=1)
    assert isinstance(small.current_stream(), small.Stream)
    assert small.current_stream() is small.default_stream(1)
    with small.stream(stream), small.stream(None):
        stream.wait_stream(small.current_stream())
    assert small.waited == 0
    stream.synchronize()
    assert stream.query() is True
    assert small.waited == 2


def test_an_event_of_the_hosts_clock_waits_for_the_device(small, monkeypatch):
    nanoseconds = iter((1_000_000, 3_500_000))
    clock = SimpleNamespace(perf_counter_ns=lambda: next(nanoseconds))
    monkeypatch.setattr("accel_core.interface.streams.time", clock)
    start = small.current_stream().record_event(small.Event(enable_timing=True))
    end = small.Event(enable_timing=True)
    end.record()
    assert small.waited == 2
    assert start.elapsed_time(end) == 2.5
    assert small.Stream is small.Stream
    assert small.Event is small.Event


# Memory


def test_what_is_not_reserved_counts_as_free(small):
    assert small.mem_get_info() == (90, 100)
    assert small.available_memory(1) == 90
    assert small.memory_cached() == 10
    assert small.memory_reserved() == 10


def test_statistics_leave_out_what_the_device_cannot_tell(small):
    assert small.memory_stats() == {
        "allocated_bytes.all.current": 10,
        "reserved_bytes.all.current": 10,
    }


# Data types


def test_no_data_type_is_claimed_unasked(bare):
    assert bare.supported_dtypes() == [torch.float32]


def test_float64_is_refused_where_there_is_none(backend):
    class NoDouble(Accelerator):
        def is_fp64_supported(self):
            return False

    kind = NoDouble(backend()).DoubleTensor
    with pytest.raises(
        UnsupportedError, match=r"DoubleTensor .* the device has no float64"
    ):
        kind([1.0])


# Launching


def test_the_declaration_says_what_a_launcher_needs(small, backend):
    assert small.communication_backend_name() == "simccl"
    assert small.export_envs() == ["SIM", "LD_LIBRARY"]
    small.export_envs().append("changed")
    assert small.export_envs() == ["SIM", "LD_LIBRARY"]
    left_open = backend(communication_backend="")
    assert Accelerator(left_open).communication_backend_name() == "staged"
    assert (
        Accelerator(
            backend(communication_backend="", device_type="cuda")
        ).communication_backend_name()
        == "nccl"
    )


def test_visible_ids_are_read_as_the_vendor_does(small, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert small.visible_device_ids() is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert small.visible_device_ids() == (7,)
    monkeypatch.setenv("SIM_VISIBLE_DEVICES", "2,0")
    assert small.visible_device_ids() == (2, 0)
    assert small.visible_devices_envs() == [
        "SIM_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
    ]


def test_no_member_has_two_homes():
    """In an order of sections that nobody has to know, none may hide another's member."""
    homes = {}
    for section in [Base, *Accelerator.__bases__]:
        for name in vars(section):
            if not (name.startswith("__") and name.endswith("__")):
                homes.setdefault(name, []).append(section.__name__)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
    assert len(homes) > 100


def test_one_whole_number_is_refused_with_what_to_write(cpu):
    with pytest.raises(TypeError, match=r"cpu\.FloatTensor\(5\) could mean") as caught:
        cpu.FloatTensor(5)
    assert "FloatTensor([5])" in str(caught.value)
    assert "torch.empty(5, dtype=torch.float32, device='cpu')" in str(caught.value)
    assert cpu.FloatTensor(5.0).item() == 5.0
    assert cpu.ByteTensor(True).item() == 1
    assert cpu.LongTensor(data=[1, 2]).tolist() == [1, 2]


def test_a_type_that_the_device_lacks_can_be_asked_for_but_not_made(cpu, monkeypatch):
    monkeypatch.setattr(cpu, "is_fp64_supported", lambda: False)
    assert not isinstance(torch.ones(1), cpu.DoubleTensor)
    for data in ((), (2, 3), ([1.0],)):
        with pytest.raises(UnsupportedError, match="the device has no float64"):
            cpu.DoubleTensor(*data)


def test_vendor_defaults_are_set_when_asked_for_and_the_users_values_stay(
    backend, monkeypatch
):
    monkeypatch.setenv("SIM_KEPT", "mine")
    monkeypatch.setenv("SIM_NEW", "")
    monkeypatch.delenv("SIM_NEW")  # so that it goes again when the test ends
    accelerator = CPUAccelerator(
        backend(
            device_type="cpu",
            environment=Environment(defaults=("SIM_KEPT=1", "SIM_NEW=a=b")),
        )
    )
    assert "SIM_NEW" not in os.environ
    assert accelerator.apply_vendor_defaults() == ("SIM_NEW=a=b",)
    assert accelerator.apply_vendor_defaults() == ()
    assert os.environ["SIM_KEPT"] == "mine"
    assert os.environ["SIM_NEW"] == "a=b"


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
