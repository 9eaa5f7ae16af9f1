"""The funnel: each status is reached by a real plugin, cheapest question first, and nothing is raised."""

from __future__ import annotations

import json
import sys
import time

import pytest
from accel_testing import plugins
from accel_testing.plugins import arguments, declaring, hook

from accel_core import hardware, probe
from accel_core.backend import API_LEVEL
from accel_core.discovery import Candidate, discover
from accel_core.settings import Pin, Settings
from accel_core.verdict import Outcome, Status, Verdict, verdict

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")


def judge(name: str = "npu", settings: Settings | None = None, **options: bool) -> Verdict:
    candidates = discover()
    (found,) = [c for c in candidates if c.name == name and not c.builtin]
    return probe.probe(found, settings or Settings(), candidates, **options)


def vendor(world, source: str, **fields: object) -> None:
    """A backend whose vendor import is the module `torch_npu` with this source."""
    world.module("torch_npu", source)
    world.backend("npu", vendor_import="torch_npu", **fields)


def counting(world, body: str, **fields: object) -> None:
    """A backend whose `device_count()` has this body."""
    world.module("npu_device", plugins.ACCELERATOR.format(count=body))
    world.backend("npu", accelerator="npu_device:Simulated", **fields)


def test_usable(torch_world):
    torch_world.backend("npu")
    found = judge()
    assert (found.status, found.reason, found.devices) == (Status.USABLE, "", 2)
    assert found.usable
    assert found.ms > 0


def test_a_candidate_is_judged_by_the_cheapest_question(torch_world):
    """A blocked plugin of a newer API level for another platform with a broken vendor: policy comes first."""
    fields = {
        "api_level": API_LEVEL + 1,
        "platforms": ("nowhere",),
        "requires": ("absent>1",),
        "device_nodes": ("/dev/no-npu",),
    }
    vendor(torch_world, "raise ImportError", **fields)
    assert judge(settings=Settings(block=(Pin("npu"),))).status is Status.BLOCKED
    assert judge().status is Status.INCOMPATIBLE
    assert "torch_npu" not in sys.modules


def test_blocked_and_not_allowed_say_so(torch_world):
    torch_world.backend("npu")
    found = judge(settings=Settings(block=(Pin("npu"),)))
    assert (found.status, found.reason, found.hint) == (
        Status.BLOCKED,
        "ACCEL_BLOCK names it",
        "take npu out of ACCEL_BLOCK",
    )
    found = judge(settings=Settings(allow=(Pin("cuda"),)))
    assert (found.status, found.reason, found.hint) == (
        Status.BLOCKED,
        "ACCEL_ALLOW does not name it",
        "add npu to ACCEL_ALLOW",
    )
    assert judge(settings=Settings(allow=(Pin("npu", "accel-npu"),), block=(Pin("npu", "other"),))).usable


def test_a_newer_api_level_is_incompatible(torch_world):
    torch_world.backend("npu", api_level=API_LEVEL + 1)
    found = judge()
    assert found.status is Status.INCOMPATIBLE
    assert found.reason == f"it needs API level {API_LEVEL + 1} and this accel-core has {API_LEVEL}"
    assert found.hint == "pip install --upgrade accel-core"


def test_another_platform_has_no_device(torch_world):
    torch_world.backend("npu", platforms=("plan9", "amiga-m68k"))
    found = judge()
    assert (found.status, found.reason) == (Status.NO_DEVICE, "this device exists on plan9, amiga-m68k only")


def test_a_vendor_package_that_is_not_installed(torch_world):
    torch_world.backend(
        "npu", vendor_import=("torch_npu", "torch_npu_old.sub"), install_hint="pip install torch-npu"
    )
    found = judge()
    assert (found.status, found.reason, found.hint) == (
        Status.NOT_INSTALLED,
        "torch_npu or torch_npu_old.sub is not installed",
        "pip install torch-npu",
    )


def test_hardware_without_its_package_is_told(torch_world, monkeypatch):
    monkeypatch.setattr(hardware, "evidence", lambda backend: hardware.Evidence(nodes=("/dev/davinci0",)))
    torch_world.backend("npu", vendor_import="torch_npu", device_nodes=("/dev/davinci[0-9]*",))
    found = judge()
    assert found.reason == "torch_npu is not installed, though the hardware is there: /dev/davinci0"
    assert found.evidence == "/dev/davinci0"


def test_looking_for_a_package_imports_nothing_of_it(torch_world):
    torch_world.module("torch_npu.__init__", "raise SystemExit('imported')")
    torch_world.backend("npu", vendor_import="torch_npu.deep.module", api_level=1, requires=("absent",))
    assert judge().reason == "absent is not installed"
    assert "torch_npu" not in sys.modules


def test_an_import_that_is_forbidden_counts_as_not_installed(torch_world, monkeypatch):
    vendor(torch_world, "")
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    assert judge().status is Status.NOT_INSTALLED


def test_a_package_without_a_spec_is_not_installed_when_not_imported(torch_world, monkeypatch):
    class Failing:
        def find_spec(self, name, path=None, target=None):
            if name == "torch_npu":
                raise ValueError("a finder that fails")

    torch_world.backend("npu", vendor_import="torch_npu")
    monkeypatch.setattr(sys, "meta_path", [Failing(), *sys.meta_path])
    assert judge().status is Status.NOT_INSTALLED


@pytest.mark.parametrize(
    ("requires", "status", "reason", "hint"),
    [
        (("torch-npu>=2.6.0rc0", "torch-npu<3"), Status.USABLE, "", ""),
        (("Torch.NPU>2.5",), Status.USABLE, "", ""),
        (("absent>=1",), Status.NOT_INSTALLED, "absent is not installed", "pip install 'absent>=1'"),
        (
            ("torch-npu>=3",),
            Status.INCOMPATIBLE,
            "it needs torch-npu>=3 and torch-npu 2.6.0rc1 is installed",
            "pip install 'torch-npu>=3'",
        ),
        (("absent; python_version < '3'",), Status.USABLE, "", ""),
        (("absent; extra == 'x'",), Status.USABLE, "", ""),
        (("not a requirement!",), Status.INVALID, "its requirement 'not a requirement!' is malformed", ""),
        (("private",), Status.USABLE, "", ""),
        (
            ("private>=1",),
            Status.INCOMPATIBLE,
            "it needs private>=1 and private our build 7 is installed",
            "pip install 'private>=1'",
        ),
        (("",), Status.INVALID, "its requirement '' is malformed", ""),
    ],
)
def test_required_distributions_are_read_from_metadata(torch_world, requires, status, reason, hint):
    torch_world.distribution("torch-npu", "2.6.0rc1")
    torch_world.distribution("private", "our build 7")
    torch_world.backend("npu", requires=requires)
    found = judge()
    assert found.status is status
    assert found.reason.startswith(reason)
    assert found.hint == hint


def test_no_device_node_and_no_pci_function_ends_the_search_before_the_import(torch_world, monkeypatch):
    """USERS 9: installed is not available. USERS 7: absence of hardware beats broken userland."""
    monkeypatch.setattr(hardware, "_on_linux", lambda: True)
    vendor(
        torch_world,
        "raise ImportError('libhccl.so')",
        device_nodes=("/dev/no-such-npu[0-9]*",),
        pci_ids=("fffe",),
    )
    found = judge()
    assert (found.status, found.devices) == (Status.NO_DEVICE, 0)
    assert found.reason == "this machine has none of /dev/no-such-npu[0-9]*, PCI fffe"
    assert "torch_npu" not in sys.modules


def test_a_pin_may_be_usable_without_a_device(torch_world):
    """USERS 31: a login node, or an image build."""
    counting(torch_world, "return 0")
    assert judge().status is Status.NO_DEVICE
    found = judge(pinned=True)
    assert found.usable
    assert (found.reason, found.devices) == ("pinned, though the vendor's runtime counts no device", 0)


def test_a_pin_does_not_look_for_hardware(torch_world, monkeypatch):
    monkeypatch.setattr(hardware, "_on_linux", lambda: True)
    torch_world.backend("npu", device_nodes=("/dev/no-such-npu",))
    assert (judge(pinned=True).status, judge(pinned=True).devices) == (Status.USABLE, 2)


def test_a_pin_without_hardware_still_needs_a_vendor_that_works(torch_world, monkeypatch):
    monkeypatch.setattr(hardware, "_on_linux", lambda: True)
    vendor(torch_world, "raise ImportError", device_nodes=("/dev/no-such-npu",))
    assert judge(pinned=True).status is Status.BROKEN


def test_a_pin_is_not_usable_where_the_vendor_is_missing_or_another_platform_is_needed(torch_world):
    torch_world.backend("npu", vendor_import="torch_npu")
    assert judge(pinned=True).status is Status.NOT_INSTALLED
    torch_world.backend("mlu", platforms=("plan9",))
    assert judge("mlu", pinned=True).status is Status.NO_DEVICE


BROKEN = {
    "ImportError": (
        "raise ImportError('libhccl.so: cannot open shared object file')",
        "ImportError: libhccl.so",
    ),
    "OSError": ("raise OSError('libascend_hal.so: no such file')", "OSError: libascend_hal.so"),
    "AttributeError": (
        "import json; json._autoload",
        "AttributeError: module 'json' has no attribute '_autoload'",
    ),
    "RuntimeError": ("raise RuntimeError('no driver')", "RuntimeError: no driver"),
    "sys.exit": ("import sys; sys.exit(1)", "SystemExit: it tried to end the process with 1"),
}


@pytest.mark.parametrize(("source", "said"), BROKEN.values(), ids=BROKEN)
def test_a_vendor_package_that_fails_is_broken_with_its_cause(torch_world, source, said):
    """USERS 5, 6, 7."""
    vendor(torch_world, source)
    found = judge()
    assert found.status is Status.BROKEN
    assert found.status.is_failure
    assert found.reason.startswith(f"torch_npu failed: {said}")
    assert found.cause.startswith(said)
    assert found.error is not None


def test_the_plugin_explains_its_vendors_errors(torch_world):
    """USERS 7: "source set_env.sh"."""
    extra = hook(
        "accel_explain",
        "backend, error",
        "return f'source set_env.sh ({backend.name}, {type(error).__name__})'",
    )
    vendor(torch_world, "raise ImportError('libhccl.so')", extra=extra)
    assert judge().hint == "source set_env.sh (npu, ImportError)"


@pytest.mark.parametrize(
    "body", ["raise RuntimeError", "return 5", "return None", "import sys; sys.exit()", "print('x')"]
)
def test_an_explanation_that_fails_explains_nothing(torch_world, body, capsys):
    vendor(
        torch_world, "raise ImportError('libhccl.so')", extra=hook("accel_explain", "backend, error", body)
    )
    found = judge()
    assert (found.status, found.hint) == (Status.BROKEN, "")
    assert capsys.readouterr().out == ""


def test_the_first_vendor_import_that_works_is_taken(torch_world):
    torch_world.module("new_npu", "raise ImportError('too new')")
    torch_world.module("old_npu", "")
    torch_world.backend("npu", vendor_import=("missing_npu", "new_npu", "old_npu"))
    assert judge().usable
    assert "old_npu" in sys.modules


def test_of_several_broken_vendor_imports_the_first_is_told(torch_world):
    torch_world.module("new_npu", "raise ImportError('too new')")
    torch_world.module("old_npu", "raise ImportError('too old')")
    torch_world.backend("npu", vendor_import=("new_npu", "old_npu"))
    assert judge().cause == "ImportError: too new"


def test_keyboard_interrupt_passes(torch_world):
    vendor(torch_world, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        judge()


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("return -1", "-1 (int)"),
        ("return '2'", "'2' (str)"),
        ("return True", "True (bool)"),
        ("return None", "None (NoneType)"),
        ("return 1.0", "1.0 (float)"),
    ],
)
def test_a_device_count_that_is_no_count_is_invalid(torch_world, body, shown):
    """USERS 34: types are exact."""
    counting(torch_world, body)
    found = judge()
    assert found.status is Status.INVALID
    assert found.reason == f"device_count() gave {shown}, expected an int of 0 or more"
    assert found.hint == "report this to the maintainers of accel-npu"
    assert judge(pinned=True).status is Status.INVALID


@pytest.mark.parametrize(
    "body", ["raise RuntimeError('driver too old')", "import sys; sys.exit('driver too old')"]
)
def test_a_device_count_that_raises_is_broken(torch_world, body):
    counting(torch_world, body)
    found = judge()
    assert found.status is Status.BROKEN
    assert "driver too old" in found.reason


def test_no_device_names_the_variable_that_hides_them(torch_world, monkeypatch):
    """USERS 19."""
    counting(torch_world, "return 0", visible_devices=("NPU_VISIBLE",))
    assert judge().reason == "the vendor's runtime counts no device"
    monkeypatch.setenv("NPU_VISIBLE", "")
    assert "NPU_VISIBLE" in judge().reason


# ---------------------------------------------------------------------------- the plugin's own hooks


def answering(world, body: str, **fields: object) -> None:
    world.backend("npu", extra=hook("accel_probe", "backend, others", body), **fields)


def test_a_plugin_may_say_that_it_stands_aside_or_has_no_device(torch_world):
    answering(torch_world, "return ProbeResult(False, 'torch_supa has it', 'a hint', stands_aside=True)")
    found = judge()
    assert (found.status, found.reason, found.hint) == (Status.STANDS_ASIDE, "torch_supa has it", "a hint")
    assert not found.status.is_failure
    assert "torch" not in sys.modules


def test_a_plugin_may_say_that_there_is_no_device(torch_world):
    answering(torch_world, "return ProbeResult(False, 'nothing on the bus', devices=0)")
    assert judge().status is Status.NO_DEVICE
    assert judge(pinned=True).usable
    assert "torch" not in sys.modules


def test_a_plugin_may_say_that_it_is_usable_and_is_believed_about_its_devices(torch_world):
    torch_world.module("npu_device", plugins.ACCELERATOR.format(count="raise RuntimeError('never asked')"))
    answering(torch_world, "return ProbeResult(True, devices=8)", accelerator="npu_device:Simulated")
    found = judge()
    assert (found.status, found.devices) == (Status.USABLE, 8)


def test_a_plugin_that_says_usable_and_cannot_be_built_is_broken(torch_world):
    """USERS 17: it must not take the whole choice down."""
    answering(torch_world, "return ProbeResult(True)", accelerator="json:missing")
    found = judge()
    assert (found.status, found.cause) == (
        Status.BROKEN,
        "AttributeError: module 'json' has no attribute 'missing'",
    )


def test_the_other_backends_are_shown_to_the_probe(torch_world):
    torch_world.backend("mlu")
    answering(torch_world, "return ProbeResult(False, ','.join(sorted(b.name for b in others)))")
    assert judge().reason == "cpu,generic,mlu"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("return None", Status.USABLE, ""),
        (
            "return True",
            Status.INVALID,
            "accel_probe() returned True (bool), expected accel_core.ProbeResult or None",
        ),
        ("return 'yes'", Status.INVALID, "accel_probe() returned 'yes' (str)"),
        ("return ProbeResult('yes')", Status.INVALID, "ProbeResult(usable='yes'"),
        ("return ProbeResult(True, devices='2')", Status.INVALID, "devices='2'"),
        ("return ProbeResult(True, devices=-1)", Status.INVALID, "devices=-1"),
        ("return ProbeResult(False, ValueError('x'))", Status.INVALID, "reason=ValueError('x')"),
        ("raise OSError('no driver')", Status.BROKEN, "OSError: no driver"),
        ("import sys; sys.exit(2)", Status.BROKEN, "SystemExit: it tried to end the process with 2"),
    ],
)
def test_a_probe_that_misbehaves_is_a_verdict(torch_world, body, status, said):
    answering(torch_world, body)
    found = judge()
    assert found.status is status
    assert said in found.reason
    json.dumps(found.to_dict())


def test_a_probe_that_prints_does_not_reach_stdout(torch_world, capsys):
    answering(torch_world, "print('chatter'); return None")
    assert judge().usable
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "chatter" in captured.err


def creating(world, body: str) -> None:
    world.backend("npu", extra=hook("accel_create", "backend, others", body))


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("return 5", Status.INVALID, "npu (accel-npu 1.0) built 5 (int), expected an accel_core.Accelerator"),
        ("raise RuntimeError('no driver')", Status.BROKEN, "json failed: RuntimeError: no driver"),
        ("raise accel_core.BackendUnavailableError('busy')", Status.BROKEN, "busy"),
        ("raise accel_core.DeclinedError('no such card', hint='buy one')", Status.NO_DEVICE, "no such card"),
        (
            "raise accel_core.DeclinedError('cuda has it', stands_aside=True)",
            Status.STANDS_ASIDE,
            "cuda has it",
        ),
    ],
)
def test_a_creation_that_misbehaves_is_a_verdict(torch_world, body, status, said):
    creating(torch_world, body)
    found = judge()
    assert (found.status, found.reason) == (status, said)
    assert found.hint == ("buy one" if "hint" in body else "")


@pytest.mark.parametrize(
    ("accelerator", "status", "said"),
    [
        ("missing_module:X", Status.BROKEN, "ModuleNotFoundError: No module named 'missing_module'"),
        ("json:missing", Status.BROKEN, "AttributeError"),
        ("json:dumps", Status.INVALID, "expected a class"),
        ("json:JSONDecoder", Status.BROKEN, "json failed: TypeError"),
    ],
)
def test_a_class_that_cannot_be_built_is_a_verdict(torch_world, accelerator, status, said):
    torch_world.backend("npu", accelerator=accelerator)
    found = judge()
    assert found.status is status
    assert said in found.reason


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (hook("accel_probe", "backend, flavour", "return None"), "flavour"),
        (hook("accel_future", "backend", "return None"), "unknown hook 'accel_future'"),
    ],
    ids=["unknown parameter", "unknown hook"],
)
def test_a_hook_that_does_not_fit_is_invalid_and_hides_nobody(torch_world, extra, said):
    torch_world.backend("npu", extra=extra)
    torch_world.backend("mlu")
    found = judge()
    assert found.status is Status.INVALID
    assert found.reason.startswith("a hook does not fit: PluginValidationError")
    assert said in found.reason
    assert found.hint == "pip install --upgrade accel-npu accel-core"
    assert judge("mlu").usable


def test_a_taken_private_use1_slot_says_who_holds_it(torch_world, simulated_torch):
    """USERS 42: torch has one such slot a process."""
    torch_world.backend("npu", private_use1=True)
    assert judge().usable
    simulated_torch._C.private_use1 = "npu"
    assert judge().usable
    simulated_torch._C.private_use1 = "mlu"
    found = judge()
    assert found.status is Status.BROKEN
    assert "torch's one PrivateUse1 slot is held by mlu" in found.reason
    assert "DS_ACCELERATOR=npu" in found.reason


def test_torch_missing_is_told_by_name(world):
    world.backend("npu")
    found = judge()
    assert found.status is Status.BROKEN
    assert found.reason.startswith("torch is not installed: pip install torch")
    cpu = next(c for c in discover() if c.name == "cpu")
    judged = probe.probe(cpu, Settings())
    assert (judged.status, judged.reason, judged.hint) == (
        Status.NOT_INSTALLED,
        "torch is not installed",
        "pip install torch",
    )


def test_a_plugin_with_a_fault_carries_it_into_the_verdict(torch_world):
    torch_world.plugin("npu", "raise ImportError('libfoo')")
    found = judge()
    assert (found.status, found.cause) == (Status.BROKEN, "ImportError: libfoo")
    assert (found.priority, found.device_type, found.vendor_import) == (0, "", ())
    torch_world.plugin("mlu", "int('x')")
    assert judge("mlu").status is Status.BROKEN  # a ValueError is no declaration
    torch_world.plugin("bad", declaring(arguments("bad", "high")))
    assert judge("bad").status is Status.INVALID


def test_a_claim_that_nobody_loaded_is_not_probed(torch_world):
    torch_world.backend("npu")
    loaded = next(c for c in discover() if c.name == "npu")
    claim = Candidate("npu", loaded.provenance)
    assert probe.probe(claim, Settings()).status is Status.NOT_PROBED
    assert probe.explain(claim, RuntimeError()) == ""
    assert probe.live(claim, ()).status is Status.BROKEN


def test_an_exceptions_frames_keep_nothing_alive(torch_world):
    import gc
    import weakref

    torch_world.module("torch_npu", "")
    torch_world.module(
        "npu_device",
        "import accel_core\nclass Big: pass\nseen = []\nclass Simulated(accel_core.Accelerator):\n"
        "    def device_count(self):\n        import weakref\n        big = Big()\n"
        "        seen.append(weakref.ref(big))\n"
        "        raise RuntimeError('out of memory')\n",
    )
    torch_world.backend("npu", accelerator="npu_device:Simulated")
    found = judge()
    gc.collect()
    (reference,) = sys.modules["npu_device"].seen
    assert isinstance(reference, weakref.ref)
    assert found.error is not None
    assert reference() is None


# ---------------------------------------------------------------------------- in a child process

ISOLATED = Settings(isolated=True, probe_timeout=20)


@posix
def test_a_good_vendor_is_usable_in_a_child_and_then_here(torch_world):
    torch_world.backend("npu")
    found = judge(settings=ISOLATED)
    assert (found.status, found.devices) == (Status.USABLE, 2)
    assert "torch" in sys.modules


@posix
def test_a_probe_for_a_listing_imports_nothing_here(torch_world):
    torch_world.backend("npu")
    found = judge(isolated=True)
    assert (found.status, found.devices) == (Status.USABLE, 2)
    assert "torch" not in sys.modules


@posix
@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "import os; os._exit(127)",
            "the process that probed it exited with status 127 at: import of torch_npu",
        ),
        (
            "import ctypes; ctypes.string_at(0)",
            "the process that probed it died of SIGSEGV at: import of torch_npu",
        ),
        (
            "import os, sys; sys.stderr.write('fatal: no CANN\\n'); sys.stderr.flush(); os._exit(3)",
            "exited with status 3 at: import of torch_npu; last words: fatal: no CANN",
        ),
    ],
    ids=["_exit", "SIGSEGV", "last words"],
)
def test_a_vendor_that_takes_its_process_down_is_a_verdict(torch_world, source, said):
    vendor(torch_world, source, isolated_probe=True)
    found = judge()
    assert found.status is Status.CRASHED
    assert said in found.reason
    assert found.hint == "reinstall the vendor's package, or set ACCEL_BLOCK=npu"
    assert "torch_npu" not in sys.modules


@posix
def test_a_vendor_that_hangs_is_timed_out_within_the_deadline(torch_world):
    """USERS 27."""
    vendor(torch_world, "import time; time.sleep(60)", isolated_probe=True)
    start = time.monotonic()
    found = judge(settings=Settings(probe_timeout=2))
    assert time.monotonic() - start < 6
    assert found.status is Status.TIMED_OUT
    assert found.reason == "no answer within 2 s; it was at: import of torch_npu"
    assert found.hint == "raise ACCEL_PROBE_TIMEOUT, or set ACCEL_BLOCK=npu"


@posix
def test_a_vendor_that_fails_politely_in_a_child_says_the_same_as_here(torch_world):
    vendor(
        torch_world,
        "print('{}'); raise ImportError('libhccl.so')",
        extra=hook("accel_explain", "backend, error", "return 'source set_env.sh'"),
    )
    here, there = judge(), judge(isolated=True)
    assert (there.status, there.reason, there.hint) == (here.status, here.reason, here.hint)


@posix
def test_no_device_in_a_child_is_the_end_of_it_except_for_a_pin(torch_world):
    counting(torch_world, "return 0", isolated_probe=True)
    assert judge().status is Status.NO_DEVICE
    assert "torch" not in sys.modules
    assert judge(pinned=True).usable
    assert "torch" in sys.modules


@posix
def test_the_child_finds_the_very_candidate(torch_world):
    """Two backends of one name and one distribution differ in their priority."""
    torch_world.module("none_device", plugins.ACCELERATOR.format(count="return 0"))
    torch_world.plugin(
        "xpu", declaring(arguments("xpu", 800, accelerator="none_device:Simulated"), arguments("xpu", 790))
    )
    first, second = [probe.probe(c, Settings(), isolated=True) for c in discover() if c.name == "xpu"]
    assert (first.priority, first.status) == (800, Status.NO_DEVICE)
    assert (second.priority, second.status) == (790, Status.USABLE)


@posix
def test_a_plugin_that_only_this_process_has_is_broken_in_the_child(torch_world):
    import shutil

    torch_world.backend("npu")
    found = next(c for c in discover() if c.name == "npu")
    shutil.rmtree(torch_world.site / "accel_npu-1.0.dist-info")
    assert (
        probe.probe(found, Settings(), isolated=True).reason == "the probing process did not find the plugin"
    )


def test_no_child_to_be_had_is_a_verdict(torch_world, monkeypatch):
    torch_world.backend("npu")
    monkeypatch.setattr(sys, "executable", None)
    found = judge(isolated=True)
    assert found.status is Status.CRASHED
    assert found.reason.startswith("no process could be started to probe it: ")
    assert found.hint == ""
    monkeypatch.setenv("ACCEL_PROBE", "isolated")
    assert judge(isolated=True).hint == "unset ACCEL_PROBE to probe in this process"


def test_what_is_built_in_needs_no_child_for_its_answer(torch_world):
    cpu = next(c for c in discover() if c.name == "cpu")
    assert probe.probe(cpu, Settings(), isolated=True).usable
    assert "torch" not in sys.modules


# ---------------------------------------------------------------------------- the verdict as a record


def test_every_status_has_its_words():
    assert [str(s) for s in Status] == [s.value for s in Status]
    assert {s for s in Status if s.is_failure} == {
        Status.BROKEN,
        Status.INVALID,
        Status.TIMED_OUT,
        Status.CRASHED,
        Status.INCOMPATIBLE,
    }


def test_a_verdict_is_printable_and_json(torch_world):
    torch_world.backend(
        "npu", description="a device", url="https://example.org", vendor_import=("json", "torch")
    )
    found = judge()
    record = json.loads(json.dumps(found.to_dict()))
    assert record["name"] == "npu"
    assert record["distribution"] == "accel-npu"
    assert record["entry_point"] == "accel_npu"
    assert record["vendor_import"] == ["json", "torch"]
    assert record["status"] == "usable"
    assert (record["description"], record["url"]) == ("a device", "https://example.org")
    assert str(found) == "npu (accel-npu 1.0): usable"
    candidate = next(c for c in discover() if c.name == "npu")
    assert (
        str(verdict(candidate, Outcome(Status.NO_DEVICE, "none", "look again")))
        == "npu (accel-npu 1.0): no device: none. look again"
    )
