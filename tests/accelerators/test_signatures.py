"""Every call that torch documents is a call of ours: signatures against the torch that is installed.

What DeepSpeed's interface accepts is held in `test_device_arguments.py`.
"""

import inspect
import json
from operator import attrgetter
from pathlib import Path
from types import MethodType

import pytest
import torch

from accel_core import Accelerator, TorchAccelerator, UnsupportedError

ROOT = Path(__file__).parents[2]
KIND = inspect.Parameter
POSITIONAL = (KIND.POSITIONAL_ONLY, KIND.POSITIONAL_OR_KEYWORD)
NAMED = (KIND.POSITIONAL_OR_KEYWORD, KIND.KEYWORD_ONLY)
PUBLIC = [name for name in dir(Accelerator) if not name.startswith("_")]

# ---------------------------------------------------------------------------- torch's signatures

#: Functions of torch that a member replaces under another name (docs/howto/from-torch-cuda.md).
RENAMED = {
    "autocast": "torch.autocast",
    "capture_to_graph": "torch.cuda.graph",
    "create_graph": "torch.cuda.CUDAGraph",
    "device_guard": "torch.cuda.device",
    "device_properties": "torch.cuda.get_device_properties",
    "fork_rng": "torch.random.fork_rng",
    "grad_scaler": "torch.amp.GradScaler",
    "range": "torch.cuda.nvtx.range",
    "range_pop": "torch.cuda.nvtx.range_pop",
    "range_push": "torch.cuda.nvtx.range_push",
}
OF_GRAPH = "a method of torch.accelerator.Graph; the class itself is create_graph"
TENSOR_TYPE = "torch's type is written in C and has no signature"
#: What a member does not take, with the reason: a parameter of torch's function, or "" for all of it.
NOT_TAKEN = {
    ("autocast", "torch.autocast", "device_type"): "it is the accelerator's",
    ("device", "torch.accelerator.current_accelerator", ""): (
        "get_accelerator() chooses one that is available"
    ),
    ("fork_rng", "torch.random.fork_rng", "device_type"): "it is the accelerator's",
    ("fork_rng", "torch.random.fork_rng", "_caller"): "torch's own",
    ("fork_rng", "torch.random.fork_rng", "_devices_kw"): "torch's own",
    ("random", "torch.cuda.random", ""): "a module, which random() returns",
    ("range", "torch.cuda.nvtx.range", "args"): "the caller formats the text",
    ("range", "torch.cuda.nvtx.range", "kwargs"): "the caller formats the text",
    ("Stream", "torch.cuda.Stream", "kwargs"): "the vendor's handles of a stream",
    **{
        (member, "torch.accelerator.Graph", ""): OF_GRAPH
        for member in (
            "capture_to_graph", "debug_dump_graph", "enable_graph_debug_mode", "instantiate_graph",
            "replay_graph", "reset_graph",
        )
    },
    **{
        (name, f"torch.cuda.{name}", ""): TENSOR_TYPE
        for name in PUBLIC
        if name.endswith("Tensor")
    },
}  # fmt: skip


def counterparts():
    """Give each member with the functions of torch that do the same."""
    facts = json.loads((ROOT / "tools/torch_accelerator.json").read_text("utf-8"))
    for name in PUBLIC:
        if hasattr(torch.cuda, name):
            yield name, f"torch.cuda.{name}"
        if name in RENAMED:
            yield name, RENAMED[name]
        if name in facts["members"]:
            yield name, f"torch.accelerator.{facts['members'][name]}"


def of_torch(path):
    return attrgetter(path.removeprefix("torch."))(torch)


def is_installed(path):
    """Whether this torch has it: the facts tell of the next torch too."""
    try:
        of_torch(path)
    except AttributeError:
        return False
    return True


COUNTERPARTS = [pair for pair in counterparts() if is_installed(pair[1])]
COMPARED = [pair for pair in COUNTERPARTS if (*pair, "") not in NOT_TAKEN]


def parameters(function):
    return list(inspect.signature(function).parameters.values())


def not_accepted(ours, theirs):
    """Give the parameters of torch's function that our function does not take, by name or in their place."""
    yield from names_not_taken(ours, theirs)
    yield from places_not_taken(ours, theirs)


def names_not_taken(ours, theirs):
    names = {parameter.name for parameter in ours if parameter.kind in NAMED}
    if any(parameter.kind is KIND.VAR_KEYWORD for parameter in ours):
        return
    for parameter in theirs:
        if parameter.kind is not KIND.POSITIONAL_ONLY and parameter.name not in names:
            yield parameter.name


def places_not_taken(ours, theirs):
    places = [parameter for parameter in ours if parameter.kind in POSITIONAL]
    if any(parameter.kind is KIND.VAR_POSITIONAL for parameter in ours):
        return
    for place, parameter in enumerate(theirs):
        if parameter.kind not in POSITIONAL:
            continue
        # torch has both names for a device.
        names = {parameter.name}
        if names & {"device", "device_index"}:
            names = {"device", "device_index"}
        if place >= len(places) or places[place].name not in names:
            yield f"{parameter.name} in place {place}"
            continue
        is_optional = parameter.default is not KIND.empty
        if is_optional and places[place].default is KIND.empty:
            yield f"{parameter.name} has no default"


def faults(owner, member, path):
    """Give what `owner`, a class or an accelerator, does not take of torch's function."""
    function = getattr(owner, member)
    if isinstance(owner, type):
        function = MethodType(function, owner)
    ours = parameters(function)
    compare = names_not_taken if member in RENAMED else not_accepted
    return set(compare(ours, parameters(of_torch(path))))


def unexpected(owners, member, path):
    found = {}
    for owner in owners:
        known = {fault for (*pair, fault) in NOT_TAKEN if pair == [member, path]}
        if left := faults(owner, member, path) - known:
            found[str(owner)] = left
    return found


@pytest.fixture
def accelerators(cpu, simulated, backend):
    """Accelerators in which functions of torch's and of vendors' stand in the class's place."""
    kinds = ("cuda", "xpu", "mps")
    vendors = [TorchAccelerator(backend(name=kind, device_type=kind)) for kind in kinds]
    return [cpu, simulated, *vendors]


def test_the_table_is_generated_from_torch():
    assert len(COUNTERPARTS) > 70
    assert ("synchronize", "torch.cuda.synchronize") in COMPARED
    assert ("synchronize", "torch.accelerator.synchronize") in COMPARED


@pytest.mark.parametrize(
    ("member", "path"),
    [pair for pair in COMPARED if inspect.isfunction(getattr(Accelerator, pair[0]))],
)
def test_every_class_takes_what_torchs_function_takes(member, path, classes):
    assert unexpected(classes, member, path) == {}


@pytest.mark.parametrize(("member", "path"), COMPARED)
def test_every_accelerator_takes_what_torchs_function_takes(member, path, accelerators):
    assert unexpected(accelerators, member, path) == {}


@pytest.mark.parametrize("exception", NOT_TAKEN, ids=str)
def test_every_exception_is_needed(exception, accelerators):
    member, path, fault = exception
    assert (member, path) in COUNTERPARTS
    if fault:
        found = [faults(accelerator, member, path) for accelerator in accelerators]
        assert fault in set.union(*found)


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        (lambda device_index=None, device=None: None, []),
        (lambda device_index=None: None, ["device"]),
        (lambda *, device=None: None, ["device in place 0"]),
        (lambda device: None, ["device has no default"]),
    ],
)
def test_a_narrower_signature_is_noticed(ours, found):
    theirs = parameters(torch.cuda.synchronize)
    assert list(not_accepted(parameters(ours), theirs)) == found


# ---------------------------------------------------------------------------- overrides
# Classes written for DeepSpeed's interface know no `device`.


class Own(Accelerator):
    def device_count(self):
        return 3

    def synchronize(self, device_index=None):
        return device_index

    def set_rng_state(self, new_state, device_index=None):
        return new_state, device_index

    def is_bf16_supported(self):
        return True

    def is_bf16_native(self):
        return False


class Mixin:
    def memory_allocated(self, device_index):
        return device_index


class Mixed(Mixin, Accelerator):
    pass


def test_an_override_takes_torchs_keyword_and_gets_an_index(backend):
    own = Own(backend())
    assert own.synchronize() is None
    for device in (2, "2", "maia:2", torch.device("maia", 2)):
        assert own.synchronize(device=device) == 2
        assert own.set_rng_state("state", device=device) == ("state", 2)
    assert own.set_rng_state("state", 1) == ("state", 1)
    assert own.set_rng_state("state", device_index=1, device="maia:1") == ("state", 1)
    assert own.is_bf16_supported(including_emulation=True) is True
    assert own.is_bf16_supported(including_emulation=False) is False


def test_an_override_of_a_base_outside_the_interface_takes_it_too(backend):
    assert Mixed(backend()).memory_allocated(device=1) == 1


def test_an_override_that_takes_it_is_left_alone(backend):
    def synchronize(self, device_index=None, device=None): ...

    kind = type("Whole", (Own,), {"synchronize": synchronize})
    assert vars(kind)["synchronize"] is synchronize


@pytest.mark.parametrize(
    "synchronize",
    [
        lambda self, device_index=None, **options: options,
        lambda self, *args: args,
        lambda self, device_index=None, *, timeout=1: timeout,
    ],
)
def test_an_override_of_another_shape_is_left_alone(synchronize):
    kind = type("Other", (Accelerator,), {"synchronize": synchronize})
    assert vars(kind)["synchronize"] is synchronize


# ---------------------------------------------------------------------------- errors
# An unexpected keyword is told by the member's name, not by that of the function behind it.


@pytest.mark.parametrize(
    "member",
    [
        "synchronize", "memory_allocated", "mem_get_info", "memory_summary", "get_rng_state", "set_rng_state",
        "current_stream", "set_device", "is_bf16_supported", "autocast",
    ],
)  # fmt: skip
def test_an_unexpected_keyword_names_the_member(member, cpu, simulated, backend):
    arguments = {"new_state": None} if member == "set_rng_state" else {}
    for accelerator in (cpu, simulated, Own(backend())):
        with pytest.raises(
            TypeError,
            match=rf"^get_accelerator\(\)\.{member}\(\) got an unexpected keyword argument 'devcie'",
        ):
            getattr(accelerator, member)(**arguments, devcie=1)


# ---------------------------------------------------------------------------- events


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
