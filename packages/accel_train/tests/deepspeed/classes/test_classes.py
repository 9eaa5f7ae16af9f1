"""Each accelerator class of DeepSpeed and ours on one simulated device: every difference has a reason."""

from importlib import metadata
from pathlib import Path

import pytest
from accel_tests.children import UNTRACED
from accel_tests.deepspeed_classes import DEEPSPEED
from accel_tests.deepspeed_classes.table import (
    VENDORS,
    Difference,
    differences,
    problems,
)

HERE = Path(__file__).parent
SHARED = HERE.parents[4] / "tests" / "support"
#: The real torch_npu has a suite of its own, plugins/accel_npu/tests/real, which asks the same.
SIMULATED = [vendor for vendor in VENDORS if vendor != "npu"]
#: What the CPU's answers would otherwise depend on: the launcher, and the machine's instructions.
OF_THE_PROCESSOR = {"LOCAL_SIZE": "2", "LOCAL_RANK": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"}
#: Most releases of torch that DeepSpeed runs on have Metal so.
OF_METAL = {"ACCEL_SIMULATE_OLD_METAL": "1"}


@pytest.mark.parametrize("vendor", SIMULATED)
def test_every_difference_has_its_reason(vendor, tmp_path):
    expected, report = differences(vendor), _ask(vendor, tmp_path)
    found = problems(report, expected)
    assert not found, "\n".join(found)


def _ask(vendor, folder):
    """The report of a process in which the device, DeepSpeed and the plugin's sources are."""
    from accel_tests.on_disk import install_real_plugin
    from accel_tests.on_simulated import run_on

    version = metadata.version("deepspeed")
    if version != DEEPSPEED:
        pytest.skip(
            f"the table is for deepspeed {DEEPSPEED}, and {version} is installed"
        )
    # The CPU needs no device: this one's package is there and nobody imports it.
    device = "acme" if vendor == "cpu" else vendor
    # Coverage counts the integrations here, which these processes never import.
    variables = {
        "DS_ACCELERATOR": vendor,
        "OMP_NUM_THREADS": "1",
        **UNTRACED,
    }
    variables |= {"cpu": OF_THE_PROCESSOR, "mps": OF_METAL}.get(vendor, {})
    if vendor != "cpu":
        install_real_plugin(folder, vendor)
    return run_on(
        device,
        "on_simulated:report",
        vendor,
        environ=variables,
        path=[folder, SHARED, HERE],
        timeout=300,
    ).answer


REPORT = {
    "members": 2,
    "not asked": [],
    "answers": {
        "device": {"theirs": "NoneType None", "ours": "device cpu"},
        "device_name": {"theirs": "str cpu", "ours": "str cpu"},
    },
}
ROW = Difference("NoneType *", "device", "a reason")


def test_what_the_table_says_passes():
    assert problems(REPORT, {"device": ROW}) == []


FAILING = [
    (REPORT, {}, "device: differs, and the table has no reason"),
    (
        REPORT,
        {"device": ROW._replace(ours="NoneType")},
        "device: differs otherwise than the table says",
    ),
    (
        REPORT,
        {"device": ROW, "device_name": ROW},
        "device_name: in the table, and both answer str cpu",
    ),
    (
        REPORT,
        {"device": ROW, "devise": ROW},
        "devise: in the table, and nobody asks it",
    ),
    (
        {**REPORT, "not asked": ["seed"]},
        {"device": ROW},
        "seed: a member of DeepSpeed's class",
    ),
]


@pytest.mark.parametrize(("report", "expected", "words"), FAILING)
def test_what_it_does_not_say_fails(report, expected, words):
    (problem,) = problems(report, expected)
    assert problem.startswith(words)
