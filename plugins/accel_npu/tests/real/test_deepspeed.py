"""Member by member against DeepSpeed 0.19.8's own NPU_Accelerator, in one process, on the real torch_npu."""

from importlib import metadata

import pytest
from accel_tests.deepspeed_classes import DEEPSPEED
from accel_tests.deepspeed_classes.table import count, differences, problems
from stand_in.children import run


def test_every_difference_has_its_reason(stand_in):
    try:
        version = metadata.version("deepspeed")
    except metadata.PackageNotFoundError:
        pytest.skip(
            "deepspeed is not installed; `./dev npu-real` has an environment with it"
        )
    if version != DEEPSPEED:
        pytest.skip(
            f"the table is for deepspeed {DEEPSPEED}, and {version} is installed"
        )
    report = run(
        "from checks.peer import main; main()", cann=stand_in, DS_ACCELERATOR="npu"
    ).answer
    expected = differences("npu")
    print(f"\n{count(report, expected)}")
    found = problems(report, expected)
    assert not found, "\n".join(found)
