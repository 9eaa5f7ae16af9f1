"""`activate()`: DeepSpeed gets the accelerator of accel, before and after its import."""

import importlib
import inspect
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests.forks import forked
from looks import activated, shared

from accel_core import AccelError, BackendNotFoundError, LaunchError

#: On a device by day, on the CPU by night, where DeepSpeed has an accelerator of its own.
BY_NIGHT = pytest.mark.nightly(reason="the same on the CPU; by day on a device")
ON = pytest.mark.parametrize("device", [pytest.param("cpu", marks=BY_NIGHT), "acme"])


@ON
@forked()
def test_before_the_import(device):
    found, _ = activated()
    assert "deepspeed" not in sys.modules, "activating imports nothing of DeepSpeed"
    assert shared() == device
    assert activated()[0] == found, "a second time is the same"
    compiling = inspect.signature(
        sys.modules["deepspeed"].DeepSpeedEngine.compile
    ).parameters["backend"]
    assert compiling.default == {"cpu": "inductor", "acme": "accel"}[device]


@forked("cpu")
def test_after_the_import_deepspeeds_own_is_replaced_everywhere():
    import deepspeed
    from deepspeed.accelerator import set_accelerator
    from deepspeed.ops import op_builder
    from deepspeed.runtime import utils

    import accel_core

    old, before = deepspeed.get_accelerator(), op_builder.FusedLambBuilder
    # docs/howto/deepspeed.md has these words.
    with pytest.raises(AssertionError, match="is not subclass of DeepSpeedAccelerator"):
        set_accelerator(accel_core.get_accelerator())
    assert deepspeed.get_accelerator() is old
    activated()
    assert shared() == "cpu"
    ours = accel_core.get_accelerator()
    set_accelerator(ours)
    assert shared() == "cpu"
    assert (
        op_builder.FusedLambBuilder
        is ours.get_op_builder("FusedLambBuilder")
        is not before
    )
    assert utils.torch_memory_reserved == ours.memory_reserved
    modules = [
        module for name, module in sys.modules.items() if name.startswith("deepspeed.")
    ]
    values = [
        (module.__name__, value)
        for module in modules
        for value in vars(module).values()
    ]
    assert [
        name for name, v in values if v is old or getattr(v, "__self__", None) is old
    ] == []
    assert deepspeed.ops.__compatible_ops__["deepspeed_not_implemented"] is False


@forked("acme", DS_ACCELERATOR="cpu")
def test_another_choice_of_deepspeeds_is_refused_and_explained():
    import deepspeed
    from deepspeed.ops.op_builder import all_ops

    from accel_train.deepspeed import activate

    os.environ["DS_ACCELERATOR"] = "acme"
    words = (
        r"has chosen cpu \(deepspeed.accelerator.cpu_accelerator.CPU_Accelerator\).*accel-core has chosen "
        r"<TorchAccelerator 'acme' \(accel-acme 1.0\), simulated.*before `import deepspeed`.*force=True"
    )
    with pytest.raises(RuntimeError, match=words) as refused:
        activate()
    assert isinstance(refused.value, AccelError)
    assert deepspeed.get_accelerator().device_name() == "cpu", (
        "a refusal changes nothing"
    )
    assert "ACCEL_INTEGRATIONS" not in os.environ
    # LAMB has no builder for the CPU among DeepSpeed's, and a portable one of ours for acme.
    assert "fused_lamb" not in all_ops.ALL_OPS
    activate(force=True)
    assert shared() == "acme"
    assert "fused_lamb" in all_ops.ALL_OPS
    assert deepspeed.ops.__compatible_ops__["fused_lamb"]


@forked("cpu", DS_ACCELERATOR="nope")
def test_a_pin_that_cannot_be_honoured_changes_nothing():
    with pytest.raises(BackendNotFoundError, match="nope"):
        activated()
    assert "ACCEL_INTEGRATIONS" not in os.environ


def test_a_pin_that_cannot_be_honoured_stops_the_import_in_a_child_process(
    child, on_cpu
):
    """There nobody calls `activate()`: DeepSpeed must not fall back to a choice of its own."""
    variables = {**on_cpu, "DS_ACCELERATOR": "nope", "ACCEL_INTEGRATIONS": "deepspeed"}
    ended = child(["-c", "import deepspeed"], variables)
    assert ended.returncode != 0
    assert "BackendNotFoundError" in ended.stderr.splitlines()[-1]


@forked("acme")
def test_the_limits_of_an_unknown_device_are_one_warning():
    import torch

    found, said = activated()
    limits, version, _ = found.limits, found.version, activated()
    assert (
        sum("GPUDirect" in limit or "enable_cuda_graph" in limit for limit in limits)
        == 2
    )
    assert not any("default_generators" in limit for limit in limits)
    assert [said.count(limit) for limit in limits] == [1] * len(limits)
    assert said.count(f"DeepSpeed {version} runs on acme.") == 1
    # It restores the random state for activation checkpointing through what the simulated device has.
    del torch.acme.default_generators
    assert any("default_generators" in limit for limit in activated()[0].limits)


@pytest.mark.parametrize("device", ["acme", "cpu"])
@forked(RANK="1")
def test_other_ranks_and_known_devices_give_no_warning(device):
    if device == "cpu":
        del os.environ["RANK"]
    found, said = activated()
    assert found.limits
    assert "DeepSpeed has the following limits" not in said


@forked("cpu")
def test_members_that_a_newer_deepspeed_asks_for_are_named():
    """Intel's plugin died of 13 new abstract methods; ours starts, and says what may be missing."""
    from deepspeed.accelerator import DeepSpeedAccelerator

    DeepSpeedAccelerator.__abstractmethods__ |= {"from_the_future"}
    assert "from_the_future" in activated()[0].limits[-1]
    assert shared() == "cpu"


@forked("acme")
def test_the_package_that_its_build_imports_is_ours_too(tmp_path):
    """DeepSpeed's setup.py imports the same files as a top-level package `accelerator`."""
    (tmp_path / "accelerator").symlink_to(
        Path(find_spec("deepspeed").origin).parent / "accelerator"
    )
    found, _ = activated()
    assert importlib.import_module("accelerator").get_accelerator() is found.accelerator


@forked("cpu")
def test_a_stranger_of_that_name_is_left_alone(tmp_path):
    (tmp_path / "accelerator").mkdir()
    (tmp_path / "accelerator" / "real_accelerator.py").write_text("speed = 3\n")
    activated()
    real = importlib.import_module("accelerator.real_accelerator")
    assert [name for name in vars(real) if not name.startswith("_")] == ["speed"]


@ON
@forked()
def test_a_torch_npu_that_is_not_chosen_is_not_imported(device, tmp_path):
    """DeepSpeed imports its builders for npu on every machine, and they import torch_npu."""
    (tmp_path / "torch_npu.py").write_text(
        "raise RuntimeError('two accelerators at the same time')"
    )
    if os.fork() == 0:
        os.environ["DS_ACCELERATOR"] = "cpu"
        with pytest.raises(
            RuntimeError, match="two accelerators"
        ):  # the danger is real
            importlib.import_module("deepspeed")
        os._exit(0)
    assert os.wait()[1] == 0
    activated()
    assert shared() == device
    assert "torch_npu" not in sys.modules


@forked("cpu")
def test_reloads_keep_ours_and_the_source_is_still_found():
    """A copy of ours that was loaded anew takes over: two hooks must not ask each other."""
    from accel_train.deepspeed import _install

    first = activated()[0].accelerator
    importlib.reload(_install)
    activated()
    for name in [
        name
        for name in sys.modules
        if name.partition(".")[0] in ("accel_core", "accel_train")
    ]:
        del sys.modules[name]
    assert activated()[0].accelerator is not first
    assert shared() == "cpu"
    real = importlib.import_module("deepspeed.accelerator.real_accelerator")
    assert "def set_accelerator" in inspect.getsource(real)
    importlib.reload(real)
    assert shared() == "cpu"
    assert [type(finder).__name__ for finder in sys.meta_path].count("ImportHook") == 1


@forked("cpu", ACCEL_COMMUNICATION_BACKEND="smoke")
def test_a_communication_backend_that_torch_has_not_is_said_at_activation():
    with pytest.raises(
        LaunchError,
        match=r"torch\.distributed has no communication backend 'smoke' in this process",
    ):
        activated()
