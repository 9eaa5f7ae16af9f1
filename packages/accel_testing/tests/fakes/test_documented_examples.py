"""The tests that the documents show for fakes pass as they stand there, in a folder of their own."""

import re
import sys
from pathlib import Path

import pytest
from accel_tests.children import SIMULATED

from accel_testing import run

PAGE = Path(__file__).parents[4] / "docs" / "howto" / "test-without-a-device.md"


@pytest.mark.skipif(not PAGE.exists(), reason="a source distribution has no documents")
def test_each_example_passes(torch_world, tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    folder = tmp_path / "project"
    folder.mkdir()
    for number, block in enumerate(blocks):
        (folder / f"test_{number}.py").write_text(block)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        ".",
    ]
    # As on the machine of whoever has pinned something else, and blocks it all.
    user = {"DS_ACCELERATOR": "npu", "ACCEL_BLOCK": "acme"}
    said = run(command, path=[SIMULATED], variables=user, cwd=folder).stdout
    assert said.splitlines()[-1].startswith(
        f"{len(re.findall(r'def test_', ''.join(blocks)))} passed"
    )
