"""Machines of public bug reports: the plan for each is the answer that its thread settled on.

machines/MAKER.jsonl has one machine a line. `said` quotes the thread. Facts that a thread lacks are derived:
PCI ids from the GPU's name (pci.ids), AMD's architecture from the card's, `/dev` nodes, the tree of a Jetson
and Windows' driver folders from the maker.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from accel_tools.setup import formats

MACHINES = [
    json.loads(line)
    for file in sorted(Path(__file__).with_name("machines").glob("*.jsonl"))
    for line in file.read_text("utf-8").splitlines()
]
PAGE = Path(__file__).parents[4] / "docs/evidence/versions.md"
_KEYS = {
    "architecture",
    "files",
    "gfx",
    "nodes",
    "nvidia",
    "nvidia_smi",
    "pci",
    "python",
    "system",
}


#: Where more is said, by words of the reason; each is some machine's.
ADDRESSES = {
    "NVIDIA's driver is not loaded": "nvidia.com", "only for driver 450.80.02 and newer": "nvidia.com",
    "Kepler": "pytorch.org", "no wheels for aarch64 with code for the GPUs": "pytorch.org",
    "are older than Arc": "get_start_xpu", "of an unknown model": "get_start_xpu",
    "Intel discrete GPU are for x86_64": "pytorch.org", "AMD GPU are for x86_64": "pytorch.org",
    "no wheels for gfx90c": "rocm.docs.amd.com", "compute wrong results": "unslothai",
    "NVIDIA's wheels for its JetPack": "jetson",
    "the packages for the Intel Gaudi": "habana.ai", "CANN 8.0rc1 is installed": "gitcode.com",
    "3.15, and torch 2.14 has wheels for Python 3.10": "pytorch.org", "Macs with Intel": "pytorch.org",
    "no file in WSL2 contains the version": "nvidia.com", "AMD's wheels are for Python": "rocm.docs.amd.com",
}  # fmt: skip


@pytest.mark.parametrize(
    "line", MACHINES, ids=lambda line: line["source"].removeprefix("https://")
)
def test_the_plan_is_the_answer_of_the_thread(planned_for, line):
    found = planned_for(line["machine"])
    answer = line["answer"]
    if "unknown" in answer:
        assert answer["unknown"] in found.why_no_command
    else:
        assert {key: getattr(found, key) for key in answer} == answer
        assert not found.why_no_command


UNKNOWN = [line for line in MACHINES if "unknown" in line["answer"]]


@pytest.mark.parametrize(
    "line", UNKNOWN, ids=lambda line: line["source"].removeprefix("https://")
)
def test_a_machine_that_nobody_knows_gets_an_address_and_no_command(planned_for, line):
    found = planned_for(line["machine"])
    assert found.url
    assert found.torch == ""
    assert formats.format_plan(found, "pip") == ""
    for reason, place in ADDRESSES.items():
        if reason in found.why_no_command:
            assert place in found.url


def test_a_line_has_its_source_and_its_facts():
    for line in MACHINES:
        assert set(line) == {"source", "said", "machine", "answer", "why"}, line
        assert line["source"].startswith("https://"), line
        assert 0 < len(line["said"]) <= 200, line
        assert 0 < len(line["why"]) <= 120, line
        assert set(line["machine"]) <= _KEYS, line
        assert set(line["answer"]) == {"unknown"} or {"target"} < set(line["answer"]), (
            line
        )


def test_a_thread_appears_twice_only_with_another_machine():
    seen = Counter(
        json.dumps([line["source"], line["machine"]], sort_keys=True)
        for line in MACHINES
    )
    assert max(seen.values()) == 1


@pytest.mark.skipif(not PAGE.is_file(), reason="no pages without the repository")
def test_the_page_has_the_counts():
    unknown = sum("unknown" in line["answer"] for line in MACHINES)
    text = PAGE.read_text("utf-8")
    assert f"the machines of {len(MACHINES)} public bug reports" in text
    assert f"the right command for {len(MACHINES) - unknown} machines" in text
    assert f"{unknown} machines as unknown" in text
