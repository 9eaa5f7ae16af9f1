"""Level 1: an accelerator on the simulated device, with one member broken; and those of level 2."""

import torch

from conformance_mutants import breaking as how
from conformance_mutants.compute import COMPUTE
from conformance_mutants.records import Mutant, changed, given, raising

#: By check what it is meant to catch: the members that are broken, by what is wrong.
_BROKEN = {
    "answers.identity": {
        "its name is another": {
            "name": property(lambda self: "other", lambda self, given: None)
        }
    },
    "answers.device_type_is_torchs": {
        "device_type in capitals": {"device_type": "ACME"},
        "is_accelerator says no": {"is_accelerator": given(False)},
    },
    "answers.yes_or_no": {
        "is_bf16_supported gives 1": {"is_bf16_supported": given(1)},
        "is_synchronized_device gives None": {"is_synchronized_device": given(None)},
        "supports_nvtx_domain is text": {"supports_nvtx_domain": "no"},
        "use_host_timers raises": {"use_host_timers": raising(RuntimeError)},
    },
    "answers.capabilities_agree": {
        "capabilities lie": {
            "capabilities": changed(
                lambda told: how.with_values(
                    told, supports_graphs=not told.supports_graphs
                )
            )
        },
        "capabilities count": {
            "capabilities": changed(
                lambda told: how.with_values(
                    told, supports_graphs=int(told.supports_graphs)
                )
            )
        },
    },
    "answers.available": {
        "is_available says no": {"is_available": given(False)},
        "device_count is a float": {"device_count": given(2.0)},
        "is_initialized always says no": {"is_initialized": given(False)},
    },
    "answers.current_device_is_an_index": {
        "current_device is a bool": {"current_device": changed(bool)}
    },
    "answers.device_names": {
        "names begin with one": {
            "device_name": lambda self, device_index=None: (
                "acme" if device_index is None else f"acme:{device_index + 1}"
            )
        },
        "current_device_name is the vendor's": {
            "current_device_name": given("ACME 9000")
        },
    },
    "answers.device_is_torchs": {
        "device is text": {
            "device": lambda self, device_index=None: (
                "acme" if device_index is None else f"acme:{device_index}"
            )
        }
    },
    "answers.total_memory_is_bytes": {
        "total_memory in mebibytes": {
            "total_memory": changed(lambda value: value >> 20)
        },
        "total_memory is a float": {"total_memory": changed(float)},
    },
    "answers.free_memory_is_part_of_all": {
        "mem_get_info the wrong way round": {
            "mem_get_info": changed(lambda told: told[::-1])
        },
        "mem_get_info is a list": {"mem_get_info": changed(list)},
        "available_memory is more than all": {
            "available_memory": changed(lambda value: value * 1000)
        },
    },
    "answers.memory_amounts_are_bytes": {
        "memory_allocated is a float": {"memory_allocated": changed(float)}
    },
    "answers.memory_stats_have_torchs_keys": {
        "memory_stats are nested": {
            "memory_stats": lambda self, device_index=None: {
                "allocated_bytes": {"all": {"current": 0}}
            }
        },
        "memory_stats in the vendor's words": {"memory_stats": given({"InUse": 0})},
        "memory_summary is a table": {"memory_summary": given([["allocated", 0]])},
        "memory_stats are floats": {
            "memory_stats": changed(
                lambda told: {name: float(value) for name, value in told.items()}
            )
        },
    },
    "answers.properties": {
        "properties have no name": {
            "device_properties": changed(lambda told: how.with_values(told, name=""))
        }
    },
    "answers.identifiers": {
        "device_uuid is bytes": {"device_uuid": given(b"\0" * 16)},
        "a device more is visible": {"visible_device_ids": given((0, 1, 2))},
        "visible_devices_envs is one text": {
            "visible_devices_envs": given("ACME_VISIBLE_DEVICES")
        },
    },
    "answers.visible_devices_are_written": {
        "visible devices go into our environment": {
            "set_visible_devices_envs": how.writes_our_environment
        }
    },
    "answers.forwarded_variables": {
        "export_envs has a letter": {"export_envs": given(["A"])}
    },
    "answers.communication": {
        "communication that torch has not": {
            "communication_backend_name": given("nobody's")
        },
        "the communication's version is text": {
            "communication_backend_version": given("2.1")
        },
    },
    "types.supported_dtypes": {
        "float16 comes first": {
            "supported_dtypes": given([torch.float16, torch.bfloat16])
        },
        "training_dtype is float64": {"training_dtype": given(torch.float64)},
        "native bfloat16 is not trained in": {
            "is_bf16_native": given(True),
            "training_dtype": given(torch.float32),
        },
    },
    "types.device_capability": {
        "the capability has no integers": {
            "get_device_capability": given({"supported_dtypes": {torch.float32}})
        }
    },
    "types.tensors_of_data": {
        "ByteTensor is on the first device": {
            "ByteTensor": property(
                lambda self: (
                    lambda data: torch.tensor(data, dtype=torch.uint8, device="acme:0")
                )
            )
        },
        "FloatTensor is on the host": {
            "FloatTensor": property(
                lambda self: lambda data: torch.tensor(data, dtype=torch.float32)
            )
        },
        "IntTensor gives int64": {
            "IntTensor": property(
                lambda self: lambda data: torch.tensor(data, device="acme")
            )
        },
    },
    "selection.members_take_a_device_in_any_form": {
        "asking selects the device": {"memory_stats": how.selects_what_it_tells_of},
        "a name is another device": {"memory_allocated": how.reads_names_as_last},
        "an index as text is refused": {"set_device": how.refuses_text},
    },
    "types.tensors_of_a_size": {
        "FloatTensor of a number is of that size": {
            "FloatTensor": property(lambda self: how.TakesAnySize(self))
        }
    },
    "types.instances": {
        "every tensor is a FloatTensor": {
            "FloatTensor": property(lambda self: how.TakesAnyTensor(self))
        }
    },
    "answers.on_accelerator": {
        "what is on meta is on the accelerator": {
            "on_accelerator": lambda self, tensor: tensor.device.type != "cpu"
        },
        "on_accelerator is always true": {"on_accelerator": given(True)},
    },
    "answers.random_module": {"random is nothing": {"random": given(None)}},
    "answers.random_states": {
        "states are on the device": {
            "get_rng_state": changed(lambda state: state.to("acme"))
        },
        "default_generator is the host's": {
            "default_generator": given(torch.default_generator)
        },
    },
    "answers.streams_are_classes": {
        "there is no current stream": {"current_stream": given(None)}
    },
    "answers.ranges_never_raise": {
        "range_push raises": {"range_push": raising(RuntimeError)}
    },
    "answers.tidying_never_raises": {
        "empty_cache raises": {"empty_cache": raising(RuntimeError)}
    },
    "answers.lazy_call_runs": {"lazy_call forgets": {"lazy_call": how.never_called}},
    "answers.compile_backend": {
        "a compile backend nobody has": {"get_compile_backend": given("acmec")}
    },
    "answers.operators": {
        "op_builder_dir is a path": {"op_builder_dir": given("no_such_package")},
        "get_op_builder gives None": {"get_op_builder": given(None)},
        "operators knows none": {
            "op_builders": given({"FusedAdamBuilder": "acme"}),
            "operators": given({}),
        },
    },
    "answers.host_memory": {
        "memory is locked once": {"register_host_memory": how.locks_once},
        "register_host_memory gives 0": {"register_host_memory": given(0)},
    },
    "answers.vendor_defaults": {
        "vendor defaults are told each time": {
            "apply_vendor_defaults": given(("ACME=1",))
        }
    },
    "signatures.signatures_take_what_the_interface_takes": {
        "range_push takes no domain": {"range_push": how.narrower},
        "manual_seed wants more": {"manual_seed": how.needs_more},
        "pin_memory names its tensor otherwise": {"pin_memory": how.other_order},
    },
    "signatures.members_keep_their_kind": {
        "pin_memory_alignment is an attribute": {"pin_memory_alignment": 64}
    },
    "selection.another_type_is_refused": {
        "a number that is no index is cut": {"total_memory": how.cuts_numbers}
    },
    "selection.guard_restores": {
        "device_guard(None) is device 0": {"device_guard": how.guards_first},
        "device_guard does not restore": {"device_guard": how.forgets_to_restore},
    },
    "sharing.copies_are_the_same": {
        "copies are others": {
            "__deepcopy__": lambda self, memo: type(self)(self.backend)
        }
    },
    "sharing.fork_can_ask": {
        "a forked process hangs at device_name": {"device_name": how.hangs_after_fork},
        "a forked process dies of device_count": {"device_count": how.dies_after_fork},
    },
    "selection.members_refuse_what_is_out_of_range": {
        f"{name} takes any index": {name: how.reads_any_index(name)}
        for name in (
            "total_memory",
            "memory_allocated",
            "get_rng_state",
            "current_stream",
        )
    },
    **COMPUTE,
}
MUTANTS = {
    name: Mutant(check, members)
    for check, all_of_it in _BROKEN.items()
    for name, members in all_of_it.items()
}
