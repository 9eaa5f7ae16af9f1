"""What torch's autoload does is tried in a child process; what it spoils is named with what helps."""

import sys

import pytest
from accel_tests import layouts
from accel_tests.asking import chosen, discovered
from accel_tests.plugins import NO_DEVICE, hook, takes_private_use1

import accel_core
from accel_core import (
    AcceleratorFallbackWarning,
    Status,
    TorchIntegration,
    torch_import,
)
from accel_core.explain.autoload import autoload_conflicts, with_autoload_conflicts
from accel_core.sandbox import child
from accel_core.select import select
from accel_core.settings import read

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")

BROKEN = "raise OSError('libhccl.so: cannot open shared object file')"
#: What is said of the broken one, and what helps.
SAID = (
    "torch-npu 2.13 fails when torch loads it (torch.backends: npu = torch_npu:autoload): "
    "OSError: libhccl.so: cannot open shared object file"
)
HELPS = (
    "`import torch` fails because of this package: pip uninstall torch-npu, or set "
    "TORCH_DEVICE_BACKEND_AUTOLOAD=0"
)


def announce(world, name, source):
    body = "\n".join(f"    {line}" for line in source.splitlines())
    world.module(f"torch_{name}", f"def autoload():\n{body}\n")
    world.distribution(
        f"torch-{name}", "2.13", {"torch.backends": {name: f"torch_{name}:autoload"}}
    )


def told(backend="", timeout=10):
    candidate = discovered(backend) if backend else None
    backend = candidate.backend if candidate is not None else None
    return [str(conflict) for conflict in autoload_conflicts(backend, timeout)]


def commanded(**environ):
    """The choice as a command makes it, in child processes."""
    settings = read(environ)
    return with_autoload_conflicts(select(settings, isolated=True), settings)


def test_commands_name_a_package_that_breaks_torch_with_both_remedies(
    autoload_world,
):
    """Its device is missing, so no program imports it; the user's next `import torch` fails with it."""
    announce(autoload_world, "npu", BROKEN)
    autoload_world.backend("npu", vendor_import="torch_npu", extra=NO_DEVICE)
    found = commanded()
    assert found.name == "cpu"
    assert found.autoload == (f"{SAID}. {HELPS}",)
    assert "torch_npu" not in sys.modules
    generic = found.verdicts[1]
    assert generic.name == "generic"
    assert generic.status is Status.NO_DEVICE
    assert "torch-npu: npu" in generic.reason
    assert "no package announces" not in generic.reason


def test_a_program_does_not_try_it_and_its_warning_names_the_command(autoload_world):
    announce(autoload_world, "npu", BROKEN)
    autoload_world.backend("npu", vendor_import="torch_npu", extra=NO_DEVICE)
    with pytest.warns(AcceleratorFallbackWarning, match="`accel why`"):
        assert accel_core.get_accelerator().name == "cpu"
    assert accel_core.selection().autoload == ()
    assert "torch_npu" not in sys.modules


def test_what_a_verdict_says_is_said_once(autoload_world):
    announce(autoload_world, "npu", BROKEN)
    found = commanded()
    broken = only_verdict(found, "torch-npu")
    assert broken.reason == SAID
    assert broken.hint == HELPS
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
def test_nothing_is_tried_where_it_does_no_harm(autoload_world, monkeypatch, how):
    announce(autoload_world, "npu", BROKEN)
    autoload_world.backend("npu", vendor_import="torch_npu", extra=NO_DEVICE)
    if how == "something is chosen":
        autoload_world.backend("mlu")
    monkeypatch.setattr(child, "run", lambda *_: pytest.fail("a process was started"))
    if how == "off":
        monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    elif how == "torch is here":
        __import__("torch")  # by the user, with autoload on: it lived
    if how == "something is chosen":
        assert chosen().name == "mlu"
    else:
        assert told("npu" if how == "all is the chosen one's" else "") == []


def test_torch_that_we_imported_tells_nothing_of_its_autoload(autoload_world):
    announce(autoload_world, "npu", BROKEN)
    torch_import.import_torch()
    assert told() == [f"{SAID}. {HELPS}"]


def test_a_package_that_ends_the_process_is_named(autoload_world):
    announce(autoload_world, "dying", "import os; os._exit(3)")
    [said] = told()
    assert said == (
        "torch-dying 2.13 fails when torch loads it (torch.backends: dying = torch_dying:autoload): "
        "its process exited with status 3. `import torch` fails because of this package: "
        "pip uninstall torch-dying, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    )


def test_what_was_found_before_a_process_ended_is_not_lost(autoload_world):
    layouts.dist_info(
        autoload_world.root / "first",
        "torch-npu",
        "2.13",
        {"torch.backends": {"npu": "torch_npu:autoload"}},
    )
    autoload_world.module("torch_npu", f"def autoload():\n    {BROKEN}\n")
    announce(autoload_world, "dying", "import os; os._exit(3)")
    autoload_world.set_path([autoload_world.root / "first", autoload_world.site])
    assert [said.partition(" ")[0] for said in told()] == ["torch-npu", "torch-dying"]


def test_of_a_package_that_gives_no_answer_nothing_is_known(autoload_world):
    announce(autoload_world, "slow", "import time; time.sleep(60)")
    [said] = told(timeout=1)
    assert said == (
        "could not determine whether torch can load torch-slow 2.13: the package gave no "
        "response within 1 s. raise ACCEL_PROBE_TIMEOUT, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    )


def test_who_takes_the_slot_from_the_chosen_one_is_to_blame(autoload_world):
    """In whatever order torch finds them: never the package of the backend that was chosen."""
    for name in ("npu", "mlu"):
        announce(autoload_world, name, takes_private_use1(name))
        autoload_world.backend(
            name,
            vendor_import=f"torch_{name}",
            torch_integration=TorchIntegration(private_use1=True),
        )
    for mine, other in (("npu", "mlu"), ("mlu", "npu")):
        [said] = told(mine)
        assert said.startswith(f"torch-{other} 2.13")
        assert (
            f"this package: pip uninstall torch-{other}, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
            in said
        )
    assert (
        len(told()) == 1
    )  # without a chosen one the second, with which `import torch` fails


def test_who_takes_over_the_namespace_of_the_chosen_one_is_to_blame(autoload_world):
    override = "import torch, types\ntorch.cuda = types.ModuleType('torch_supa.cuda')"
    announce(autoload_world, "supa", override)
    autoload_world.backend("cuda", vendor_import="torch", device_type="cuda")
    [said] = told("cuda")
    assert said.startswith(
        "torch-supa 2.13 replaces torch.cuda with torch_supa.cuda when torch loads torch_supa:autoload. "
    )
    assert (
        "`import torch` loads this package: pip uninstall torch-supa, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        in said
    )


def test_a_package_that_was_built_for_another_torch_is_told_so(autoload_world):
    announce(
        autoload_world,
        "npu",
        "raise ImportError('libnpu.so: undefined symbol: _ZN3c104getEv')",
    )
    said = (
        "torch-npu 2.13 fails when torch loads it (torch.backends: npu = torch_npu:autoload): built for "
        "another torch than 2.99.0+simulated: ImportError: libnpu.so: undefined symbol: _ZN3c104getEv"
    )
    assert told() == [f"{said}. {HELPS}"]
    assert only_verdict(chosen(), "torch-npu").reason == said


def test_a_cause_that_a_verdict_tells_is_told_once(autoload_world):
    """Issue 23: the same 500 characters stood in the table and in the note below it.

    Its remedy is no remedy: `import torch` still needs one.
    """
    announce(autoload_world, "npu", BROKEN)
    autoload_world.backend(
        "npu",
        vendor_import="torch_npu",
        extra=hook("accel_probe", "backend, others", BROKEN),
    )
    [said] = commanded().autoload
    assert said == (
        "torch-npu 2.13 fails when torch loads it (torch.backends: npu = torch_npu:autoload), for the same "
        f"reason as npu. {HELPS}"
    )


def test_strict_imports_no_package_whose_device_is_missing(autoload_world):
    """Whether it works is asked by commands, in child processes."""
    autoload_world.module("torch_npu", BROKEN)
    autoload_world.backend("npu", vendor_import="torch_npu", extra=NO_DEVICE)
    assert chosen(ACCEL_STRICT="1").name == "cpu"
    assert "torch_npu" not in sys.modules


def test_commands_try_a_package_whose_device_is_missing_and_say_that_it_fails(
    autoload_world,
):
    """docs/howto/pin.md: the commands also try a vendor's package when its device is missing."""
    autoload_world.module("torch_npu", BROKEN)
    autoload_world.backend("npu", 900, vendor_import="torch_npu", extra=NO_DEVICE)
    autoload_world.backend("mlu", 300)
    found = select(read({}), isolated=True)
    assert found.name == "mlu"
    assert found.verdicts[0].reason.startswith(
        "nothing on the bus; besides, torch_npu failed: OSError"
    )
