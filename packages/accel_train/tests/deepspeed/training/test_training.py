"""Training with DeepSpeed on our accelerators equals training on DeepSpeed's own CPU accelerator, to the bit.

Two ranks, 12 steps, a small transformer, real text: every loss on every rank, and all parameters at the end.
"""

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from ds_training.configurations import CONFIGURATIONS, SAVED_AT, STEPS
from ds_training.runs import (
    BACKENDS,
    CLASSES,
    PATCHED,
    PLUGINS,
    RANKS,
    SINGLE,
    STAGES,
)

from accel_simulated import DEVICES

BY_NIGHT = pytest.mark.nightly(
    reason="the same trainings on the CPU, and on a device with less than a GPU"
)
#: By day one device; the CPU, and one with less than a GPU, by night.
OURS = [
    name if name == "acme" else pytest.param(name, marks=BY_NIGHT)
    for name in BACKENDS[1:]
]
#: DeepSpeed's Adams for the CPU are C++ that rounds otherwise than torch's functions, of which ours for other
#: devices are made: how far losses may then be off, relatively.
ROUNDED_OTHERWISE = {
    (name, device): 2e-6
    for name in (
        "FusedAdam, ZeRO 1",
        "offloaded optimizer, ZeRO 2",
        "offloaded optimizer, ZeRO 3",
    )
    for device in ("acme", "plain")
}
#: What each simulated device communicates over; plain has nothing of its own.
COLLECTIVES = {"acme": "accl", "plain": "staged"}
#: Whose operator an optimizer calls on these; on CPU it is DeepSpeed's own, compiled.
OPERATORS = {
    "FusedAdam, ZeRO 1": "accel_train.ops.portable.fused_adam.multi_tensor_adam",
    "offloaded optimizer, ZeRO 2": "accel_train.ops.portable.cpu_adam",
    "offloaded optimizer, ZeRO 3": "accel_train.ops.portable.cpu_adam",
}
BY_DAY = pytest.mark.nightly(
    reason="a configuration whose parts the others have by day"
)
NAMES = [
    pytest.param(name, marks=BY_DAY) if each.by_night else name
    for name, each in CONFIGURATIONS.items()
]
SAVED = [name for name, configuration in CONFIGURATIONS.items() if configuration.saves]


def learned(reports, first=0):
    """Losses from that step on, and parameters, of each rank."""
    return [
        (report["losses"][first - report["first"] :], report["parameters"])
        for report in reports
    ]


@pytest.mark.parametrize("name", NAMES)
def test_deepspeeds_own_accelerator_is_the_reference_and_learns(name, trainings):
    reports = trainings.reports("reference", name)
    for report in reports:
        assert (
            report["accelerator"]
            == "deepspeed.accelerator.cpu_accelerator.CPU_Accelerator"
        )
        assert report["collectives"] == "gloo"
        assert report["parameters on"] == ["cpu"]
        losses = [loss for step in report["losses"] for loss in step]
        assert len(report["losses"]) == STEPS
        assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    one, other = (report["parameters"] for report in reports)
    assert (one == other) == (CONFIGURATIONS[name].pipeline == 1)


@pytest.mark.parametrize("backend", OURS)
@pytest.mark.parametrize("name", NAMES)
def test_equals_deepspeeds_own_cpu(name, backend, trainings):
    equals_the_reference(name, backend, trainings)


def test_a_patched_deepspeed_does_without_activation(trainings):
    equals_the_reference(
        "bf16, ZeRO 1", PATCHED, trainings
    )  # which saves no checkpoint


def equals_the_reference(name, backend, trainings):
    device = "acme" if backend == PATCHED else backend
    expected, found = (
        trainings.reports("reference", name),
        trainings.reports(backend, name),
    )
    for rank, report in enumerate(found):
        assert report["accelerator"].startswith("accel_core.")
        simulated = COLLECTIVES.get(device)
        on = (simulated, [f"{device}:{rank}"]) if simulated else ("gloo", ["cpu"])
        assert (report["collectives"], report["parameters on"]) == on
        if simulated and name in OPERATORS:
            assert report["operator"] == OPERATORS[name]
    bound = ROUNDED_OTHERWISE.get((name, device))
    if bound is None:
        assert learned(found) == learned(expected)
    else:
        assert learned(found) != learned(expected), (
            "equal by now: take it out of ROUNDED_OTHERWISE"
        )
        for ours, theirs in zip(found, expected, strict=True):
            for losses, wanted in zip(ours["losses"], theirs["losses"], strict=True):
                assert losses == pytest.approx(wanted, rel=bound)


@pytest.mark.nightly(
    reason="DeepSpeed's own classes for vendors: what calls them is tried by day"
)
@pytest.mark.parametrize("backend", CLASSES)
@pytest.mark.parametrize("name", STAGES)
def test_a_class_of_deepspeeds_interface_equals_its_cpu(name, backend, trainings):
    found, device = trainings.reports(backend, name), DEVICES[backend.partition(",")[0]]
    kind = CLASSES[backend] or PLUGINS[device.name]
    places = [
        f"{device.alias_of or device.name}:{rank % device.devices}"
        for rank in range(RANKS)
    ]
    on = [
        (report["accelerator"], report["collectives"], report["parameters on"])
        for report in found
    ]
    assert on == [(kind, device.collective or "staged", [place]) for place in places]
    assert learned(found) == learned(
        trainings.reports(SINGLE if device.name in PLUGINS else "reference", name)
    )


REFERENCE = pytest.param(
    BACKENDS[0], marks=pytest.mark.nightly(reason="DeepSpeed's; by day ours goes on")
)


@pytest.mark.parametrize("backend", [REFERENCE, *OURS])
@pytest.mark.parametrize("name", SAVED)
def test_other_processes_go_on_from_a_checkpoint(name, backend, trainings):
    resumed = trainings.reports(backend, name, resumed=True)
    assert [report["first"] for report in resumed] == [SAVED_AT] * RANKS
    assert learned(resumed, SAVED_AT) == learned(
        trainings.reports("reference", name), SAVED_AT
    )
