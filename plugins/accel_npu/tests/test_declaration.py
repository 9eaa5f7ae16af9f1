"""The declaration, and what is no Ascend."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

import accel_core
from accel_npu import BACKEND


def test_the_declaration():
    assert (BACKEND.name, BACKEND.priority, BACKEND.device_type) == ("npu", 700, "npu")
    assert BACKEND.vendor_imports == ("torch_npu",)
    assert BACKEND.requires == ("torch>=2.6",)
    assert BACKEND.in_torch.private_use1 is True
    assert BACKEND.communication_backend == "hccl"
    assert BACKEND.compile_backend == "inductor"
    assert BACKEND.visibility.variables == ("ASCEND_RT_VISIBLE_DEVICES",)
    assert BACKEND.visibility.grammar == "ascending"
    assert BACKEND.environment.forward[:4] == ("ASCEND", "HCCL", "LD_LIBRARY", "PATH")
    assert BACKEND.url
    assert BACKEND.install_hint


@pytest.mark.parametrize(
    ("node", "is_a_card"),
    [("davinci0", True), ("davinci12", True), ("davinci_manager", False), ("hisi_hdc", False)],
)
def test_which_nodes_are_cards(node, is_a_card):
    assert any(fnmatch(f"/dev/{node}", pattern) for pattern in BACKEND.hardware.nodes) is is_a_card


MODALIAS = "pci:v000019E5d0000{}sv000019E5sd00000000bc12sc00i00\n"


@pytest.mark.parametrize(
    ("device", "is_a_card"), [("D802", True), ("D803", True), ("A250", False), ("A255", False)]
)
def test_a_kunpengs_engines_are_no_cards(tmp_path, device, is_a_card):
    """Same vendor, same class: HiSilicon's ZIP and RDE engines."""
    file = tmp_path / "sys/bus/pci/devices/0000:75:00.0/modalias"
    file.parent.mkdir(parents=True)
    file.write_text(MODALIAS.format(device))
    assert bool(accel_core.evidence(BACKEND, str(tmp_path))) is is_a_card
