"""A vendor's real plugin: what is known of its device, and where it answers otherwise than most devices."""

import inspect
import sys
from contextlib import ExitStack
from unittest import mock

import torch
from accel_tests.bench_effort import TINY
from accel_tests.tools import raising

import accel_core
from accel_core import UnsupportedError
from accel_tools.commands import bench, info
from simulated_checks.known import KNOWN

_NO_FLOAT64 = (False, "the device has no float64")
_ONE_QUEUE = (
    True,
    "one queue: nothing waits for another stream, and the host's clock tells as much as an event",
)
#: What a plugin answers where the check of all devices does not hold, each with its reason.
DIFFERENCES = {
    "npu": {"supports_nvtx_domain": (True, "mstx keeps domains apart"), "is_fp64_supported": _NO_FLOAT64},
    "hpu": {
        "resolves_data_dependency": (True, "Gaudi's compiler orders dependent work"),
        "handles_memory_backpressure": (True, "an allocation waits for memory that running work gives back"),
        "set_per_process_memory_fraction": (UnsupportedError, "the bridge has no such function"),
    },
    "sdaa": {
        "set_per_process_memory_fraction": (UnsupportedError, "nobody was seen to use one of torch_sdaa's"),
        "get_compile_backend": (
            "inductor", "TecoPyTorch registers its compiler in a package that is not simulated",
        ),
    },
    "supa": {"is_fp64_supported": _NO_FLOAT64},
    "neuron": {
        "is_fp64_supported": _NO_FLOAT64,
        "set_per_process_memory_fraction": (UnsupportedError, "nobody was seen to use one of TorchNeuron's"),
    },
    "klxpu": {"use_host_timers": (True, "its events measure nothing unless a variable is set")},
    "mps": {
        "is_fp64_supported": _NO_FLOAT64,
        "supports_graphs": (False, "Metal has no graphs: the work simply runs, once"),
        **dict.fromkeys(
            ("is_synchronized_device", "use_host_timers", "resolves_data_dependency",
             "handles_memory_backpressure"),
            _ONE_QUEUE,
        ),
    },
}  # fmt: skip


def _given(a, member):
    """What it answers, or `UnsupportedError` where it refuses."""
    value = getattr(a, member)
    try:
        return (
            value(*([0.5] if "fraction" in member else []))
            if callable(value)
            else value
        )
    except UnsupportedError:
        return UnsupportedError


def of_plugin(pin):
    """By member the problem, and where the plugin came from."""
    accelerator = accel_core.accelerator(pin)
    provenance = accelerator.backend.provenance
    usual, differences = KNOWN.run(accelerator), DIFFERENCES.get(pin, {})
    own = {}
    for member, (expected, _) in differences.items():
        given = _given(accelerator, member)
        own[member] = (
            ""
            if (type(given), given) == (type(expected), expected)
            else f"gave {given!r}"
        )
        if not usual[member]:
            own[member] = f"does as all devices do: take it out of DIFFERENCES[{pin!r}]"
    return {
        "distribution": [provenance.distribution, provenance.version],
        "file": sys.modules[type(accelerator).__module__].__file__,
        "problems": {**usual, **own},
    }


#: Members that answer a question of another name than theirs.
ALSO = {
    **{
        key: {"available_memory", "mem_get_info"}
        for key in ("mem_get_info", "get_memory_info")
    },
    "get_rng_state": {
        "fork_rng",
        "get_rng_state",
        "get_rng_state_all",
        "set_rng_state",
    },
    "memory_reserved": {"memory_cached", "memory_reserved"},
    "max_memory_reserved": {"max_memory_cached", "max_memory_reserved"},
}
#: All amounts of torch's own module come from it.
ALSO["memory_stats"] = {
    "memory_allocated", "max_memory_allocated", *ALSO["memory_reserved"], *ALSO["max_memory_reserved"],
}  # fmt: skip
#: What torch itself asks a device for, so that nothing works without an answer.
BASICS = ("is_available", "is_initialized", "get_amp_supported_dtype")
REFUSED = ": the driver rejects this query (the driver says no)"
REFUSE = raising(RuntimeError("the driver says no"))


def _asked(a):
    """What each member that takes no argument raises, and what `accel info` cannot tell."""
    given = {
        "set_rng_state": (torch.get_rng_state(),),
        "fork_rng": (),
        "default_generator": (0,),
    }
    failed = {}
    for name, member in inspect.getmembers(type(a), inspect.isfunction):
        needed = [
            p
            for p in inspect.signature(member).parameters.values()
            if p.default is p.empty
        ][1:]
        if name.startswith("_") or (needed and name not in given):
            continue
        try:
            answer = getattr(a, name)(*given.get(name, ()))
            with answer if name == "fork_rng" else ExitStack():
                pass
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    return (
        failed
        | info.document_in_child(info.Chosen(a, None, ()), {"skipped": {}}, len)[
            "problems"
        ]
    )


def of_refusals(pin):
    """Which members raise, which of them wrongly, and what `accel bench` lacks if all is refused."""
    accelerator = accel_core.accelerator(pin)
    usual, modules = _asked(accelerator), (accelerator.device_module, torch.accelerator)
    asked = (
        "get_",
        "is_",
        "mem_get",
        "memory_",
        "max_memory_",
        "initial_",
        "utilization",
        "temperature",
    )
    names = {
        n
        for m in modules
        for n, f in vars(m).items()
        if n.startswith(asked) and inspect.isroutine(f)
    }

    def made(stack, questions):
        for module, name in (
            (m, q) for q in questions for m in modules if hasattr(m, q)
        ):
            stack.enter_context(mock.patch.object(module, name, REFUSE))
        return type(accelerator)._from_backend(accelerator.backend)

    answers, wrong = set(), {}
    for name in sorted(names.difference(BASICS)):
        with ExitStack() as stack:
            again = _asked(made(stack, [name]))
        for member in (
            member for member in again if usual.get(member) != again[member]
        ):
            answers.add(member)
            told = again[member].startswith("UnsupportedError: ") and again[
                member
            ].endswith(REFUSED)
            if member not in ALSO.get(name, {name}) or not told:
                wrong[f"{member} without {name}"] = again[member]
    with ExitStack() as stack:
        chosen = info.Chosen(made(stack, names.difference(BASICS)), None, ())
        measured = bench.measure_in_child(
            chosen, {"effort": TINY, "quick": True, "ranks": 1}, len
        )
    unmeasured = [
        row["name"] for row in measured["measurements"] if row["value"] is None
    ]
    return sorted(answers), wrong, unmeasured
