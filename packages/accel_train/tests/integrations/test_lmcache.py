"""LMCache on `acme`: its device specification is ours, where it has none of its own."""

import pytest

pytest.importorskip("torch")


SCRIPT = """
import json, warnings
warnings.simplefilter("ignore")
import torch, lmcache
from lmcache.v1 import platform
spec, device = platform.current_device_spec, torch.device(lmcache.torch_device_type)
answer = {
    "type": lmcache.torch_device_type,
    "spec": [type(spec).__name__, spec.backend_name, spec.device_type, spec.is_available()],
    "operators": type(getattr(lmcache, "device_ops", None)).__name__,
    "mode": spec.default_mp_transfer_mode().name,
}
if device.type != "cpu":
    value = torch.ones(4, device=device) + 1
    event = spec.create_stream_event(device)
    spec.record_stream_event(event, spec.current_stream(device))
    spec.synchronize_device(device)
    answer["complete"] = [spec.is_stream_event_complete(event), value.tolist()]
print(); print(json.dumps(answer))
"""


def test_an_unknown_device_gets_lmcaches_operators(beside):
    assert beside("lmcache", SCRIPT).answer == {
        "type": "acme",
        "spec": ["AccelDeviceSpec", "accel", "acme", True],
        "operators": "DeviceOps",
        "mode": "ENGINE_DRIVEN",
        "complete": [True, [2.0] * 4],
    }


def test_it_stands_aside_on_the_cpu(beside):
    environ = {"DS_ACCELERATOR": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    answer = beside("lmcache", SCRIPT, environ=environ).answer
    assert answer["type"] == "cpu"
    assert answer["spec"][0] == "CpuDeviceSpec"


def test_it_stands_aside_for_a_device_of_lmcaches(beside):
    code = SCRIPT.replace("import torch, lmcache", "import torch, torch_npu, lmcache")
    answer = beside("lmcache", code, vendor="npu").answer
    assert answer["spec"][:3] == ["NpuDeviceSpec", "npu", "npu"]


def test_an_error_is_a_warning_and_lmcache_goes_on(beside):
    run = beside(
        "lmcache",
        SCRIPT.replace('"ignore"', '"default"'),
        environ={"DS_ACCELERATOR": "nothing"},
    )
    assert run.answer["type"] == "cpu"
    said = run.ended[0].stderr
    assert (
        said.count("LMCache cannot use accel's accelerator: BackendNotFoundError") == 1
    )
