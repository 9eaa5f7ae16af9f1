"""The device half of vLLM's `Platform`: against the recorded interface of three releases."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from accel_core import Backend, Granted, InTorch, Visibility  # noqa: E402 - as the next ones
from accel_core.errors import InvalidBackendError, InvalidDeviceError, UnsupportedError  # noqa: E402
from accel_train.doors.vllm import DeviceMembers  # noqa: E402

#: Kind and parameters of each member, and the releases in which they are so: record_vllm.py writes it.
RECORD = json.loads(Path(__file__).with_name("vllm_platform.json").read_text())
#: Members about devices, all of which ours gives.
DEVICE = """
    check_if_supports_dtype device_control_env_var device_name device_type dispatch_key dist_backend
    get_all_gpu_pci_bus_ids get_compile_backend get_current_memory_usage get_device_capability get_device_name
    get_device_total_memory get_device_uuid is_integrated_gpu is_pin_memory_available manual_seed_all
    num_compute_units ray_device_key ray_noset_device_env_vars set_device simple_compile_backend
    supported_dtypes supports_fp8
""".split()  # noqa: SIM905
#: About devices too, with a default of vLLM's that is made of the others, or right for any.
DEFAULT = """
    device_control_id_to_physical_device_id device_id_to_physical_device_id fp8_dtype get_cpu_architecture
    get_infinity_values get_global_graph_pool has_device_capability inference_mode is_cpu is_cuda
    is_cuda_alike is_device_capability is_device_capability_family is_fp8_fnuz is_out_of_tree is_rocm is_tpu
    is_unspecified is_xpu is_zen_cpu logical_device_id_to_visible_device_id uses_host_device_handling
    visible_device_id_to_physical_device_id
""".split()  # noqa: SIM905
#: The vendor's half: kernels, attention, caches, quantization, configuration, communicators.
ENGINE = """
    additional_env_vars apply_config_platform_defaults can_update_inplace check_and_update_config
    check_max_model_len check_runner_kv_caches_multi_layer enable_multi_stream_overlap get_attn_backend_cls
    get_default_ir_op_priority get_device_communicator_cls get_kv_cache_config_builder_cls
    get_lora_vocab_padding_size get_max_output_tokens get_mla_prefill_backend_cls get_nixl_memory_type
    get_nixl_supported_devices get_pass_manager_cls get_punica_wrapper get_static_graph_wrapper_cls
    get_supported_vit_attn_backends get_vit_attn_backend import_ir_kernels import_kernels is_arch_support_pdl
    is_cumem_allocator_available is_sleep_mode_available log_warnings make_synced_weight_loader
    opaque_attention_op pass_key pre_register_and_update register_custom_kv_cache_specs
    register_triton_kernel_overrides set_additional_forward_context stateless_init_device_torch_dist_pg
    support_deep_gemm support_hybrid_kv_cache support_static_graph_mode supported_quantization supports_mx
    update_block_size_for_backend use_all_gather use_custom_allreduce use_custom_op_collectives
    use_sync_weight_loader validate_environ validate_request verify_model_arch verify_quantization
""".split()  # noqa: SIM905

CPU = Backend(name="cpu", priority=1, device_type="cpu")
FACTS = Backend(
    name="acme",
    priority=1,
    device_type="acme",
    in_torch=InTorch(private_use1=True),
    visibility=Visibility(variables=("ACME_DEVICES", "OLDER")),
    granted=Granted(ray="ACME", ray_noset="RAY_EXPERIMENTAL_NOSET_ACME_DEVICES"),
)


class Platform:
    """Instead of vLLM's: the mixin stands before it."""

    device_control_env_var = "VLLM_DEVICE_CONTROL_ENV_VAR_PLACEHOLDER"
    ray_device_key = ""


class OnCpu(DeviceMembers, Platform):
    backend = CPU


def test_every_member_of_every_release_is_somebodys():
    assert sorted(RECORD) == sorted([*DEVICE, *DEFAULT, *ENGINE])
    releases = {release for kinds in RECORD.values() for row in kinds.values() for release in row}
    assert releases == {"0.31.0", "0.32.0", "0.33.0"}


@pytest.mark.parametrize("name", DEVICE)
def test_a_device_member_is_called_as_in_every_release(name):
    ((kind, releases),) = RECORD[name].items()
    assert len(releases) == 3
    member = inspect.getattr_static(OnCpu, name)
    if isinstance(member, classmethod):
        parameters = ", ".join(inspect.signature(getattr(OnCpu, name)).parameters)
        assert kind == f"classmethod({parameters})"
    else:  # a property is read as an attribute is
        assert kind == ("property()" if name == "supported_dtypes" else "attribute")


def test_facts_come_from_the_declaration_and_start_nothing():
    class Acme(DeviceMembers, Platform):
        backend = FACTS
        device_name = "Acme's own word"

    assert Acme.device_name == "Acme's own word"
    assert (Acme.device_type, Acme.dispatch_key) == ("acme", "PrivateUse1")
    assert Acme.device_control_env_var == "ACME_DEVICES"
    assert Acme.ray_device_key == "ACME"
    assert Acme.ray_noset_device_env_vars == ["RAY_EXPERIMENTAL_NOSET_ACME_DEVICES"]


def test_what_is_not_declared_stays_vllms():
    assert OnCpu.device_control_env_var == Platform.device_control_env_var
    assert OnCpu.dispatch_key == "CPU"


def test_the_rest_asks_the_accelerator():
    ours = OnCpu()
    OnCpu.manual_seed_all(5)
    OnCpu.set_device(torch.device("cpu"))
    assert OnCpu.get_device_name()
    assert OnCpu.get_device_total_memory() > 2**20
    assert OnCpu.get_current_memory_usage() >= 0
    assert OnCpu.get_device_capability() is None
    assert OnCpu.is_integrated_gpu() is False
    assert OnCpu.is_pin_memory_available() is False
    assert torch.float32 in ours.supported_dtypes
    assert ours.dist_backend == "gloo"
    assert ours.simple_compile_backend == OnCpu.get_compile_backend() == "inductor"
    OnCpu.check_if_supports_dtype(torch.float32)


def test_what_the_device_lacks_is_an_error_that_says_so():
    with pytest.raises(ValueError, match=r"cpu does not support torch\.int3, expected one of torch\.float32"):
        OnCpu.check_if_supports_dtype("torch.int3")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="cpu does not report the uuid of its devices"):
        OnCpu.get_device_uuid()
    with pytest.raises(InvalidDeviceError):
        OnCpu.get_device_name(-1)


def test_a_class_without_a_declaration_is_refused_when_it_is_made():
    with pytest.raises(
        InvalidBackendError, match=r"Nothing\.backend is None, expected an accel_core\.Backend"
    ):
        type("Nothing", (DeviceMembers, Platform), {})
