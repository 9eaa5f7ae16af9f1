"""Level 2: an accelerator on the simulated device, with one member broken."""

import torch

from conformance_mutants import breaking as how
from conformance_mutants.records import given

#: By check what it is meant to catch: the members that are broken, by what is wrong.
COMPUTE = {
    "arithmetic.scaled_losses": {
        "the scaler does not take back": {
            "grad_scaler": lambda self, dtype=None, **options: how.WrongScaler(
                **options
            )
        },
        "bfloat16 is scaled too": {
            "grad_scaler": lambda self, dtype=None, **options: how.whole(
                self, "grad_scaler", torch.float16, **options
            )
        },
    },
    "arithmetic.autocast": {
        "autocast is bfloat16 unasked": {
            "autocast": lambda self, dtype=None, enabled=True: how.whole(
                self, "autocast", dtype or torch.bfloat16, enabled
            )
        }
    },
    "randomness.all_devices_are_seeded": {
        "one seed for all devices": {"manual_seed": how.seeds_all}
    },
    "randomness.state_restores": {
        "the current device's state is not restored": {
            "set_rng_state": how.restores_by_index
        }
    },
    "randomness.generator_is_the_devices": {
        "the current device's generator is another": {
            "default_generator": how.copies_the_current
        }
    },
    "randomness.host_is_left_alone": {
        "the host is seeded too": {"manual_seed": how.seeds_host}
    },
    "queues.stream_is_current_inside": {
        "a stream leaves the device": {"stream": how.stays_on_its_device}
    },
    "queues.graph_replays_with_new_inputs": {
        "a graph must be there": {"capture_to_graph": how.wants_a_graph},
        "create_graph gives nothing": {"create_graph": given(None)},
    },
    "queues.events_tell_time": {
        "events in seconds": {"Event": property(lambda self: how.LateEvent)}
    },
    "queues.work_on_a_stream_is_seen_after_waiting": {
        "streams are never done": {
            "Stream": property(lambda self: lambda: how.EndlessStream("acme"))
        }
    },
    "queues.synchronize_waits": {
        "synchronize returns at once": {
            "synchronize": lambda self, device_index=None: None,
            "Stream": property(lambda self: lambda: how.BusyStream("acme")),
        }
    },
    "amounts.stats_agree": {
        "stats of another device": {
            "memory_stats": lambda self, device_index=None: how.whole(
                self, "memory_stats", 1
            )
        }
    },
    "amounts.devices_count_for_themselves": {
        "all devices count as one": {
            "memory_allocated": lambda self, device_index=None: (
                how.whole(self, "memory_allocated", 0)
                + how.whole(self, "memory_allocated", 1)
            )
        }
    },
    "amounts.pinned_copies": {
        "pinning loses the numbers": {"pin_memory": how.zeroed},
        "everything is pinned": {"is_pinned": given(True)},
        "nothing is ever pinned": {"is_pinned": given(False)},
        "a template is the tensor itself": {
            "pin_memory": lambda self, tensor, make_copy=True, match_shape=True: (
                how.whole(self, "pin_memory", tensor)
                if make_copy
                else tensor.view(tensor.shape if match_shape else -1)
            )
        },
    },
    "amounts.pinned_room": {
        "pin_empty on any device": {
            "pin_empty": lambda self, *size, dtype, device="cpu": how.whole(
                self, "pin_empty", *size, dtype=dtype
            )
        },
        "pin_empty forgets the shape": {
            "pin_empty": lambda self, *size, dtype, device="cpu": how.whole(
                self, "pin_empty", 6, dtype=dtype
            )
        },
    },
}
