"""Running the checks on mutants, all in one process that simulates `acme`."""

import contextlib
import functools
import gc
import inspect
import sys
import warnings
from types import ModuleType
from unittest import mock

import pytest
import torch

import accel_core
from accel_testing.conformance.compute import samples
from accel_testing.conformance.interface import test_sharing
from accel_testing.conformance.suite import AcceleratorTests
from conformance_mutants import kernels
from conformance_mutants.generated import close_what_is_open, generated
from conformance_mutants.members import MUTANTS
from conformance_mutants.records import Mutant

KINDS = [
    kind
    for kind in AcceleratorTests.__bases__
    if kind.__module__.split(".")[-2] in ("interface", "compute")
    and kind.__name__ != "TestSideEffects"
]
#: Seconds each, and about nothing that a mutant breaks but its own.
SLOW = ("compiling.compiles", "compiling.accelerator_calls_break_no_graph", "sharing.fork_after_use",
        "sharing.fork_can_ask", "samples.floats", "samples.whole_numbers", "samples.complex_numbers",
        "samples.strided", "samples.gradients_of_each", "samples.written",
        "samples.several_at_once")  # fmt: skip


#: A forked process that hangs is ended sooner than a vendor's: nothing is slow here.
test_sharing._SECONDS = 4.0

_MODULE = sys.modules.setdefault("mutants", ModuleType("mutants"))


def checks():
    """The checks of an accelerator, by `"answers.identity"`."""
    for kind in KINDS:
        group = kind.__module__.rpartition("test_")[2]
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("test_"):
                yield f"{group}.{name.removeprefix('test_')}", getattr(kind(), name)


def broken(mutant):
    """The accelerator with one member broken."""
    made = accel_core.get_accelerator()
    members = {
        name: member(name) if getattr(member, "needs_name", False) else member
        for name, member in mutant.members.items()
    }
    # As a pickle of a class that is in a module, and not of the process's own accelerator.
    kind = type(
        "Mutant",
        (type(made),),
        {**members, "__module__": _MODULE.__name__, "_by_name": None},
    )
    _MODULE.Mutant = kind
    return kind(made.backend)


def failing(accelerator, names=None, but=()):
    """The checks that fail, and why."""
    whole = accel_core.get_accelerator()
    found = {}
    for name, check in checks():
        if (names is not None and name not in names) or name in but:
            continue
        try:
            check(accelerator)
        except pytest.skip.Exception:
            pass
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        close_what_is_open()
        torch.set_autocast_enabled(
            whole.device_type, False
        )  # which a mutant may leave on
        torch.set_autocast_dtype(
            whole.device_type, torch.float16
        )  # torch's for a type of one's own
        torch.clear_autocast_cache()
        whole.set_device(0)
        whole.set_stream(whole.default_stream())
        whole.synchronize()
    return found


@functools.cache
def _prepare():
    """As for checks that pytest runs: no warnings, and little for the garbage collector to search."""
    warnings.simplefilter("ignore")
    failing(
        accel_core.get_accelerator(), ["answers.compile_backend"]
    )  # brings torch's compilers
    gc.collect()
    gc.freeze()


#: Of those that are made by rule: what these checks must catch, each by an assertion that no chosen one has.
BY_RULE = {
    "answers.compile_backend": ["set_compile_backend: does nothing"],
    "answers.device_names": ["device_name: is the first device's"],
    "answers.memory_amounts_are_bytes": [
        "memory_cached: in other units", "max_memory_allocated: in other units",
    ],
    "selection.every_device_can_be_selected": [
        "set_device: does nothing", "current_device_name: keeps its first answer",
    ],
    "selection.out_of_range_is_refused": ["set_device: does nothing"],
    "selection.guard_restores": ["device_guard: leaves by an error what it has changed"],
    "selection.negative_is_refused": ["set_device: does nothing", "synchronize: does nothing"],
    "selection.another_type_is_refused": ["set_device: does nothing"],
    "selection.members_refuse_what_is_out_of_range": ["synchronize: does nothing"],
    "arithmetic.autocast": ["autocast: does nothing"],
    "randomness.same_seed_same_numbers": ["manual_seed: does nothing"],
    "randomness.seed_is_told": ["initial_seed: in other units"],
    "randomness.all_devices_are_seeded": ["manual_seed_all: does nothing"],
    "randomness.state_restores": ["set_rng_state: does nothing"],
    "randomness.fork_rng_restores": ["fork_rng: does nothing"],
    "queues.stream_is_current_inside": ["stream: leaves by an error what it has changed"],
    "queues.set_stream_stays": ["set_stream: does nothing"],
    "queues.graph_replays_with_new_inputs": [
        "replay_graph: does nothing", "create_graph: forgets its options",
    ],
    "queues.synchronize_waits": ["current_stream: waits", "memory_allocated: waits", "set_device: waits"],
    "amounts.cache_is_given_back": ["empty_cache: selects the first device"],
    "queues.capturing_is_told": ["is_current_stream_capturing: keeps its first answer"],
    "amounts.allocated_grows_and_returns": ["memory_allocated: in other units"],
    "amounts.reserved_holds_what_is_allocated": ["memory_reserved: in other units"],
    "amounts.peaks": [
        "reset_max_memory_allocated: does nothing", "empty_cache: resets the peaks",
        "mem_get_info: resets the peaks", "memory_stats: empties the cache", "set_device: empties the cache",
    ],
    "amounts.totals_start_anew": ["reset_accumulated_memory_stats: is the current device's"],
    "amounts.free_memory_shrinks": ["mem_get_info: keeps its first answer"],
    "guards.threads_are_heard": ["manual_seed: fails in another thread"],
    "arithmetic.scaled_losses": ["grad_scaler: forgets its options"],
    "arithmetic.autocasts_nest": ["autocast: does nothing"],
    "queues.done_is_done": ["Event: synchronize does nothing"],
    "queues.captures_leave_all_as_before": [
        "capture_to_graph: does nothing", "capture_to_graph: forgets its options",
    ],
    "reductions.nan_in_every_reduction": ["amax: NaN is 0"],
    "reductions.duplicates_all_count": ["embedding_dense_backward: gives the right shape, and zeros"],
    "forms.each_gradient": ["gelu_backward: gives the right shape, and zeros"],
    "amounts.fraction_limits": ["set_per_process_memory_fraction: does nothing"],
}  # fmt: skip


def meant_to():
    """By mutant what the check says that is meant for it; and what those say of the whole accelerator."""
    _prepare()
    meant = {name: mutant.meant for name, mutant in MUTANTS.items()}
    tried = [(name, mutant, mutant.meant) for name, mutant in MUTANTS.items()]
    made = generated()
    for check, names in BY_RULE.items():
        tried += [(f"{name} ({check})", made[name], check) for name in names]
    return {
        "meant": meant,
        "mutants": {name: _said(mutant, check) for name, mutant, check in tried},
        "whole": failing(accel_core.get_accelerator(), {check for *_, check in tried}),
    }


def _said(mutant, check):
    with getattr(mutant, "kernel", contextlib.nullcontext)():
        return failing(broken(mutant), [check]).get(check, "")


#: By check of torch's samples a kernel, how it is broken, and an operator of the database that runs it.
BY_SAMPLES = {
    "samples.floats": ("gelu", kernels.ZERO, "nn.functional.gelu"),
    "samples.whole_numbers": ("cumsum", kernels.ZERO, "cumsum"),
    "samples.complex_numbers": ("mul.Tensor", kernels.ZERO, "mul"),
    "samples.strided": ("mm", kernels.STRIDES, "mm"),
    "samples.gradients_of_each": ("sigmoid_backward", kernels.ZERO, "sigmoid"),
    "samples.written": ("exp_", kernels.ROUNDED, "exp"),
    "samples.several_at_once": (
        "_foreach_mul_.Scalar",
        kernels.ROUNDED,
        "_foreach_mul",
    ),
}


def samples_that_catch():
    """By check of torch's samples what it says of the whole device, and of one with that kernel broken."""
    whole, every, found = accel_core.get_accelerator(), samples.operators, {}
    for check, (name, (_, before, after), asked) in BY_SAMPLES.items():
        few = [op for op in every(foreach="_foreach" in asked) if op.name == asked]
        with mock.patch.object(samples, "operators", lambda few=few, **_: few):
            said = failing(whole, [check])
            with kernels._broken(
                kernels._overload(name), before, after, first_alone=False
            ):
                found[check] = (
                    said.get(check, ""),
                    failing(whole, [check]).get(check, ""),
                )
    assert not torch.backends.flags_frozen()  # as torch's own tests leave it
    return found


def all_of_them(only=None):
    """By mutant what fails."""
    _prepare()
    found = {}
    for name, mutant in MUTANTS.items():
        if only is None or name in only:
            but = [slow for slow in SLOW if slow != mutant.meant]
            try:
                found[name] = failing(broken(mutant), but=but)
            except Exception as error:
                found[name] = {"making it": f"{type(error).__name__}: {error}"}
    return found


#: A kernel of ours in Python copies to the host, which no capture permits.
_CAPTURE = ("queues.graph_replays_with_new_inputs", "queues.capturing_is_told")


def of_generated():
    """Every generated accelerator, and what fails with it; what spoils the process comes last."""
    _prepare()
    for name, mutant in sorted(
        generated().items(), key=lambda item: item[1].kind.startswith("leaves")
    ):
        yield name, _failing(mutant)


def _failing(mutant):
    but = [*SLOW, *(() if mutant.members else _CAPTURE)]
    try:
        with mutant.kernel():
            return failing(broken(Mutant("", mutant.members)), but=but)
    except Exception as error:
        return {"making it": f"{type(error).__name__}: {error}"}
