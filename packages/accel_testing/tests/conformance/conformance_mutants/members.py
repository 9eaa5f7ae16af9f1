"""Level 1: an accelerator on the simulated device, with one member broken; and those of level 2."""

from __future__ import annotations

import torch

from conformance_mutants.breaking import (
    TakesAnySize,
    TakesAnyTensor,
    cuts_numbers,
    dies_after_fork,
    forgets_to_restore,
    guards_first,
    hangs_after_fork,
    leaves_on_error,
    lies_about_compiler,
    locks_once,
    loses_default,
    narrower,
    needs_more,
    never_called,
    other_order,
    reads_any_index,
    reads_names_as_last,
    refuses_text,
    selects_what_it_tells_of,
    takes_negative,
    takes_other_types,
    whole,
    with_values,
    wraps_around,
    writes_our_environment,
)
from conformance_mutants.compute import COMPUTE
from conformance_mutants.records import Mutant, changed, given, raising

MUTANTS: dict[str, Mutant] = {
    # answers
    "its name is another": Mutant(
        "answers.identity", {"name": property(lambda self: "other", lambda self, given: None)}
    ),
    "device_type in capitals": Mutant("answers.device_type_is_torchs", {"device_type": "ACME"}),
    "is_accelerator says no": Mutant("answers.device_type_is_torchs", {"is_accelerator": given(False)}),
    "is_bf16_supported gives 1": Mutant("answers.yes_or_no", {"is_bf16_supported": given(1)}),
    "is_synchronized_device gives None": Mutant("answers.yes_or_no", {"is_synchronized_device": given(None)}),
    "supports_nvtx_domain is text": Mutant("answers.yes_or_no", {"supports_nvtx_domain": "no"}),
    "use_host_timers raises": Mutant("answers.yes_or_no", {"use_host_timers": raising(RuntimeError)}),
    "capabilities lie": Mutant(
        "answers.capabilities_agree",
        {"capabilities": changed(lambda told: with_values(told, supports_graphs=not told.supports_graphs))},
    ),
    "capabilities count": Mutant(
        "answers.capabilities_agree",
        {"capabilities": changed(lambda told: with_values(told, supports_graphs=int(told.supports_graphs)))},
    ),
    "is_available says no": Mutant("answers.available", {"is_available": given(False)}),
    "device_count is a float": Mutant("answers.available", {"device_count": given(2.0)}),
    "is_initialized always says no": Mutant("answers.available", {"is_initialized": given(False)}),
    "current_device is a bool": Mutant(
        "answers.current_device_is_an_index", {"current_device": changed(bool)}
    ),
    "device_name always has a number": Mutant(
        "answers.device_names", {"device_name": lambda self, device_index=None: f"acme:{device_index or 0}"}
    ),
    "names begin with one": Mutant(
        "answers.device_names",
        {
            "device_name": lambda self, device_index=None: (
                "acme" if device_index is None else f"acme:{device_index + 1}"
            )
        },
    ),
    "current_device_name is the vendor's": Mutant(
        "answers.device_names", {"current_device_name": given("ACME 9000")}
    ),
    "device is text": Mutant(
        "answers.device_is_torchs",
        {
            "device": lambda self, device_index=None: (
                "acme" if device_index is None else f"acme:{device_index}"
            )
        },
    ),
    "total_memory in mebibytes": Mutant(
        "answers.total_memory_is_bytes", {"total_memory": changed(lambda value: value >> 20)}
    ),
    "total_memory is a float": Mutant("answers.total_memory_is_bytes", {"total_memory": changed(float)}),
    "mem_get_info the wrong way round": Mutant(
        "answers.free_memory_is_part_of_all",
        {"mem_get_info": lambda self, device_index=None: whole(self, "mem_get_info", device_index)[::-1]},
    ),
    "mem_get_info is a list": Mutant("answers.free_memory_is_part_of_all", {"mem_get_info": changed(list)}),
    "available_memory is more than all": Mutant(
        "answers.free_memory_is_part_of_all", {"available_memory": changed(lambda value: value * 1000)}
    ),
    "memory_allocated is a float": Mutant(
        "answers.memory_amounts_are_bytes", {"memory_allocated": changed(float)}
    ),
    "memory_cached is nothing": Mutant("answers.memory_amounts_are_bytes", {"memory_cached": given(0)}),
    "the peak is below the amount": Mutant(
        "answers.memory_amounts_are_bytes", {"max_memory_allocated": given(0)}
    ),
    "memory_stats are nested": Mutant(
        "answers.memory_stats_have_torchs_keys",
        {"memory_stats": lambda self, device_index=None: {"allocated_bytes": {"all": {"current": 0}}}},
    ),
    "memory_stats in the vendor's words": Mutant(
        "answers.memory_stats_have_torchs_keys", {"memory_stats": given({"InUse": 0})}
    ),
    "memory_summary is a table": Mutant(
        "answers.memory_stats_have_torchs_keys", {"memory_summary": given([["allocated", 0]])}
    ),
    "memory_stats are floats": Mutant(
        "answers.memory_stats_have_torchs_keys",
        {"memory_stats": changed(lambda told: {name: float(value) for name, value in told.items()})},
    ),
    "properties have no name": Mutant(
        "answers.properties",
        {
            "device_properties": lambda self, device_index=None: with_values(
                whole(self, "device_properties", device_index), name=""
            )
        },
    ),
    "device_uuid is bytes": Mutant("answers.identifiers", {"device_uuid": given(b"\0" * 16)}),
    "a device more is visible": Mutant("answers.identifiers", {"visible_device_ids": given((0, 1, 2))}),
    "visible_devices_envs is one text": Mutant(
        "answers.identifiers", {"visible_devices_envs": given("ACME_VISIBLE_DEVICES")}
    ),
    "visible devices go into our environment": Mutant(
        "answers.visible_devices_are_written", {"set_visible_devices_envs": writes_our_environment}
    ),
    "export_envs has a letter": Mutant("answers.forwarded_variables", {"export_envs": given(["A"])}),
    "communication that torch has not": Mutant(
        "answers.communication", {"communication_backend_name": given("nobody's")}
    ),
    "the communication's version is text": Mutant(
        "answers.communication", {"communication_backend_version": given("2.1")}
    ),
    "float16 comes first": Mutant(
        "types.supported_dtypes", {"supported_dtypes": given([torch.float16, torch.bfloat16])}
    ),
    "training_dtype is float64": Mutant("types.supported_dtypes", {"training_dtype": given(torch.float64)}),
    "native bfloat16 is not trained in": Mutant(
        "types.supported_dtypes", {"is_bf16_native": given(True), "training_dtype": given(torch.float32)}
    ),
    "the capability has no integers": Mutant(
        "types.device_capability", {"get_device_capability": given({"supported_dtypes": {torch.float32}})}
    ),
    "ByteTensor is on the first device": Mutant(
        "types.tensors_of_data",
        {
            "ByteTensor": property(
                lambda self: lambda data: torch.tensor(data, dtype=torch.uint8, device="acme:0")
            )
        },
    ),
    "asking selects the device": Mutant(
        "selection.members_take_a_device_in_any_form", {"memory_stats": selects_what_it_tells_of}
    ),
    "FloatTensor is on the host": Mutant(
        "types.tensors_of_data",
        {"FloatTensor": property(lambda self: lambda data: torch.tensor(data, dtype=torch.float32))},
    ),
    "IntTensor gives int64": Mutant(
        "types.tensors_of_data",
        {"IntTensor": property(lambda self: lambda data: torch.tensor(data, device="acme"))},
    ),
    "FloatTensor of a number is of that size": Mutant(
        "types.tensors_of_a_size", {"FloatTensor": property(lambda self: TakesAnySize(self))}
    ),
    "every tensor is a FloatTensor": Mutant(
        "types.instances", {"FloatTensor": property(lambda self: TakesAnyTensor(self))}
    ),
    "what is on meta is on the accelerator": Mutant(
        "answers.on_accelerator", {"on_accelerator": lambda self, tensor: tensor.device.type != "cpu"}
    ),
    "on_accelerator is always true": Mutant("answers.on_accelerator", {"on_accelerator": given(True)}),
    "random is nothing": Mutant("answers.random_module", {"random": given(None)}),
    "states are on the device": Mutant(
        "answers.random_states",
        {
            "get_rng_state": lambda self, device_index=None: whole(self, "get_rng_state", device_index).to(
                "acme"
            )
        },
    ),
    "default_generator is the host's": Mutant(
        "answers.random_states", {"default_generator": given(torch.default_generator)}
    ),
    "there is no current stream": Mutant("answers.streams_are_classes", {"current_stream": given(None)}),
    "range_push raises": Mutant("answers.ranges_never_raise", {"range_push": raising(RuntimeError)}),
    "empty_cache raises": Mutant("answers.tidying_never_raises", {"empty_cache": raising(RuntimeError)}),
    "lazy_call forgets": Mutant("answers.lazy_call_runs", {"lazy_call": never_called}),
    "a compile backend nobody has": Mutant(
        "answers.compile_backend", {"get_compile_backend": given("acmec")}
    ),
    "any compile backend is taken": Mutant(
        "answers.compile_backend", {"set_compile_backend": lies_about_compiler}
    ),
    "op_builder_dir is a path": Mutant("answers.operators", {"op_builder_dir": given("no_such_package")}),
    "get_op_builder gives None": Mutant("answers.operators", {"get_op_builder": given(None)}),
    "operators knows none": Mutant(
        "answers.operators", {"op_builders": given({"FusedAdamBuilder": "acme"}), "operators": given({})}
    ),
    "memory is locked once": Mutant("answers.host_memory", {"register_host_memory": locks_once}),
    "register_host_memory gives 0": Mutant("answers.host_memory", {"register_host_memory": given(0)}),
    "vendor defaults are told each time": Mutant(
        "answers.vendor_defaults", {"apply_vendor_defaults": given(("ACME=1",))}
    ),
    # signatures
    "range_push takes no domain": Mutant(
        "signatures.signatures_take_what_the_interface_takes", {"range_push": narrower}
    ),
    "manual_seed wants more": Mutant(
        "signatures.signatures_take_what_the_interface_takes", {"manual_seed": needs_more}
    ),
    "memory_allocated has no default": Mutant(
        "signatures.signatures_take_what_the_interface_takes", {"memory_allocated": loses_default}
    ),
    "pin_memory names its tensor otherwise": Mutant(
        "signatures.signatures_take_what_the_interface_takes", {"pin_memory": other_order}
    ),
    "pin_memory_alignment is an attribute": Mutant(
        "signatures.members_keep_their_kind", {"pin_memory_alignment": 64}
    ),
    # selection
    "set_device does nothing": Mutant("selection.every_device_can_be_selected", {"set_device": given(None)}),
    "the current name is always the first's": Mutant(
        "selection.every_device_can_be_selected", {"current_device_name": given("acme:0")}
    ),
    "a name is another device": Mutant(
        "selection.members_take_a_device_in_any_form", {"memory_allocated": reads_names_as_last}
    ),
    "set_device wraps around": Mutant("selection.out_of_range_is_refused", {"set_device": wraps_around}),
    "set_device(-1) is device 0": Mutant("selection.negative_is_refused", {"set_device": takes_negative}),
    "synchronize(-1) is the current device's": Mutant(
        "selection.negative_is_refused",
        {
            "synchronize": lambda self, device_index=None: whole(
                self, "synchronize", None if device_index == -1 else device_index
            )
        },
    ),
    "a number that is no index is cut": Mutant(
        "selection.another_type_is_refused", {"total_memory": cuts_numbers}
    ),
    "an index as text is refused": Mutant(
        "selection.members_take_a_device_in_any_form", {"set_device": refuses_text}
    ),
    "set_device takes cuda:0": Mutant("selection.another_type_is_refused", {"set_device": takes_other_types}),
    **{
        f"{name} takes any index": Mutant(
            "selection.members_refuse_what_is_out_of_range", {name: reads_any_index(name)}
        )
        for name in ("synchronize", "total_memory", "memory_allocated", "get_rng_state", "current_stream")
    },
    "device_guard(None) is device 0": Mutant("selection.guard_restores", {"device_guard": guards_first}),
    "device_guard does not restore": Mutant("selection.guard_restores", {"device_guard": forgets_to_restore}),
    "device_guard leaves on an error": Mutant("selection.guard_restores", {"device_guard": leaves_on_error}),
    # sharing
    "copies are others": Mutant(
        "sharing.copies_are_the_same", {"__deepcopy__": lambda self, memo: type(self)(self.backend)}
    ),
    "a forked process hangs at device_name": Mutant(
        "sharing.fork_can_ask", {"device_name": hangs_after_fork}
    ),
    "a forked process dies of device_count": Mutant(
        "sharing.fork_can_ask", {"device_count": dies_after_fork}
    ),
    **COMPUTE,
}
