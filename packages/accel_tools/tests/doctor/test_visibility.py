"""Variables of visible devices, composed: physical to logical numbers, and what disappears without a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accel_core
from accel_core.backend import Backend
from accel_core.machine.visible_devices import format_visible_devices
from accel_tools.doctor.visibility import Step, Visibility, rewritten, visibility


def backend(grammar, *variables, filters=()):
    return Backend(
        name="npu",
        priority=1,
        device_type="npu",
        visibility=accel_core.Visibility(variables, filters=filters, grammar=grammar),
    )


CUDA = backend("cuda", "CUDA_VISIBLE_DEVICES")
ROCM = backend("cuda", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", filters=("ROCR_VISIBLE_DEVICES",))


def cuda(value, count=4):
    return visibility(CUDA, {"CUDA_VISIBLE_DEVICES": value}, count)


def test_without_a_variable_everything_is_seen():
    everything = visibility(CUDA, {}, 4)
    assert (everything, everything.logical) == (Visibility((), None), {})


@pytest.mark.parametrize(
    ("value", "count", "seen", "lost"),
    [
        ("2,0", 4, (2, 0), ""),
        ("0,1", 1, (0,), "there is no device 1, which ends the list: 1 not seen"),
        ("1,9,0", 4, (1,), "there is no device 9, which ends the list: 9, 0 not seen"),
        ("9", 4, (), "there is no device 9, which ends the list: 9 not seen"),
        ("0,99", None, (0, 99), ""),  # nobody knows how many there are
        ("", 4, (), ""),
        ("0,-1,1", 4, (0,), "'-1' ends the list"),
        ("0,1,0", 4, (), "'0' is there twice"),
        ("GPU-1a2b,GPU-3c4d", 4, ("GPU-1a2b", "GPU-3c4d"), ""),
    ],
)
def test_cuda(value, count, seen, lost):
    found = cuda(value, count)
    assert (found.devices, found.steps) == (seen, (Step("CUDA_VISIBLE_DEVICES", value, lost),))


def test_other_grammars_and_ids_that_are_not_there():
    npu = backend("ascending", "ASCEND_RT_VISIBLE_DEVICES")
    found = visibility(npu, {"ASCEND_RT_VISIBLE_DEVICES": "1,7,8"}, 4)
    assert found.devices == (1,)
    assert found.steps[0].lost == "there is no device 7, which ends the list: 7, 8 not seen"
    xpu = backend("level-zero", "ZE_AFFINITY_MASK")
    found = visibility(xpu, {"ZE_AFFINITY_MASK": "2,1,0.1"}, 2)
    assert (found.devices, found.steps[0].lost) == (("0.1", 1), "there is no device 2")
    assert visibility(xpu, {"ZE_AFFINITY_MASK": ""}, 2).devices == (0, 1)  # no mask to Intel
    assert visibility(xpu, {"ZE_AFFINITY_MASK": ""}).devices is None
    hpu = backend("modules", "HABANA_VISIBLE_MODULES")
    assert visibility(hpu, {"HABANA_VISIBLE_MODULES": "6,7"}, 2).devices == (6, 7)  # modules, no indices


def test_uuids_that_name_no_device_or_several():
    uuids = ["GPU-1a2b3c4d-0000", "GPU-1a2b3c99-0000", "GPU-77777777-0000"]

    def seen(value, known):
        found = visibility(CUDA, {"CUDA_VISIBLE_DEVICES": value}, 3, known)
        return found.devices, found.steps[0].lost

    assert seen("GPU-7,GPU-1A2B3C4", uuids) == (("GPU-7", "GPU-1A2B3C4"), "")
    none = "there is no device GPU-5, which ends the list: GPU-5, GPU-7 not seen"
    assert seen("GPU-1a2b3c4,GPU-5,GPU-7", uuids) == (("GPU-1a2b3c4",), none)
    several = "GPU-1a is the beginning of 2 UUIDs, which ends the list: GPU-1a not seen"
    assert seen("GPU-7,GPU-1a", uuids) == (("GPU-7",), several)
    assert seen("2,0", uuids) == ((2, 0), "")
    assert seen("GPU-5", []) == (("GPU-5",), "")  # nobody knows
    assert seen("MIG-5", uuids) == (("MIG-5",), "")  # of a part of a GPU only the driver knows


def test_a_filter_first_and_the_other_counts_among_what_is_left():
    found = visibility(ROCM, {"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "1"}, 4)
    assert (found.devices, found.logical) == ((1,), {1: 0})
    found = visibility(ROCM, {"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "0,3"}, 4)
    assert found.devices == (3,)
    assert [step.lost for step in found.steps] == [
        "", "there is no device 3, which ends the list: 3 not seen",
    ]  # fmt: skip
    # After a filter it is known how many there are, whatever the machine has.
    assert visibility(ROCM, {"ROCR_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": "3"}).devices == ()


def test_of_two_names_the_first_counts():
    found = visibility(ROCM, {"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "2"}, 4)
    assert found.devices == (2,)
    assert found.steps[1] == Step("CUDA_VISIBLE_DEVICES", "0", overruled_by="HIP_VISIBLE_DEVICES")


def test_a_value_that_is_refused_is_told():
    found = visibility(backend("indices", "SDAA_VISIBLE_DEVICES"), {"SDAA_VISIBLE_DEVICES": "zero"}, 4)
    assert found.devices is None
    assert found.steps[0].malformed.startswith("'zero' is not valid, expected indices")


@given(st.permutations(range(8)).flatmap(lambda p: st.integers(1, 8).map(lambda n: p[:n])))
def test_logical_and_physical_numbers_are_each_others_inverse(ids):
    found = cuda(format_visible_devices("cuda", ids), 8)
    assert found.devices == tuple(ids)
    assert all(found.devices[logical] == physical for physical, logical in found.logical.items())
    assert sorted(found.logical.values()) == list(range(len(ids)))


@pytest.mark.parametrize(
    ("grammar", "value", "count", "better"),
    [
        ("cuda", "0,1", 1, "0"),
        ("cuda", "GPU-1a2b", 1, "GPU-1a2b"),
        ("cuda", "0,-1,1", 4, "0,1"),
        ("cuda", "1,1,0", None, "1,0"),
        ("cuda", "NoDevFiles", 4, ""),
        ("cuda", "9", 4, ""),
        ("ascending", "3, 1,3", 4, "1,3"),
        ("indices", "x,2,y,0", None, "2,0"),
        ("level-zero", "default", 2, ""),
        ("cuda", "GPU-1a2b,0", None, ""),
    ],
)
def test_what_to_write_instead(grammar, value, count, better):
    assert rewritten(grammar, value, count) == better
