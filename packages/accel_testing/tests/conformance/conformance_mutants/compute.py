"""Level 2: an accelerator on the simulated device, with one member broken."""

from __future__ import annotations

import contextlib

import torch

from conformance_mutants.breaking import (
    BusyStream,
    EndlessStream,
    LateEvent,
    WrongScaler,
    captures_nothing,
    copies_the_current,
    forks_nothing,
    forks_the_device,
    leaves_stream,
    replaces_seed,
    restores_by_index,
    restores_nothing,
    seeds_all,
    seeds_host,
    seeds_one,
    stays_on_its_device,
    wants_a_graph,
    whole,
    zeroed,
)
from conformance_mutants.records import Mutant, given

COMPUTE: dict[str, Mutant] = {
    "autocast does nothing": Mutant(
        "arithmetic.autocast", {"autocast": lambda self, dtype=None, enabled=True: contextlib.nullcontext()}
    ),
    "the scaler does not take back": Mutant(
        "arithmetic.scaled_losses",
        {"grad_scaler": lambda self, dtype=None, **options: WrongScaler(**options)},
    ),
    "autocast is bfloat16 unasked": Mutant(
        "arithmetic.autocast",
        {
            "autocast": lambda self, dtype=None, enabled=True: whole(
                self, "autocast", dtype or torch.bfloat16, enabled
            )
        },
    ),
    "bfloat16 is scaled too": Mutant(
        "arithmetic.scaled_losses",
        {
            "grad_scaler": lambda self, dtype=None, **options: whole(
                self, "grad_scaler", torch.float16, **options
            )
        },
    ),
    "seeds are forgotten": Mutant("randomness.same_seed_same_numbers", {"manual_seed": replaces_seed}),
    "the seed is another": Mutant("randomness.seed_is_told", {"initial_seed": given(0)}),
    "one seed for all devices": Mutant("randomness.all_devices_are_seeded", {"manual_seed": seeds_all}),
    "manual_seed_all seeds one": Mutant("randomness.all_devices_are_seeded", {"manual_seed_all": seeds_one}),
    "a state is not restored": Mutant("randomness.state_restores", {"set_rng_state": restores_nothing}),
    "the current device's state is not restored": Mutant(
        "randomness.state_restores", {"set_rng_state": restores_by_index}
    ),
    "the current device's generator is another": Mutant(
        "randomness.generator_is_the_devices", {"default_generator": copies_the_current}
    ),
    "fork_rng does nothing": Mutant("randomness.fork_rng_restores", {"fork_rng": forks_nothing}),
    "fork_rng leaves the host": Mutant("randomness.fork_rng_restores", {"fork_rng": forks_the_device}),
    "the host is seeded too": Mutant("randomness.host_is_left_alone", {"manual_seed": seeds_host}),
    "a stream leaves the device": Mutant("queues.stream_is_current_inside", {"stream": stays_on_its_device}),
    "a graph must be there": Mutant(
        "queues.graph_replays_with_new_inputs", {"capture_to_graph": wants_a_graph}
    ),
    "events in seconds": Mutant("queues.events_tell_time", {"Event": property(lambda self: LateEvent)}),
    "streams are never done": Mutant(
        "queues.work_on_a_stream_is_seen_after_waiting",
        {"Stream": property(lambda self: lambda: EndlessStream("acme"))},
    ),
    "set_stream does nothing": Mutant("queues.set_stream_stays", {"set_stream": given(None)}),
    "streams stay": Mutant("queues.stream_is_current_inside", {"stream": leaves_stream}),
    "synchronize returns at once": Mutant(
        "queues.synchronize_waits",
        {
            "synchronize": lambda self, device_index=None: None,
            "Stream": property(lambda self: lambda: BusyStream("acme")),
        },
    ),
    "graphs that capture nothing": Mutant(
        "queues.graph_replays_with_new_inputs",
        {"capture_to_graph": captures_nothing, "replay_graph": given(None)},
    ),
    "create_graph gives nothing": Mutant(
        "queues.graph_replays_with_new_inputs", {"create_graph": given(None)}
    ),
    "capturing is never told": Mutant(
        "queues.capturing_is_told", {"is_current_stream_capturing": given(False)}
    ),
    "memory never returns": Mutant(
        "amounts.allocated_grows_and_returns",
        {
            "memory_allocated": lambda self, device_index=None: whole(
                self, "max_memory_allocated", device_index
            )
        },
    ),
    "memory counts double": Mutant(
        "amounts.allocated_grows_and_returns",
        {
            "memory_allocated": lambda self, device_index=None: (
                4 * whole(self, "memory_allocated", device_index)
            )
        },
    ),
    "reserved is nothing": Mutant(
        "amounts.reserved_holds_what_is_allocated", {"memory_reserved": given(0), "memory_cached": given(0)}
    ),
    "peaks are not reset": Mutant(
        "amounts.peaks",
        {
            name: (lambda self, device_index=None: None)
            for name in ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached")
        },
    ),
    "totals are not reset": Mutant(
        "amounts.totals_start_anew", {"reset_accumulated_memory_stats": given(None)}
    ),
    "stats of another device": Mutant(
        "amounts.stats_agree",
        {"memory_stats": lambda self, device_index=None: whole(self, "memory_stats", 1)},
    ),
    "all devices count as one": Mutant(
        "amounts.devices_count_for_themselves",
        {
            "memory_allocated": lambda self, device_index=None: (
                whole(self, "memory_allocated", 0) + whole(self, "memory_allocated", 1)
            )
        },
    ),
    "free memory stands still": Mutant(
        "amounts.free_memory_shrinks",
        {"mem_get_info": lambda self, device_index=None: (self.total_memory(device_index),) * 2},
    ),
    "a limit that does not hold": Mutant(
        "amounts.fraction_limits",
        {"set_per_process_memory_fraction": lambda self, fraction, device_index=None: None},
    ),
    "pinning loses the numbers": Mutant("amounts.pinned_copies", {"pin_memory": zeroed}),
    "everything is pinned": Mutant("amounts.pinned_copies", {"is_pinned": given(True)}),
    "nothing is ever pinned": Mutant("amounts.pinned_copies", {"is_pinned": given(False)}),
    "a template is the tensor itself": Mutant(
        "amounts.pinned_copies",
        {
            "pin_memory": lambda self, tensor, make_copy=True, match_shape=True: (
                whole(self, "pin_memory", tensor)
                if make_copy
                else tensor.view(tensor.shape if match_shape else -1)
            )
        },
    ),
    "pin_empty on any device": Mutant(
        "amounts.pinned_room",
        {"pin_empty": lambda self, *size, dtype, device="cpu": whole(self, "pin_empty", *size, dtype=dtype)},
    ),
    "pin_empty forgets the shape": Mutant(
        "amounts.pinned_room",
        {"pin_empty": lambda self, *size, dtype, device="cpu": whole(self, "pin_empty", 6, dtype=dtype)},
    ),
}
