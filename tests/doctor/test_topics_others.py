"""The doctor's topic on what other frameworks would choose: their rules beside our choice.

tests/trainers/test_doctor_rules.py and tests/deepspeed/test_doctor_rules.py run the real functions.
"""

from __future__ import annotations

import sys

import pytest
from accel_testing.plugins import NO_DEVICE

from accel_core.doctor.frameworks import FRAMEWORKS, Answer, Here
from accel_core.doctor.records import Level, Visit
from accel_core.doctor.topics.others import TOPIC
from accel_core.machine import devices, vendors
from accel_core.settings import read

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")


def said(*, thorough: bool = False, **variables: str):
    return list(TOPIC.examine(Visit(read(variables), variables, thorough=thorough)))


def choice(framework: str, **here: object) -> Answer:
    [rule] = [f for f in FRAMEWORKS if f.name == framework]
    return rule.choose(Here(**here))


def test_nothing_is_installed(torch_world):
    [finding] = said()
    assert (finding.level, finding.code) == (Level.OK, "others.not-installed")
    assert {name.partition(" (")[0]: device for name, device in finding.facts.items()} == {
        "DeepSpeed": "cpu", "Accelerate": "cpu", "Transformers' Trainer": "cpu", "Lightning": "cpu",
        "vLLM": "it finds no platform, and cannot infer a device",
        "SGLang": "it knows no accelerator here (CUDA, XPU, HPU, NPU)", "Ray": "cpu",
    }  # fmt: skip


@pytest.fixture
def frameworks(torch_world):
    """Accelerate, Lightning and DeepSpeed are installed, and npu works."""
    for name, version in (("deepspeed", "0.19.8"), ("accelerate", "1.15.0"), ("lightning", "2.6.6")):
        torch_world.distribution(name, version)
    torch_world.module("torch_npu", "")
    torch_world.backend("npu", 700, vendor_import="torch_npu")
    return torch_world


def test_a_difference_is_told_with_what_removes_it(frameworks):
    deepspeed, accelerate, lightning = said()
    assert {deepspeed.code, accelerate.code} == {"others.same"}
    assert accelerate.what == "Accelerate 1.15.0 would choose npu too"
    assert (lightning.level, lightning.code) == (Level.WARNING, "others.differs")
    assert lightning.what == "Lightning 2.6.6 would choose cpu, and accel_core chooses npu"
    assert "trainer_options()" in lightning.step
    deepspeed, accelerate, lightning = said(ACCEL_BLOCK="npu")
    assert (accelerate.level, accelerate.code) == (Level.OK, "others.same")  # it has no device that is seen
    assert (deepspeed.level, deepspeed.code) == (Level.WARNING, "others.differs")
    assert deepspeed.what == "DeepSpeed 0.19.8 would choose npu, and accel_core chooses cpu"
    assert deepspeed.step.startswith("export DS_ACCELERATOR=cpu ")
    deepspeed, accelerate, lightning = said(DS_ACCELERATOR="cpu")
    assert (deepspeed.level, lightning.level) == (Level.OK, Level.OK)
    assert (accelerate.code, accelerate.step) == ("others.differs", "export ACCELERATE_USE_CPU=1")
    assert said(DS_ACCELERATOR="cpu", ACCELERATE_USE_CPU="1")[1].code == "others.same"


def test_a_pin_that_only_we_understand(frameworks):
    deepspeed, *_ = said(DS_ACCELERATOR="npu,cpu")
    assert (deepspeed.level, deepspeed.code) == (Level.WARNING, "others.fails")
    assert "it refuses DS_ACCELERATOR='npu,cpu', expected exactly one of cuda, cpu" in deepspeed.what
    assert deepspeed.step.startswith("export DS_ACCELERATOR=npu ")
    [deepspeed, *_] = said(DS_ACCELERATOR="npu,cpu", ACCEL_INTEGRATIONS="deepspeed")
    assert (deepspeed.level, deepspeed.code) == (Level.OK, "others.integrated")


def test_a_package_without_its_device_and_one_that_breaks(frameworks):
    frameworks.backend("npu", 700, vendor_import="torch_npu", extra=NO_DEVICE)
    deepspeed, accelerate, _ = said()
    assert deepspeed.code == "others.differs"  # a package that imports is enough for it
    assert accelerate.code == "others.same"
    frameworks.backend("npu", 700, vendor_import="torch_npu")
    frameworks.module("torch_npu", "raise RuntimeError('CANN is not sourced')")
    deepspeed, accelerate, _ = said()
    assert deepspeed.code == "others.fails"
    assert "import torch_npu fails in it: RuntimeError: CANN is not sourced" in deepspeed.what
    assert accelerate.code == "others.same"  # its import is guarded
    frameworks.module("torch_npu", "raise ImportError('libhccl.so')")
    assert said()[0].code == "others.same"  # as though it were not installed


def test_what_is_not_installed_is_told_where_all_is_asked_for(frameworks):
    *_, finding = said(thorough=True)
    assert finding.what == "not installed: Transformers' Trainer, vLLM, SGLang, Ray"
    assert finding.facts["Transformers' Trainer (5.23.0, training_args.py, _setup_devices)"] == "npu"


def test_hardware_that_the_servers_see_without_torch(torch_world, monkeypatch):
    """NVML shows GPUs that a variable hides from torch."""
    torch_world.distribution("vllm", "0.33.0")
    known = vendors.KnownHardware("NVIDIA GPU", "cuda", "accel-cuda", devices.Evidence(("/dev/nvidia0",)))
    monkeypatch.setattr(vendors, "known_hardware", lambda *root: (known,))
    finding, *_ = said()
    assert finding.what == "vLLM 0.33.0 would choose cuda, and accel_core chooses cpu"


@pytest.mark.parametrize(
    ("framework", "here", "answer"),
    [
        ("vLLM", {"plugins": {"vllm.platform_plugins": ("ascend",)}}, "npu"),
        ("vLLM", {"plugins": {"vllm.platform_plugins": ("ascend", "metal")}}, ""),
        ("vLLM", {"plugins": {"vllm.platform_plugins": ("ascend", "metal")},
                  "environ": {"VLLM_PLUGINS": "ascend"}}, "npu"),
        ("vLLM", {"version": "0.33.0+cpu", "hardware": frozenset({"NVIDIA GPU"})}, "cpu"),
        ("vLLM", {"hardware": frozenset({"NVIDIA GPU"}), "darwin": True}, ""),
        ("vLLM", {"hardware": frozenset({"AMD GPU"}), "importable": frozenset({"amdsmi"})}, "cuda"),
        ("SGLang", {"available": frozenset({"xpu", "cuda"})}, "cuda"),
        ("SGLang", {"available": frozenset({"cuda"}), "environ": {"SGLANG_USE_CPU_ENGINE": "1"}}, "cpu"),
        ("SGLang", {"environ": {"SGLANG_PLATFORM": "aurora"}}, ""),
        ("SGLang", {"environ": {"SGLANG_PLATFORM": "aurora"},
                    "plugins": {"sglang.srt.platforms": ("aurora", "borealis")}}, "aurora"),
        ("Ray", {"hardware": frozenset({"NVIDIA GPU"}), "available": frozenset({"cuda"})}, "cuda"),
        ("Ray", {"hardware": frozenset({"Ascend NPU"}), "available": frozenset({"npu"})}, "npu"),
        ("Ray", {"available": frozenset({"mlu"})}, "cpu"),
    ],
)  # fmt: skip
def test_rules_of_what_is_not_installed_here(framework, here, answer):
    found = choice(framework, **here)
    assert found.device == answer
    assert bool(found.fails) is not bool(answer)
