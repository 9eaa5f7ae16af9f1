"""`accel doctor` asks the real DeepSpeed which device it would choose."""

import json

import pytest

DOCTOR = [
    "-m",
    "accel_core",
    "doctor",
    "--topic",
    "frameworks",
    "--json",
    "--timeout",
    "50",
]


CHOICES = [
    ({}, "frameworks.same", {"what": " would choose cpu too"}),
    # A pin that only we understand: accel-train serves it, if torch loads it.
    (
        {"DS_ACCELERATOR": "npu,cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        "frameworks.fails",
        {
            "level": "warning",
            "what": "DS_ACCELERATOR",
            "step": "export DS_ACCELERATOR=cpu;",
        },
    ),
    (
        {"DS_ACCELERATOR": "npu,cpu", "ACCEL_INTEGRATIONS": "deepspeed"},
        "frameworks.integrated",
        {},
    ),
]


@pytest.mark.parametrize(("variables", "code", "words"), CHOICES)
def test_what_deepspeed_would_choose(child, on_cpu, variables, code, words):
    environ = {
        name: value for name, value in on_cpu.items() if name != "DS_ACCELERATOR"
    }
    [topic] = json.loads(child(DOCTOR, {**environ, **variables}).stdout)["topics"]
    [finding] = topic["findings"]
    assert finding["code"] == code
    assert [key for key, text in words.items() if text not in finding[key]] == []
