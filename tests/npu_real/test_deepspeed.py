"""Member by member against DeepSpeed 0.19.8's own NPU_Accelerator, in one process, on the real torch_npu."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from differences import DIFFERENCES, table
from stand_in.children import run


@pytest.fixture(scope="module")
def report(stand_in):
    try:
        version = metadata.version("deepspeed")
    except metadata.PackageNotFoundError:
        pytest.skip("deepspeed is not installed; `./dev npu_real` has an environment with it")
    if version != "0.19.8":
        pytest.skip(f"the table is for deepspeed 0.19.8, and {version} is installed")
    return run("from checks.peer import main; main()", cann=stand_in, DS_ACCELERATOR="npu").answer


def test_every_member_of_deepspeeds_class_was_asked(report):
    assert report["not asked"] == []
    print(f"\n{len(report['answers'])} cases asked of both")


def test_every_difference_is_explained(report):
    found = {name: both for name, both in report["answers"].items() if both["theirs"] != both["ours"]}
    assert {name: both for name, both in found.items() if name not in DIFFERENCES} == {}, "unexplained"
    assert set(DIFFERENCES) - set(found) == set(), "explained, and no longer there"


@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_difference_is_the_one_explained(report, name):
    both, told = report["answers"][name], DIFFERENCES[name]
    assert both["theirs"].startswith(told.theirs)
    assert both["ours"].startswith(told.ours)


def test_the_readme_has_the_table():
    assert table() in Path(__file__).with_name("README.md").read_text(encoding="utf-8")
