"""What torch's autoload brings, tried in a child; and two packages that want torch's one PrivateUse1 slot."""

import sys

import pytest
from accel_tests import layouts
from accel_tests.asking import chosen, error, only
from accel_tests.plugins import ACCELERATOR, NO_DEVICE, hook

import accel_core
from accel_core import (
    AcceleratorFallbackWarning,
    Hardware,
    InTorch,
    Status,
    torch_import,
)
from accel_core.explain.autoload import autoload_conflicts, with_autoload_conflicts
from accel_core.sandbox import child
from accel_core.select import select
from accel_core.settings import read

# ---------------------------------------------------------------------------- autoload
# What torch's autoload does here is tried in a child process; what it spoils is named with what helps.


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")

BROKEN = "raise OSError('libhccl.so: cannot open shared object file')"
#: What is said of the broken one, and what helps.
SAID = (
    "torch-npu 2.13 fails when torch loads it (torch.backends: npu = torch_npu:autoload): "
    "OSError: libhccl.so: cannot open shared object file"
)
HELPS = "`import torch` fails with it: pip uninstall torch-npu, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"


@pytest.fixture
def world(torch_world, monkeypatch):
    """With torch's autoload on, as users have it, in a process that has not imported torch."""
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    monkeypatch.setattr(torch_import, "imported_by_us", False)
    return torch_world


def announce(world, name, source):
    body = "\n".join(f"    {line}" for line in source.splitlines())
    world.module(f"torch_{name}", f"def autoload():\n{body}\n")
    world.distribution(
        f"torch-{name}", "2.13", {"torch.backends": {name: f"torch_{name}:autoload"}}
    )


def told(backend="", timeout=10):
    candidate = only(backend) if backend else None
    backend = candidate.backend if candidate is not None else None
    return [str(conflict) for conflict in autoload_conflicts(backend, timeout)]


def takes_slot(name):
    """As PyTorch's own registration does: the second one is refused."""
    return (
        "import torch\n"
        "if torch._C.private_use1 != 'privateuseone': raise RuntimeError('already set')\n"
        f"torch._C.private_use1 = {name!r}"
    )


def commanded(**environ):
    """The choice as a command makes it, in child processes."""
    settings = read(environ)
    return with_autoload_conflicts(select(settings, isolated=True), settings)


def test_a_claimed_package_that_breaks_torch_is_named_by_commands_with_both_remedies(
    world,
):
    """Its device is missing, so no program imports it; the user's next `import torch` fails with it."""
    announce(world, "npu", BROKEN)
    world.backend("npu", vendor_import="torch_npu", extra=NO_DEVICE)
    found = commanded()
    assert found.name == "cpu"
    assert found.autoload == (f"{SAID}. {HELPS}",)
    assert "torch_npu" not in sys.modules
    generic = found.verdicts[1]
    assert (generic.name, generic.status) == ("generic", Status.NO_DEVICE)
    assert "torch-npu: npu" in generic.reason
    assert "no package announces" not in generic.reason


def test_a_program_does_not_try_it_and_its_warning_names_the_command(world):
    announce(world, "npu", BROKEN)
    world.backend("npu", vendor_import="torch_npu", extra=NO_DEVICE)
    with pytest.warns(AcceleratorFallbackWarning, match="`accel why` says more"):
        assert accel_core.get_accelerator().name == "cpu"
    assert accel_core.selection().autoload == ()
    assert "torch_npu" not in sys.modules


def test_what_a_verdict_says_is_said_once(world):
    announce(world, "npu", BROKEN)
    found = commanded()
    broken = only_verdict(found, "torch-npu")
    assert (broken.reason, broken.hint) == (SAID, HELPS)
    assert found.autoload == ()


def only_verdict(selection, distribution):
    """The verdict on what this distribution brings."""
    (verdict,) = [
        v for v in selection.verdicts if v.provenance.distribution == distribution
    ]
    return verdict


@pytest.mark.parametrize(
    "how", ["off", "torch is here", "all is the chosen one's", "something is chosen"]
)
def test_nothing_is_tried_where_it_does_no_harm(world, monkeypatch, how):
    announce(world, "npu", BROKEN)
    world.backend("npu", vendor_import="torch_npu", extra=NO_DEVICE)
    if how == "something is chosen":
        world.backend("mlu")
    monkeypatch.setattr(child, "run", lambda *_: pytest.fail("a process was started"))
    if how == "off":
        monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    elif how == "torch is here":
        __import__("torch")  # by the user, with autoload on: it lived
    if how == "something is chosen":
        assert chosen().name == "mlu"
    else:
        assert told("npu" if how == "all is the chosen one's" else "") == []


def test_torch_that_we_imported_tells_nothing_of_its_autoload(world):
    announce(world, "npu", BROKEN)
    torch_import.import_torch()
    assert told() == [f"{SAID}. {HELPS}"]


def test_a_package_that_ends_the_process_is_named(world):
    announce(world, "dying", "import os; os._exit(3)")
    [said] = told()
    assert said == (
        "torch-dying 2.13 fails when torch loads it (torch.backends: dying = torch_dying:autoload): "
        "its process exited with status 3. `import torch` fails with it: pip uninstall torch-dying, or set "
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    )


def test_what_was_found_before_a_process_ended_is_not_lost(world):
    layouts.dist_info(
        world.root / "first",
        "torch-npu",
        "2.13",
        {"torch.backends": {"npu": "torch_npu:autoload"}},
    )
    world.module("torch_npu", f"def autoload():\n    {BROKEN}\n")
    announce(world, "dying", "import os; os._exit(3)")
    world.set_path([world.root / "first", world.site])
    assert [said.partition(" ")[0] for said in told()] == ["torch-npu", "torch-dying"]


def test_of_a_package_that_gives_no_answer_nothing_is_known(world):
    announce(world, "slow", "import time; time.sleep(60)")
    [said] = told(timeout=1)
    assert said == (
        "whether torch can load torch-slow 2.13 is not known: it gave no answer within 1 s. "
        "raise ACCEL_PROBE_TIMEOUT, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    )


def test_who_takes_the_slot_from_the_chosen_one_is_to_blame(world):
    """In whatever order torch finds them: never the package of the backend that was chosen."""
    for name in ("npu", "mlu"):
        announce(world, name, takes_slot(name))
        world.backend(
            name, vendor_import=f"torch_{name}", in_torch=InTorch(private_use1=True)
        )
    for mine, other in (("npu", "mlu"), ("mlu", "npu")):
        [said] = told(mine)
        assert said.startswith(f"torch-{other} 2.13")
        assert (
            f"it: pip uninstall torch-{other}, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
            in said
        )
    assert (
        len(told()) == 1
    )  # without a chosen one the second, with which `import torch` fails


def test_who_takes_over_the_namespace_of_the_chosen_one_is_to_blame(world):
    impersonate = (
        "import torch, types\ntorch.cuda = types.ModuleType('torch_supa.cuda')"
    )
    announce(world, "supa", impersonate)
    world.backend("cuda", vendor_import="torch", device_type="cuda")
    [said] = told("cuda")
    assert said.startswith("torch-supa 2.13, which torch loads (torch_supa:autoload), ")
    assert "puts torch_supa.cuda in the place of torch.cuda" in said
    assert (
        "`import torch` loads it: pip uninstall torch-supa, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        in said
    )


def test_a_package_that_was_built_for_another_torch_is_told_so(world):
    announce(
        world, "npu", "raise ImportError('libnpu.so: undefined symbol: _ZN3c104getEv')"
    )
    said = (
        "torch-npu 2.13 fails when torch loads it (torch.backends: npu = torch_npu:autoload): built for "
        "another torch (yours is 2.99.0+simulated): ImportError: libnpu.so: undefined symbol: _ZN3c104getEv"
    )
    assert told() == [f"{said}. {HELPS}"]
    assert only_verdict(chosen(), "torch-npu").reason == said


def test_a_cause_that_a_verdict_tells_is_told_once(world):
    """Issue 23: the same 500 characters stood in the table and in the note below it.

    Its remedy is no remedy: `import torch` still needs one.
    """
    announce(world, "npu", BROKEN)
    world.backend(
        "npu",
        vendor_import="torch_npu",
        extra=hook("accel_probe", "backend, others", BROKEN),
    )
    [said] = commanded().autoload
    assert said == (
        "torch-npu 2.13 fails when torch loads it (torch.backends: npu = torch_npu:autoload), for the same "
        f"reason as npu. {HELPS}"
    )


# --- ACCEL_STRICT --------------------------------------------------------------------------------------


def test_strict_imports_no_package_whose_device_is_missing(world):
    """Whether it works is asked by commands, in child processes."""
    world.module("torch_npu", BROKEN)
    world.backend("npu", vendor_import="torch_npu", extra=NO_DEVICE)
    assert chosen(ACCEL_STRICT="1").name == "cpu"
    assert "torch_npu" not in sys.modules


def test_why_says_besides(world):
    """docs/explanation/choosing.md: the commands also try a vendor's package when its device is missing."""
    world.module("torch_npu", BROKEN)
    world.backend("npu", 900, vendor_import="torch_npu", extra=NO_DEVICE)
    world.backend("mlu", 300)
    found = select(read({}), isolated=True)
    assert found.name == "mlu"
    assert found.verdicts[0].reason.startswith(
        "nothing on the bus; besides, torch_npu failed: OSError"
    )


# ---------------------------------------------------------------------------- private use1
# Two packages that want torch's one PrivateUse1 slot: what is chosen, what is said and what helps agree.


@pytest.fixture
def rivals(world):
    """aurora, which ranks first and has no device, and borealis, which works."""
    world.module("aurora_device", ACCELERATOR.format(count="return 0"))
    for name, priority, module in (
        ("aurora", 600, "aurora_device"),
        ("borealis", 300, "accel_sim_device"),
    ):
        device = f"{module}:Simulated"
        world.module(f"torch_{name}", f"{takes_slot(name)}\ndef autoload(): pass\n")
        world.backend(
            name,
            priority,
            vendor_import=f"torch_{name}",
            in_torch=InTorch(private_use1=True),
            accelerator=device,
        )
    return world


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
        assert (borealis.status, borealis.reason) == (Status.BROKEN, HELD)
        assert borealis.hint.startswith(
            "set DS_ACCELERATOR=borealis before Python starts"
        )


def test_what_frees_the_slot_works(rivals):
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
        in_torch=InTorch(private_use1=True),
        hardware=aurora,
    )
    assert chosen(ACCEL_BLOCK="aurora").name == "borealis"
    assert "torch_aurora" not in sys.modules


def test_one_that_breaks_half_way_is_named_and_keeps_the_slot(rivals):
    rivals.module(
        "torch_aurora", f"{takes_slot('aurora')}\nraise ImportError('libaurora.so')\n"
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
        "process. Next step: set DS_ACCELERATOR=aurora before Python starts, and import nothing of "
        "borealis's. `accel list` shows the usable backends."
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
        "Next step: set DS_ACCELERATOR=aurora and TORCH_DEVICE_BACKEND_AUTOLOAD=0 before Python starts: "
        "`import torch` loads torch-borealis." in str(error(DS_ACCELERATOR="aurora"))
    )
    assert chosen(ACCEL_BLOCK="aurora").name == "borealis"
