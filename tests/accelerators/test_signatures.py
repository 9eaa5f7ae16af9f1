"""Every call that torch documents is a call of ours: signatures against the torch that is installed.

What DeepSpeed's interface accepts is held in `test_deepspeed_calls.py`.
"""

import inspect
import json
from operator import attrgetter
from pathlib import Path
from types import MethodType

import pytest
import torch

from accel_core import Accelerator, TorchAccelerator

ROOT = Path(__file__).parents[2]
KIND = inspect.Parameter
POSITIONAL = (KIND.POSITIONAL_ONLY, KIND.POSITIONAL_OR_KEYWORD)
NAMED = (KIND.POSITIONAL_OR_KEYWORD, KIND.KEYWORD_ONLY)
PUBLIC = [name for name in dir(Accelerator) if not name.startswith("_")]


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
