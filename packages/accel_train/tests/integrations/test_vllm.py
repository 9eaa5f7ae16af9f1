"""The device half of vLLM's `Platform`: against the recorded interface of three releases."""

import inspect
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from accel_core import Backend, ResourceRequest, TorchIntegration, Visibility  # noqa: E402 - as the next ones
from accel_core.errors import InvalidBackendError, InvalidDeviceError, UnsupportedError  # noqa: E402
from accel_train.integrations.vllm import DeviceMembers  # noqa: E402

#: Kind and parameters of the members about devices, all of which ours gives: record_vllm.py writes it.
RECORD = json.loads(Path(__file__).with_name("vllm_platform.json").read_text())
CPU = Backend(name="cpu", priority=1, device_type="cpu")
FACTS = Backend(
    name="acme",
    priority=1,
    device_type="acme",
    torch_integration=TorchIntegration(private_use1=True),
    visibility=Visibility(variables=("ACME_DEVICES", "OLDER")),
    request=ResourceRequest(
        ray="ACME", ray_noset="RAY_EXPERIMENTAL_NOSET_ACME_DEVICES"
    ),
)


class Platform:
    """Instead of vLLM's: the mixin stands before it."""

    device_control_env_var = "VLLM_DEVICE_CONTROL_ENV_VAR_PLACEHOLDER"
    ray_device_key = ""


class OnCpu(DeviceMembers, Platform):
    backend = CPU


def test_the_record_is_of_three_releases():
    assert len(RECORD["releases"]) == 3
    assert len(RECORD["members"]) == 23


@pytest.mark.parametrize(("name", "kind"), RECORD["members"].items())
def test_a_device_member_is_called_as_in_every_release(name, kind):
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
    assert Acme.device_type == "acme"
    assert Acme.dispatch_key == "PrivateUse1"
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
    with pytest.raises(
        ValueError,
        match=r"cpu does not support torch\.int3, expected one of torch\.float32",
    ):
        OnCpu.check_if_supports_dtype("torch.int3")  # type: ignore[arg-type]
    with pytest.raises(
        UnsupportedError, match="cpu does not report the uuid of its devices"
    ):
        OnCpu.get_device_uuid()
    with pytest.raises(InvalidDeviceError):
        OnCpu.get_device_name(-1)


def test_a_class_without_a_declaration_is_refused_when_it_is_made():
    with pytest.raises(
        InvalidBackendError, match=r"Nothing\.backend is None, expected an accel_core"
    ):
        type("Nothing", (DeviceMembers, Platform), {})
