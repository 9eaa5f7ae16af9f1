"""A wheel that was built at API level 1 goes on working, unchanged; data/README.md says how it was made."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from accel_testing.asking import judge, only
from accel_testing.children import clean_environment, run_python

from accel_core.conformance.catalogue import checks
from accel_core.detection.records import Candidate, Status

WHEEL = Path(__file__).parent / "data" / "accel_old-1.0-py3-none-any.whl"


@pytest.fixture
def installed(world):
    """The wheel is installed."""
    with zipfile.ZipFile(WHEEL) as archive:
        archive.extractall(world.site)
    return world


def test_it_is_found_and_its_hooks_are_called(torch_world, installed, monkeypatch):
    torch_world.distribution("torch", "2.13.0")
    found = only("old")
    assert isinstance(found, Candidate)
    assert (found.backend.api_level, found.priority, str(found)) == (1, 150, "old (accel-old 1.0)")
    monkeypatch.setenv("OLD_SWITCH", "off")
    verdict = judge("old")
    assert (verdict.status, verdict.reason, verdict.hint) == (
        Status.NO_DEVICE, "OLD_SWITCH is off", "unset OLD_SWITCH",
    )  # fmt: skip


USE = """
import json
import accel_core
acc = accel_core.get_accelerator()
import torch
acc.manual_seed(7)
first = torch.rand(3, device=acc.device())
acc.manual_seed(7)
same = bool((torch.rand(3, device=acc.device()) == first).all())
scale = acc.create_op_builder("OldScaleBuilder").load().scale
print(json.dumps({
    "chosen": [accel_core.selection().how.value, acc.name, type(acc).__name__, acc.api_level],
    "own": [acc.total_memory(), acc.available_memory(0), acc.is_fp16_supported(), acc.export_envs()],
    "defaults": [acc.device_type, acc.training_dtype() == torch.float32, acc.memory_reserved(),
                 acc.communication_backend_name(), acc.is_bf16_native()],
    "computes": [same, scale(torch.ones(2, device=acc.device()), 3).tolist()],
}))
"""


@pytest.mark.slow
def test_it_is_chosen_and_works(installed):
    """Pinned, and built by its own hook: members of level 1, and those that came after."""
    variables = {"OLD_SWITCH": "by hook", "DS_ACCELERATOR": "old"}
    told = installed.child(USE, torch="real", variables=variables).answer
    assert told == {
        "chosen": ["pinned", "old", "OldAccelerator", 1],
        "own": [1 << 34, 1 << 34, False, ["OLD_", "OLDER_"]],
        "defaults": ["cpu", True, 0, "gloo", False],
        "computes": [True, [3.0, 3.0]],
    }


@pytest.mark.slow
def test_it_keeps_what_todays_interface_promises(installed):
    """What the kit asks of a declaration, of signatures and answers; built by its declaration this time."""
    if not (installed.real_torch / "torch").exists():
        pytest.skip("torch is not installed")
    wanted = ("declaration.", "interface.signatures.", "interface.answers.")
    names = [check.name for check in checks() if check.name.startswith(wanted)]
    named = [name for name in names if name != "interface.answers.compile_backend"]  # takes seconds
    words = [word for name in named for word in ("--check", name)]
    environ = clean_environment(PYTHONPATH=str(installed.site))
    done = run_python(["-m", "accel_core", "verify", "old", "--level", "1", "--json", *words], environ)
    assert done.returncode == 0, done.stdout
    card = json.loads(done.stdout)
    assert card["counts"]["passed"] > 30
    assert card["counts"]["passed"] + card["counts"]["not claimed"] == len(named)
