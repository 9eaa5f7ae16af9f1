"""Two packages that want torch's one PrivateUse1 slot: what is chosen, what is said and what helps agree."""

import sys

import pytest
from accel_tests.asking import chosen, error
from accel_tests.plugins import ACCELERATOR, takes_private_use1

import accel_core
from accel_core import (
    Hardware,
    Status,
    TorchIntegration,
)
from accel_core.sandbox import child
from accel_core.select import select
from accel_core.settings import read

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")


@pytest.fixture
def rivals(autoload_world):
    """aurora, which ranks first and has no device, and borealis, which works."""
    autoload_world.module("aurora_device", ACCELERATOR.format(count="return 0"))
    for name, priority, module in (
        ("aurora", 600, "aurora_device"),
        ("borealis", 300, "accel_sim_device"),
    ):
        device = f"{module}:Simulated"
        autoload_world.module(
            f"torch_{name}", f"{takes_private_use1(name)}\ndef autoload(): pass\n"
        )
        autoload_world.backend(
            name,
            priority,
            vendor_import=f"torch_{name}",
            torch_integration=TorchIntegration(private_use1=True),
            accelerator=device,
        )
    return autoload_world


HELD = "torch's one PrivateUse1 slot is held by aurora in this process"


@pytest.mark.parametrize("asked", ["", "aurora,borealis"])
def test_what_was_imported_without_a_device_keeps_the_slot_and_the_next_says_so(
    rivals, asked
):
    """What the commands say is what a program gets, which imports one after the other."""
    environ = {"DS_ACCELERATOR": asked}
    for found in (select(read(environ), isolated=True), chosen(**environ)):
        assert found.name == (None if asked else "cpu")
        borealis = next(v for v in found.verdicts if v.name == "borealis")
        assert borealis.status is Status.BROKEN
        assert borealis.reason == HELD
        assert borealis.hint.startswith(
            "set DS_ACCELERATOR=borealis before Python starts"
        )


def test_a_pin_keeps_the_slot_free_for_its_backend(rivals):
    assert chosen(DS_ACCELERATOR="borealis").name == "borealis"
    assert sys.modules["torch"]._C.private_use1 == "borealis"


def test_one_whose_hardware_is_not_seen_leaves_the_slot_to_the_next(rivals):
    aurora = Hardware(
        "Aurora NPU", nodes=("/dev/no-such-aurora[0-9]*",), pci_ids=("fade",)
    )
    rivals.backend(
        "aurora",
        600,
        vendor_import="torch_aurora",
        torch_integration=TorchIntegration(private_use1=True),
        hardware=aurora,
    )
    assert chosen(ACCEL_BLOCK="aurora").name == "borealis"
    assert "torch_aurora" not in sys.modules


def test_one_that_breaks_half_way_is_named_and_keeps_the_slot(rivals):
    rivals.module(
        "torch_aurora",
        f"{takes_private_use1('aurora')}\nraise ImportError('libaurora.so')\n",
    )
    found = chosen()
    assert found.name == "cpu"
    assert "torch_aurora failed: ImportError: libaurora.so" in found.verdicts[0].reason
    assert found.verdicts[1].reason == HELD


@pytest.mark.filterwarnings("ignore::accel_core.AcceleratorFallbackWarning")
def test_a_program_starts_no_process_for_the_slot(rivals, monkeypatch):
    monkeypatch.setattr(child, "run", lambda *_: pytest.fail("a process was started"))
    assert chosen().name == "cpu"


def test_a_slot_that_is_taken_says_what_frees_it(rivals):
    """Who took it was chosen, or imported by the program: then another process is what helps."""
    assert accel_core.accelerator("borealis").name == "borealis"
    with pytest.raises(accel_core.BackendUnavailableError) as refused:
        accel_core.accelerator("aurora")
    assert str(refused.value) == (
        "aurora (accel-aurora 1.0) is not usable: torch's one PrivateUse1 slot is held by borealis in this "
        "process. Next step: set DS_ACCELERATOR=aurora before Python starts, and do not import the "
        "package of borealis. `accel list` shows the usable backends."
    )


def test_a_slot_that_torchs_autoload_has_taken_says_how_to_keep_it_free(rivals):
    """A pin alone would not help: torch loads the other one before anybody is asked."""
    rivals.distribution(
        "torch-borealis",
        "2.0",
        {"torch.backends": {"borealis": "torch_borealis:autoload"}},
    )
    import torch_borealis  # as the simulated torch loads nothing itself

    torch_borealis.autoload()
    assert (
        "Next step: set DS_ACCELERATOR=aurora and TORCH_DEVICE_BACKEND_AUTOLOAD=0 before Python starts, "
        "because `import torch` loads torch-borealis."
        in str(error(DS_ACCELERATOR="aurora"))
    )
    assert chosen(ACCEL_BLOCK="aurora").name == "borealis"
