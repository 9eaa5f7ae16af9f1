"""Running the checks on mutants, all in one process that simulates `acme`."""

import contextlib
import functools
import gc
import inspect
import sys
import warnings
from types import ModuleType

import pytest
import torch

import accel_core
from accel_testing.conformance.compute.test_amounts import TestAmounts
from accel_testing.conformance.compute.test_arithmetic import TestArithmetic
from accel_testing.conformance.compute.test_compiling import TestCompiling
from accel_testing.conformance.compute.test_forms import TestForms
from accel_testing.conformance.compute.test_numbers import TestNumbers
from accel_testing.conformance.compute.test_queues import TestQueues
from accel_testing.conformance.compute.test_randomness import TestRandomness
from accel_testing.conformance.compute.test_reductions import TestReductions
from accel_testing.conformance.interface import test_sharing
from accel_testing.conformance.interface.test_answers import TestAnswers
from accel_testing.conformance.interface.test_guards import TestGuards
from accel_testing.conformance.interface.test_selection import TestSelection
from accel_testing.conformance.interface.test_sharing import TestSharing
from accel_testing.conformance.interface.test_signatures import TestSignatures
from accel_testing.conformance.interface.test_types import TestTypes
from conformance_mutants.generated import close_what_is_open, generated
from conformance_mutants.members import MUTANTS
from conformance_mutants.planted import PLANTED
from conformance_mutants.records import Mutant

KINDS = (
    TestSignatures, TestAnswers, TestTypes, TestSelection, TestSharing, TestGuards,
    TestArithmetic, TestNumbers, TestReductions, TestForms, TestRandomness, TestQueues, TestAmounts,
    TestCompiling,
)  # fmt: skip
#: Seconds each, and about nothing that a mutant breaks but its own.
SLOW = ("compiling.compiles", "compiling.accelerator_calls_break_no_graph", "sharing.fork_after_use",
        "sharing.fork_can_ask")  # fmt: skip


#: A forked process that hangs is ended sooner than a vendor's: nothing is slow here.
test_sharing._SECONDS = 4.0

#: Torch's type of autocast for a device of its own.
_USUAL = torch.get_autocast_dtype("acme")
_MODULE = sys.modules.setdefault("mutants", ModuleType("mutants"))


def checks():
    """The checks of an accelerator, by `"answers.identity"`."""
    for kind in KINDS:
        group = kind.__module__.rpartition("test_")[2]
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("test_"):
                yield f"{group}.{name.removeprefix('test_')}", getattr(kind(), name)


#: The folder of each group: `answers` is in `interface`.
_PARTS = {kind.__module__.rpartition("test_")[2]: kind.__module__.split(".")[-2] for kind in KINDS}


def broken(mutant):
    """The accelerator with one member broken."""
    made = accel_core.get_accelerator()
    members = {
        name: member(name) if getattr(member, "needs_name", False) else member
        for name, member in mutant.members.items()
    }
    # As a pickle of a class that is in a module, and not of the process's own accelerator.
    kind = type("Mutant", (type(made),), {**members, "__module__": _MODULE.__name__, "_by_name": None})
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
        torch.set_autocast_enabled(whole.device_type, False)  # which a mutant may leave on
        torch.set_autocast_dtype(whole.device_type, _USUAL)
        torch.clear_autocast_cache()
        whole.set_device(0)
        whole.set_stream(whole.default_stream())
        whole.synchronize()
    return found


@functools.cache
def _prepare():
    """As for checks that pytest runs: no warnings, and little for the garbage collector to search."""
    warnings.simplefilter("ignore")
    failing(accel_core.get_accelerator(), ["answers.compile_backend"])  # brings torch's compilers
    gc.collect()
    gc.freeze()


#: Made by rule or planted: what these checks must catch, each by an assertion that no chosen one has.
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
    "randomness.all_devices_are_seeded": ["manual_seed_all: does nothing", "seeds: all, each another"],
    "randomness.state_restores": ["set_rng_state: does nothing"],
    "randomness.fork_rng_restores": ["fork_rng: does nothing", "seeds: fork_rng is of the current"],
    "queues.stream_is_current_inside": ["stream: leaves by an error what it has changed"],
    "queues.set_stream_stays": ["set_stream: does nothing"],
    "queues.graph_replays_with_new_inputs": ["replay_graph: does nothing"],
    "queues.capturing_is_told": ["is_current_stream_capturing: keeps its first answer"],
    "amounts.allocated_grows_and_returns": ["memory_allocated: in other units"],
    "amounts.reserved_holds_what_is_allocated": ["memory_reserved: in other units"],
    "amounts.peaks": ["reset_max_memory_allocated: does nothing"],
    "amounts.totals_start_anew": ["reset_accumulated_memory_stats: is the current device's"],
    "amounts.free_memory_shrinks": ["mem_get_info: keeps its first answer"],
    "amounts.fraction_limits": ["set_per_process_memory_fraction: does nothing"],
    # Of those that are planted.
    "guards.errors_come_out_of_blocks": ["guards: range swallows errors"],
    "guards.device_guards_nest": ["guards: device_guard has one slot"],
    "guards.streams_nest": ["guards: stream goes back to the default"],
    "guards.new_threads_find_nothing_of_others": ["new threads: begin inside another's autocast"],
    "guards.threads_are_heard": ["new threads: cannot seed"],
    "arithmetic.autocasts_nest": ["guards: autocast is off afterwards"],
    "randomness.numbers_are_as_asked": ["other kernels: randn is half as wide"],
    "queues.done_is_done": ["queries: a stream is always done"],
    "queues.captures_leave_all_as_before": ["guards: a capture leaves its stream"],
    "reductions.integers_are_added_up_in_int64": ["width: int32 is added up in int32"],
    "reductions.halves_are_added_up_in_float32": ["width: half in half, mm"],
    "reductions.nan_in_every_reduction": ["NaN: median along a dimension"],
    "reductions.first_of_equals": ["equal elements: argmax of a long row"],
    "reductions.some_of_equals": ["equal elements: median, the upper"],
    "reductions.duplicates_all_count": ["duplicates: scatter_add, many"],
    "forms.broadcast": ["other kernels: add of a row"],
    "forms.types_promote": ["other kernels: cat of different types"],
    "forms.signs": ["other kernels: remainder has the sign of the first"],
    "forms.zeros_and_infinities": ["other kernels: -0.0 is 0.0, neg"],
    "forms.in_place": ["other kernels: add in place forgets alpha"],
    "forms.moved": ["other kernels: roll the other way"],
    "forms.layers": ["other kernels: layer_norm forgets eps"],
    "forms.each_gradient": ["gelu_backward: gives the right shape, and zeros"],
    "forms.many_rows": ["other kernels: many rows of softmax"],
    "forms.every_length": ["other kernels: a number of no dimension"],
}  # fmt: skip


def meant_to():
    """By mutant what the check says that is meant for it; and what those say of the whole accelerator."""
    _prepare()
    meant = {name: mutant.meant for name, mutant in MUTANTS.items()}
    tried = [(name, mutant, mutant.meant) for name, mutant in MUTANTS.items()]
    made = {**generated(), **PLANTED}
    for check, names in BY_RULE.items():
        tried += [(f"{name} ({check})", made[name], check) for name in names]
    return {
        "meant": meant,
        "mutants": {name: _said(mutant, check) for name, mutant, check in tried},
        "whole": failing(accel_core.get_accelerator(), {check for *_, check in tried}),
    }


def _said(mutant, check):
    """What the check says of it."""
    with getattr(mutant, "kernel", contextlib.nullcontext)():
        return failing(broken(mutant), [check]).get(check, "")


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
    for name, mutant in sorted(generated().items(), key=lambda item: item[1].kind.startswith("leaves")):
        yield name, _failing(mutant)


def of_the_whole(times, names):
    """Each of these checks so many times on the accelerator that is whole, and what it says if it fails."""
    _prepare()
    chosen = accel_core.get_accelerator()
    for _ in range(times):
        for name in names:
            yield f"{_PARTS[name.partition('.')[0]]}.{name}", failing(chosen, [name]).get(name, "")


#: The groups in which each area's faults are looked for first; those of kernels in others.
_FIRST = {
    "queries": ("queues",), "new threads": ("guards",), "seeds": ("randomness",),
    "guards": ("guards", "randomness", "arithmetic", "queues"),
    "other members": ("answers", "types", "selection", "amounts", "queues"),
}  # fmt: skip


def of_planted(only=""):
    """Every planted fault whose name begins so, and the first check that fails with it."""
    _prepare()
    for name, mutant in PLANTED.items():
        if name.startswith(only):
            yield name, _failing(mutant, _FIRST.get(mutant.kind, ("reductions", "forms", "randomness")))


def _failing(mutant, first=()):
    """What fails; with the names of groups the first alone, looked for in these groups first."""
    but = [*SLOW, *(() if mutant.members else _CAPTURE)]
    try:
        with mutant.kernel():
            accelerator = broken(Mutant("", mutant.members))
            if not first:
                return failing(accelerator, but=but)
            names = [name for name, _ in checks() if name not in but]
            for name in sorted(names, key=lambda name: name.partition(".")[0] not in first):
                if found := failing(accelerator, [name]):
                    return found
            return {}
    except Exception as error:
        return {"making it": f"{type(error).__name__}: {error}"}
