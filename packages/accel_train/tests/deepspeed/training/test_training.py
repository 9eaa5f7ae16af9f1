"""Training with DeepSpeed on our accelerators equals training on DeepSpeed's own CPU accelerator, to the bit.

Two ranks, 12 steps, a small transformer, real text: every loss on every rank, and all parameters at the end.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from ds_training.configurations import CONFIGURATIONS, SAVED_AT, STEPS
from ds_training.runs import BACKENDS, PATCHED, RANKS

pytestmark = pytest.mark.slow

#: By day one device; the CPU, and one with less than a GPU, by night.
OURS = [
    name
    if name == "acme"
    else pytest.param(
        name,
        marks=pytest.mark.nightly(
            reason="the same trainings on the CPU, and on a device with less than a GPU"
        ),
    )
    for name in BACKENDS[1:]
]
#: Where other arithmetic is done on purpose, and how far losses may then be off, relatively. DeepSpeed's
#: `multi_tensor_adam` for CPU is C++ with fused multiply-adds; ours for other devices is made of torch's
#: operators, each of which rounds.
ROUNDED_OTHERWISE = {("FusedAdam, ZeRO 1", device): 2e-6 for device in ("acme", "plain")}
#: What each simulated device communicates over; plain has nothing of its own.
COLLECTIVES = {"acme": "accl", "plain": "staged"}
#: Whose operator an optimizer calls on these; on CPU it is DeepSpeed's own, compiled.
OPERATORS = {
    "FusedAdam, ZeRO 1": "accel_train.ops.portable.fused_adam.multi_tensor_adam",
    "offloaded optimizer, ZeRO 2": "accel_train.ops.cpu_adam.CPUAdam",
    "offloaded optimizer, ZeRO 3": "accel_train.ops.cpu_adam.CPUAdam",
}
#: By day what the others do not cover.
NAMES = [
    pytest.param(name, marks=pytest.mark.nightly(reason="a configuration whose parts the others have by day"))
    if configuration.by_night
    else name
    for name, configuration in CONFIGURATIONS.items()
]
SAVED = [name for name, configuration in CONFIGURATIONS.items() if configuration.saves]


def difference(expected, found):
    """The first step whose loss differs on any rank, or that the parameters do; empty when all is equal."""
    for step in range(found[0]["first"], STEPS):
        for rank in range(RANKS):
            far = farthest(expected[rank : rank + 1], found[rank : rank + 1], [step])
            if far:
                return f"step {step}, rank {rank}: {far:.0e}"
    different = [rank for rank in range(RANKS) if expected[rank]["parameters"] != found[rank]["parameters"]]
    return f"parameters of {different}" if different else ""


def farthest(expected, found, steps=range(STEPS)):
    """How far the losses of these steps are off at most, relatively; 0 only if all are equal to the bit."""
    offs = [0.0]
    for wanted, got in zip(expected, found, strict=True):
        for step in steps:
            pairs = zip(wanted["losses"][step], got["losses"][step - got["first"]], strict=True)
            offs += [abs(float.fromhex(b) / float.fromhex(a) - 1) or 1e-30 for a, b in pairs if a != b]
    return max(offs)


@pytest.mark.parametrize("name", NAMES)
def test_deepspeeds_own_accelerator_is_the_reference_and_learns(name, trainings, record):
    reports = trainings.reports("reference", name)
    record(name, "reference", "the reference")
    for report in reports:
        assert report["accelerator"] == "deepspeed.accelerator.cpu_accelerator.CPU_Accelerator"
        assert (report["collectives"], report["parameters on"]) == ("gloo", ["cpu"])
        losses = [float.fromhex(value) for step in report["losses"] for value in step]
        assert len(report["losses"]) == STEPS
        assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    one, other = (report["parameters"] for report in reports)
    assert (one == other) == (CONFIGURATIONS[name].pipeline == 1)


@pytest.mark.parametrize("backend", OURS)
@pytest.mark.parametrize("name", NAMES)
def test_equals_deepspeeds_own_cpu(name, backend, trainings, record):
    equals_the_reference(name, backend, trainings.reports(backend, name), trainings, record)


@pytest.mark.nightly(reason="all trainings again for each patch; by day one")
@pytest.mark.parametrize("patch", PATCHED)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_patched_deepspeed_does_without_activation(name, patch, trainings, record):
    equals_the_reference(name, patch, trainings.reports(patch, name), trainings, record)


def test_by_day_a_patched_deepspeed_trains_one(trainings, record):
    name, patch = "bf16, ZeRO 1", "native"  # which saves no checkpoint
    equals_the_reference(name, patch, trainings.reports(patch, name, alone=True), trainings, record)


def equals_the_reference(name, backend, found, trainings, record):
    device = "acme" if backend in PATCHED else backend
    expected = trainings.reports("reference", name)
    differs, bound = difference(expected, found), ROUNDED_OTHERWISE.get((name, device))
    far = farthest(expected, found)
    record(name, backend, f"within {far:.0e}" if bound and far < bound else differs or "equal")
    for rank, report in enumerate(found):
        assert report["accelerator"].startswith("accel_core.")
        simulated = COLLECTIVES.get(device)
        on = (simulated, [f"{device}:{rank}"]) if simulated else ("gloo", ["cpu"])
        assert (report["collectives"], report["parameters on"]) == on
        if simulated and name in OPERATORS:
            assert report["optimizer"][1] == OPERATORS[name]
    if bound:
        assert differs, "equal by now: take it out of ROUNDED_OTHERWISE"
        assert far < bound
    else:
        assert not differs, f"{name} on {backend}: {differs}"


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(
            BACKENDS[0],
            marks=pytest.mark.nightly(reason="the reference goes on from its own checkpoint; by day ours do"),
        ),
        *OURS,
    ],
)
@pytest.mark.parametrize("name", SAVED)
def test_other_processes_go_on_from_a_checkpoint(name, backend, trainings, record):
    uninterrupted = trainings.reports("reference", name)
    resumed = trainings.reports(backend, name, resumed=True)
    differs = difference(uninterrupted, resumed)
    record(f"{name}, saved and loaded", backend, differs or "equal")
    assert [report["first"] for report in resumed] == [SAVED_AT] * RANKS
    assert not differs, f"{name} on {backend}, from step {SAVED_AT} in other processes: {differs}"
