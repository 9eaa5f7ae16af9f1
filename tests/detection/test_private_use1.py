"""Two packages that want torch's one PrivateUse1 slot: what is chosen, what is said and what helps agree."""

import sys

import pytest
from accel_tests.asking import chosen, error, statuses
from accel_tests.plugins import ACCELERATOR

import accel_core
from accel_core._support import torch_import
from accel_core.backend import InTorch
from accel_core.detection.select import select
from accel_core.settings import read

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")

#: As PyTorch's own registration does: the second one is refused.
TAKES = """
import torch
if torch._C.private_use1 != 'privateuseone': raise RuntimeError('it has already been set')
torch._C.private_use1 = {name!r}
def autoload(): pass
"""


@pytest.fixture
def rivals(torch_world, monkeypatch):
    """aurora, which ranks first and has no device, and borealis, which works."""
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    monkeypatch.setattr(torch_import, "_ours", False)
    torch_world.module("aurora_device", ACCELERATOR.format(count="return 0"))
    for name, priority, module in (("aurora", 600, "aurora_device"), ("borealis", 300, "accel_sim_device")):
        device = f"{module}:Simulated"
        torch_world.module(f"torch_{name}", TAKES.format(name=name))
        torch_world.backend(
            name,
            priority,
            vendor_import=f"torch_{name}",
            in_torch=InTorch(private_use1=True),
            accelerator=device,
        )
    return torch_world


@pytest.mark.parametrize("asked", ["", "aurora,borealis"])
def test_one_without_a_device_leaves_the_slot_to_the_next(rivals, asked):
    """It is tried in a child process, so that what the commands say is what a program gets."""
    environ = {"DS_ACCELERATOR": asked}
    told = select(read(environ), isolated=True).selection
    found = chosen(**environ)
    assert found.chosen == told.chosen == "borealis"
    assert statuses(found) == statuses(told)
    assert sys.modules["torch"]._C.private_use1 == "borealis"


def test_one_that_breaks_half_way_leaves_the_slot_to_the_next(rivals):
    rivals.module("torch_aurora", TAKES.format(name="aurora") + "raise ImportError('libaurora.so')\n")
    found = chosen()
    assert found.chosen == "borealis"
    assert "torch_aurora failed: ImportError: libaurora.so" in found.verdicts[0].reason


def test_without_a_rival_no_process_is_started(rivals, monkeypatch):
    from accel_core._support import child

    monkeypatch.setattr(child, "run", lambda *_: pytest.fail("a process was started"))
    (rivals.site / "torch_borealis.py").unlink()
    assert chosen().chosen == "cpu"


def test_a_slot_that_is_taken_says_what_frees_it(rivals):
    """Who took it was chosen, or imported by the program: then another process is what helps."""
    assert accel_core.get_accelerator().name == "borealis"
    with pytest.raises(accel_core.BackendUnavailableError) as refused:
        accel_core.accelerator("aurora")
    assert str(refused.value) == (
        "aurora (accel-aurora 1.0) is not usable: torch's one PrivateUse1 slot is held by borealis in this "
        "process. Next step: set DS_ACCELERATOR=aurora before Python starts, and import nothing of "
        "borealis's. Usable here: borealis, cpu."
    )


def test_a_slot_that_torchs_autoload_has_taken_says_how_to_keep_it_free(rivals):
    """A pin alone would not help: torch loads the other one before anybody is asked."""
    rivals.distribution("torch-borealis", "2.0", {"torch.backends": {"borealis": "torch_borealis:autoload"}})
    import torch_borealis  # as the simulated torch loads nothing itself

    torch_borealis.autoload()
    assert (
        "Next step: set DS_ACCELERATOR=aurora and TORCH_DEVICE_BACKEND_AUTOLOAD=0 before Python starts: "
        "`import torch` loads torch-borealis." in str(error(DS_ACCELERATOR="aurora"))
    )
    assert chosen().chosen == "borealis"
