"""The built-in CPU accelerator, and a simulated vendor: a small `torch.<device>` module of our own.

The simulated module takes `torch.maia`, a device type that torch parses and ships no module for. Nothing
computes on it; what is real in these tests is everything between a call and the vendor's function.
"""

import importlib
import types
from pathlib import Path

import pytest
import torch

from accel_core import (
    Accelerator,
    Backend,
    Environment,
    TorchAccelerator,
    Visibility,
)
from accel_core.builtin import CPU
from accel_core.interface.cpu import CPUAccelerator
from accel_core.interface.torch_device import GenericAccelerator

SIMULATED = "maia"


@pytest.fixture
def cpu():
    return CPUAccelerator(CPU)


@pytest.fixture
def classes():
    """The classes of accel-core, and those of every plugin."""
    found = [Accelerator, CPUAccelerator, TorchAccelerator, GenericAccelerator]
    plugins = Path(__file__).parents[2] / "plugins"
    for path in sorted(plugins.glob("accel_*/src/*/accelerator.py")):
        module = importlib.import_module(f"{path.parent.name}.accelerator")
        found += [getattr(module, name) for name in module.__all__]
    return found


def declare(**fields):
    visible = Visibility(("SIM_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))
    given = {
        "name": "simulated",
        "priority": 1,
        "device_type": SIMULATED,
        "communication_backend": "simccl",
    }
    forwarded = Environment(("SIM", "LD_LIBRARY"))
    return Backend(
        **{**given, "visibility": visible, "environment": forwarded, **fields}
    )


@pytest.fixture
def backend():
    return declare


class Graph:
    replays = 0

    def replay(self):
        self.replays += 1


class Stream:
    def __init__(self, device=None, priority=0):
        self.device = device


class Event:
    def __init__(self, enable_timing=False):
        self.enable_timing = enable_timing


def simulated_module(devices=2):
    """A vendor's module in the usual shape: lazy start, two devices, parameters called `device`."""
    vendor = types.ModuleType(f"torch.{SIMULATED}")
    vendor.started, vendor.current, vendor.asked = False, 0, []
    vendor.default_generators, vendor.running = (), None

    def init():
        vendor.started = True
        vendor.default_generators = tuple(torch.Generator() for _ in range(devices))

    def place(device):
        if not vendor.started:
            init()
        return vendor.current if device in (None, SIMULATED) else int(device)

    def noting(name, answer):
        def ask(device=None):
            vendor.asked.append((name, place(device)))
            return answer

        return ask

    def set_device(device):
        vendor.current = device

    class Guard:
        what = "current"

        def __init__(self, value):
            self.value = value

        def __enter__(self):
            self.before = getattr(vendor, self.what)
            setattr(vendor, self.what, self.value)

        def __exit__(self, *_):
            setattr(vendor, self.what, self.before)

    class Running(Guard):
        what = "running"

    def get_device_properties(device):  # the device is needed, as at Cambricon
        return types.SimpleNamespace(
            name=f"Simulated {place(device)}", total_memory=1 << 30, major=9, minor=1, uuid=f"SIM-{device}",
            pci_domain_id=0, pci_bus_id=0x3B + device, pci_device_id=0, multi_processor_count=7,
        )  # fmt: skip

    vendor.init = init
    vendor.is_available = lambda: devices > 0
    vendor.is_initialized = lambda: vendor.started
    vendor.device_count = lambda: devices
    vendor.current_device = lambda: vendor.current
    vendor.set_device = set_device
    vendor.device = Guard
    vendor.get_device_properties = get_device_properties
    vendor.manual_seed = lambda seed: vendor.default_generators[
        place(None)
    ].manual_seed(seed)
    vendor.manual_seed_all = lambda seed: [
        g.manual_seed(seed) for g in vendor.default_generators
    ]
    vendor.initial_seed = lambda: vendor.default_generators[place(None)].initial_seed()
    vendor.get_rng_state = lambda device=SIMULATED: vendor.default_generators[
        place(device)
    ].get_state()
    vendor.set_rng_state = lambda new_state, device=SIMULATED: (
        vendor.default_generators[place(device)].set_state(new_state)
    )
    vendor.StreamContext = Running
    vendor.Stream, vendor.Event, vendor.stream = (
        Stream,
        Event,
        lambda stream: Running(stream),
    )
    vendor.current_stream = lambda device=None: vendor.running
    vendor.default_stream = lambda device=None: None
    vendor.empty_cache = lambda: vendor.asked.append(("empty_cache", None))
    counted = {
        "memory_allocated": 100,
        "max_memory_allocated": 300,
        "memory_reserved": 200,
    }
    counted |= {
        "max_memory_reserved": 400,
        "mem_get_info": (700, 1 << 30),
        "reset_peak_memory_stats": None,
    }
    counted |= {
        "memory_stats": {"allocated_bytes.all.current": 100, "sim.pages": 3},
        "synchronize": None,
    }
    vars(vendor).update(
        {name: noting(name, answer) for name, answer in counted.items()}
    )
    vendor.set_per_process_memory_fraction = lambda fraction, device=None: (
        vendor.asked.append((fraction, device))
    )
    vendor.is_bf16_supported = lambda including_emulation=True: including_emulation
    vendor._lazy_call = lambda cb: vendor.asked.append(("lazy", cb))
    vendor.MAIAGraph = Graph
    vendor.graph = lambda maia_graph, stream=None, mode="", pool=None: Running(
        (maia_graph, stream, mode, pool)
    )
    vendor.is_current_stream_capturing = lambda: vendor.running is not None
    # Deprecated at the vendor: calling one would fail the test.
    vendor.memory_cached = vendor.max_memory_cached = (
        vendor.reset_max_memory_allocated
    ) = None
    return vendor


@pytest.fixture
def vendor(monkeypatch):
    module = simulated_module()
    monkeypatch.setattr(torch, SIMULATED, module, raising=False)
    return module


@pytest.fixture
def simulated(vendor):
    return TorchAccelerator(declare())


@pytest.fixture
def without(vendor):
    """Builds the simulated accelerator after the vendor has lost those names."""

    def build(*names, kind=TorchAccelerator):
        for name in names:
            delattr(vendor, name)
        return kind(declare())

    return build
