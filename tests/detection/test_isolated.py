"""Plugins and vendors that end, crash or hang the process that loads or probes them: a verdict here."""

import sys
import time
from dataclasses import replace

import pytest
from accel_tests.asking import chosen, counting, judge, look, names, statuses, vendor
from accel_tests.plugins import ACCELERATOR, HEAD, arguments, declaring, hook

import accel_core
from accel_core import Granted, Verdict, discover, isolation
from accel_core.probe import Prober
from accel_core.sandbox import child
from accel_core.settings import Pin, Settings, read
from accel_core.verdict import Status

# ---------------------------------------------------------------------------- loading
# Plugins that end, crash or hang the process that loads them; and plugins that nobody may load.


posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")

DIE = "import os; os._exit(3)"
CRASH = "import ctypes; ctypes.string_at(0)"
HANG = "import time; time.sleep(60)"
ISOLATED = Settings(isolated=True, probe_timeout=20)


def dying(body):
    """A plugin whose `accel_backends()` has this body."""
    return HEAD + hook("accel_backends", "", body)


def imported(world):
    """The plugins that this process has imported."""
    return [
        n
        for n, m in sys.modules.items()
        if str(getattr(m, "__file__", "")).startswith(str(world.site))
    ]


@posix
def test_an_isolated_probe_of_a_good_vendor_is_repeated_here(torch_world):
    torch_world.backend("npu")
    found = judge(settings=ISOLATED)
    assert found.status is Status.USABLE
    assert found.devices == 2
    assert "torch" in sys.modules


@posix
def test_a_probe_for_a_listing_imports_nothing_here(torch_world):
    torch_world.backend("npu")
    found = judge(isolated=True)
    assert found.status is Status.USABLE
    assert found.devices == 2
    assert "torch" not in sys.modules


#: What plugins do at their import that makes plugins fail that are imported later.
SPOILING = {
    "stdout": "import sys; sys.stdout = None",
    "warnings": "import warnings; warnings.simplefilter('error')",
}


@posix
@pytest.mark.filterwarnings("ignore:old")
@pytest.mark.parametrize("settings", [Settings(), ISOLATED], ids=["here", "isolated"])
@pytest.mark.parametrize("spoil", SPOILING.values(), ids=SPOILING)
def test_what_a_plugin_does_to_python_at_its_import_spoils_no_other(
    torch_world, spoil, settings
):
    torch_world.backend("aaa", 700, extra=f"\n{spoil}\n")
    for name in ("hpu", "mlu", "npu"):
        warns = "import colorsys, warnings; warnings.warn('old', DeprecationWarning)"
        torch_world.backend(name, 500, extra=f"\n{warns}\n")
    unloaded = [str(each) for each in look(None, settings) if each.backend is None]
    assert unloaded == []


@posix
def test_declarations_come_through_a_child_as_they_are(torch_world):
    rich = {"hints": ((r"lib(a|b)\.so", "do this"),), "granted": Granted(slurm="gpu")}
    torch_world.backend("npu", 700, vendor_import=("a_b", "json"), **rich)
    torch_world.plugin("two", declaring(arguments("one", 3), arguments("two.more", 2)))
    torch_world.plugin(
        "bad", declaring("name='Not A Name', priority=1, device_type='x'")
    )
    torch_world.plugin("broken", "raise OSError('inner') from ValueError('libfoo.so')")
    there = look(None, ISOLATED)
    assert not imported(torch_world)
    here = look(None, Settings())
    assert list(map(str, there)) == list(map(str, here))
    for far, near in zip(there, here, strict=True):
        if near.backend is not None:
            assert far.backend is not None
            assert (far.backend, far.provenance) == (near.backend, near.provenance)
        else:
            assert isolation.encode(far) == isolation.encode(near)


@posix
@pytest.mark.parametrize(
    ("source", "ending", "at"),
    [
        (
            DIE,
            "exited with status 3",
            "importing accel_bad, the plugin of accel-bad 1.0",
        ),
        (CRASH, "died of SIGSEGV", "importing accel_bad, the plugin of accel-bad 1.0"),
        (dying(DIE), "exited with status 3", "accel_backends() of accel-bad 1.0"),
    ],
    ids=["import", "SIGSEGV", "accel_backends"],
)
def test_a_plugin_that_takes_its_process_down_is_a_verdict_of_its_own(
    torch_world, source, ending, at
):
    torch_world.plugin("bad", source)
    torch_world.plugin(
        "worse", "import os, sys; sys.stderr.write('no licence\\n'); os._exit(4)"
    )
    torch_world.backend("npu", 700)
    torch_world.backend("mlu", 300)
    found = {c.name: c for c in look(None, ISOLATED) if not c.builtin}
    bad, worse = found.pop("bad"), found.pop("worse")
    assert bad.status is Status.CRASHED
    reason, _, _ = bad.reason.partition("; last call: ")
    assert reason == f"the process that loaded its plugin {ending} at: {at}"
    assert (
        bad.hint
        == "report this to the maintainers of accel-bad, or set ACCEL_BLOCK=bad"
    )
    assert worse.reason.endswith("accel-worse 1.0; last words: no licence")
    assert {name: v.backend is not None for name, v in found.items()} == {
        "npu": True,
        "mlu": True,
    }
    assert not imported(torch_world)


@posix
@pytest.mark.parametrize(
    "source", [HANG, dying(HANG)], ids=["import", "accel_backends"]
)
def test_a_plugin_that_hangs_takes_two_deadlines_and_no_other_with_it(
    torch_world, source
):
    torch_world.plugin("bad", source)
    torch_world.backend("npu", 700)
    start = time.monotonic()
    found = {c.name: c for c in look(None, replace(ISOLATED, probe_timeout=1.5))}
    assert time.monotonic() - start < 6  # together, and then each alone, at once
    assert found["bad"].status is Status.TIMED_OUT
    assert found["bad"].reason.startswith("no answer within 1.5 s; it was at: ")
    assert isinstance(found["npu"], Verdict)


@posix
def test_a_plugin_that_dies_of_anothers_thread_is_not_blamed(torch_world):
    fuse = "threading.Thread(target=lambda: (time.sleep(0.2), os._exit(5))).start()\n"
    torch_world.plugin(
        "bomb",
        "import os, threading, time\n" + fuse + declaring(arguments("bomb", 900)),
    )
    torch_world.plugin(
        "slow", "import time\ntime.sleep(0.6)\n" + declaring(arguments("slow", 800))
    )
    found = {c.name: c for c in look(None, ISOLATED)}
    assert isinstance(found["slow"], Verdict)


@posix
def test_an_isolated_choice_goes_on_without_it_and_so_does_every_probe(
    torch_world, monkeypatch, fresh
):
    torch_world.plugin("bad", dying(CRASH))
    torch_world.backend("npu", 700)
    torch_world.backend("mlu", 300)
    monkeypatch.setenv("ACCEL_PROBE", "isolated")
    assert accel_core.get_accelerator().name == "npu"
    assert statuses(accel_core.selection())["bad"] == "crashed"
    assert accel_core.accelerator("mlu").name == "mlu"
    assert "bad" in names(accel_core.discover())
    assert sorted(imported(torch_world)) == [
        "accel_mlu",
        "accel_npu",
        "accel_sim_device",
    ]


@posix
def test_a_child_that_probes_one_candidate_loads_no_other_plugin(torch_world):
    """Before, each child loaded all plugins, and died of any."""
    torch_world.backend("npu", 700)
    torch_world.plugin("late", "")
    candidates = look(None, ISOLATED)
    torch_world.plugin("late", DIE)
    npu = next(c for c in candidates if c.name == "npu")
    from accel_core.probe import Prober

    assert Prober(ISOLATED, isolated=True).probe(npu, candidates).usable


@posix
def test_another_plugins_hint_is_asked_for_in_the_child_alone(torch_world):
    torch_world.module("torch_npu", "raise ImportError('libfoo.so')")
    torch_world.backend("npu", 700, vendor_import="torch_npu")
    torch_world.backend(
        "mlu", 300, extra=hook("accel_explain", "backend, error", "return 'from mlu'")
    )
    found = chosen(ACCEL_PROBE="isolated", ACCEL_BLOCK="generic")
    assert (found.name, found.verdicts[0].hint) == ("mlu", "from mlu")
    assert judge(isolated=True).hint == "from mlu"


class TestPolicy:
    """A plugin that is blocked, or not allowed, is imported by nobody: not here, and in no child."""

    @pytest.fixture
    def spy(self, torch_world, tmp_path):
        """A plugin that leaves a file when it is imported, and one that works."""
        trace = tmp_path / "trace"
        leave = f"open({str(trace)!r}, 'w').close()\n"
        torch_world.plugin(
            "spy", leave + declaring(arguments("spy", 900), arguments("other", 800))
        )
        torch_world.backend("npu", 100)
        return trace

    @pytest.mark.parametrize(
        "policy",
        [
            {"ACCEL_BLOCK": "spy"},
            {"ACCEL_BLOCK": "spy@accel-spy"},
            {"ACCEL_ALLOW": "npu,cpu"},
            {"ACCEL_ALLOW": "npu,spy@another"},
            {"ACCEL_ALLOW": "npu,other@accel-spy", "ACCEL_BLOCK": "spy"},
        ],
        ids=str,
    )
    def test_applies_before_the_import(self, spy, policy, monkeypatch):
        found = chosen(**policy)
        assert found.name == "npu"
        assert statuses(found)["spy"] == "blocked"
        verdict = next(v for v in found.verdicts if v.name == "spy")
        variable = "ACCEL_BLOCK" if "ACCEL_BLOCK" in policy else "ACCEL_ALLOW"
        assert variable in verdict.reason
        assert variable in verdict.hint
        for pin in ("spy", "other", "spy@accel-spy"):
            assert chosen(**policy, DS_ACCELERATOR=pin).name is None
        assert look(Pin("other"), read(policy)) == ()
        for name, value in policy.items():
            monkeypatch.setenv(name, value)
        assert "spy" in names(accel_core.discover())
        assert not spy.exists()

    @posix
    def test_applies_to_the_child_that_imports(self, spy):
        found = chosen(ACCEL_BLOCK="spy", ACCEL_PROBE="isolated")
        assert (found.name, statuses(found)["spy"]) == ("npu", "blocked")
        assert not spy.exists()

    def test_a_name_with_its_distribution_allows_that_to_be_imported(self, spy):
        """An entry point may be called otherwise than what it declares."""
        found = chosen(ACCEL_ALLOW="other@accel-spy")
        assert found.name == "other"
        assert statuses(found)["spy"] == "blocked"
        assert spy.exists()

    def test_a_blocked_name_that_another_plugin_declares_blocks_that_backend(self, spy):
        found = chosen(ACCEL_BLOCK="other,npu")
        assert (found.name, statuses(found)["other"]) == ("spy", "blocked")

    @posix
    @pytest.mark.parametrize("mode", ["inline", "isolated"])
    def test_what_is_blocked_does_not_come_in_through_torchs_own_door(
        self, torch_world, mode
    ):
        """`generic` loads what announces itself to torch and nobody claims; who claims it nobody asks now."""
        torch_world.module("torch_spy", "def _autoload(): pass\n")
        torch_world.distribution(
            "torch-spy", "1.0", {"torch.backends": {"torch_spy": "torch_spy:_autoload"}}
        )
        torch_world.backend("spy", 900, vendor_import="torch_spy")
        found = chosen(ACCEL_BLOCK="spy", ACCEL_PROBE=mode)
        generic = next(v for v in found.verdicts if v.name == "generic")
        assert (found.name, generic.status) == ("cpu", Status.NO_DEVICE)
        assert (
            "a plugin claims what announces one to torch (torch-spy: spy)"
            in generic.reason
        )


def test_a_plugin_that_fails_here_after_it_lived_in_a_child_is_broken(torch_world):
    torch_world.plugin(
        "npu",
        "import sys\nif 'pytest' in sys.modules: raise OSError('not beside pytest')\n"
        + declaring(arguments("npu", 700)),
    )
    found = chosen(ACCEL_PROBE="isolated")
    assert found.name == "cpu"
    assert found.verdicts[0].status is Status.BROKEN
    assert (
        "the plugin failed to load: OSError: not beside pytest"
        in found.verdicts[0].reason
    )


@posix
def test_one_that_fails_beside_others_alone_says_so_and_its_advice_leads_to_the_culprit(
    torch_world,
):
    torch_world.backend(
        "bbb", 900, extra="\nimport sys; sys.modules['colorsys'] = None\n"
    )
    torch_world.backend("mlu", 500, extra="\nimport colorsys\n")
    torch_world.backend("npu", 100)
    found = {each.name: each for each in look(None, ISOLATED)}
    assert {name for name, each in found.items() if each.backend is None} == {"mlu"}
    assert found["mlu"].status is Status.BROKEN
    assert found["mlu"].reason == (
        "the plugin failed to load: ModuleNotFoundError: import of colorsys halted; None in sys.modules "
        "(entry point mlu = 'accel_mlu'); it loads alone, so another plugin is to blame"
    )
    assert found["mlu"].hint == (
        "to find that one, name the other plugins in ACCEL_BLOCK, one at a time"
    )
    for name, loads in (("npu", False), ("bbb", True)):
        again = {
            each.name: each
            for each in look(None, replace(ISOLATED, block=(Pin(name),)))
        }
        assert (again["mlu"].backend is not None) is loads, name


# ---------------------------------------------------------------------------- probe isolated
# Probing in a child process: whatever a vendor does to it is a verdict here.


def alone(candidate):
    """The verdict on a candidate beside no other, in a child process only."""
    return Prober(Settings(), isolated=True).probe(candidate, (candidate,))


@posix
def test_one_judge_asks_once(torch_world, monkeypatch):
    ran = []
    real = child.run
    monkeypatch.setattr(
        child, "run", lambda *args, **more: ran.append(args[0]) or real(*args, **more)
    )
    torch_world.backend("npu")
    candidates = discover()
    prober = Prober(Settings(), isolated=True)
    first, again = [
        [prober.probe(c, candidates) for c in candidates if c.name == "npu"]
        for _ in ("one", "two")
    ]
    assert first == again
    assert ran == [isolation._probe_in_child]


REINSTALL = "reinstall the vendor's package"
REPORT = "report this to the maintainers of accel-npu"
IMPORTING = "importing torch_npu (accel-npu 1.0)"
EXPLAINS = hook("accel_explain", "backend, error", DIE)
#: The vendor's source, more of the plugin's, and its accelerator; how the child ends, where, and what helps.
#: Each end, and what is quoted of it, is told in tests/internal/test_child.py.
ENDS = {
    "last words": (
        f"import sys; sys.stderr.write('fatal: no CANN\\n'); sys.stderr.flush(); {DIE}", "", "",
        f"exited with status 3 at: {IMPORTING}; last words: fatal: no CANN", REINSTALL,
    ),
    "accel_probe": (
        "", hook("accel_probe", "backend, others", DIE), "",
        "exited with status 3 at: accel_probe() of accel-npu 1.0", REPORT,
    ),
    "accel_create": (
        "", hook("accel_create", "backend, others", DIE), "",
        "exited with status 3 at: accel_create() of accel-npu 1.0", REPORT,
    ),
    "accelerator": (
        "", "", "torch_dying:Any",
        "exited with status 3 at: accelerator='torch_dying:Any' of accel-npu 1.0", REPORT,
    ),
    "while it looks for a hint": (
        "", hook("accel_create", "backend, others", "raise OSError") + EXPLAINS, "",
        "exited with status 3 at: accel_create() of accel-npu 1.0, and what its error means", REPORT,
    ),
}  # fmt: skip


@posix
@pytest.mark.parametrize("how", ENDS)
def test_who_takes_the_process_down_is_named_with_the_step(torch_world, how):
    source, extra, accelerator, ending, step = ENDS[how]
    torch_world.module("torch_dying", DIE)
    fields = {"accelerator": accelerator} if accelerator else {}
    vendor(torch_world, source, extra=extra, **fields)
    found = judge(settings=ISOLATED)
    assert found.status is Status.CRASHED
    assert found.reason == f"the process that probed it {ending}"
    assert found.hint == f"{step}, or set ACCEL_BLOCK=npu"
    assert "torch_npu" not in sys.modules


@posix
def test_a_vendor_that_hangs_is_timed_out_within_the_deadline(torch_world):
    """A driver may hang in its first call until the job's time is over."""
    vendor(torch_world, "import time; time.sleep(60)")
    start = time.monotonic()
    found = judge(settings=Settings(isolated=True, probe_timeout=2))
    assert time.monotonic() - start < 6
    assert found.status is Status.TIMED_OUT
    assert (
        found.reason
        == "no answer within 2 s; it was at: importing torch_npu (accel-npu 1.0)"
    )
    assert found.hint == "raise ACCEL_PROBE_TIMEOUT, or set ACCEL_BLOCK=npu"


@posix
def test_a_vendor_that_fails_politely_in_a_child_says_the_same_as_here(torch_world):
    vendor(
        torch_world,
        "print('{}'); raise ImportError('libhccl.so')",
        extra=hook("accel_explain", "backend, error", "return 'source set_env.sh'"),
    )
    here, there = judge(), judge(isolated=True)
    assert (there.status, there.reason, there.hint) == (
        here.status,
        here.reason,
        here.hint,
    )


@posix
def test_no_device_in_a_child_is_the_end_of_it_except_for_a_pin(torch_world):
    counting(torch_world, "return 0")
    assert judge(settings=ISOLATED).status is Status.NO_DEVICE
    assert "torch" not in sys.modules
    assert judge(settings=ISOLATED, pinned=True).usable
    assert "torch" in sys.modules


@posix
def test_the_child_finds_the_very_candidate(torch_world):
    """Two backends of one name and one distribution differ in their priority."""
    torch_world.module("none_device", ACCELERATOR.format(count="return 0"))
    torch_world.plugin(
        "xpu",
        declaring(
            arguments("xpu", 800, accelerator="none_device:Simulated"),
            arguments("xpu", 790),
        ),
    )
    first, second = [alone(c) for c in discover() if c.name == "xpu"]
    assert (first.priority, first.status) == (800, Status.NO_DEVICE)
    assert (second.priority, second.status) == (790, Status.USABLE)


@posix
def test_a_plugin_that_only_this_process_has_is_broken_in_the_child(torch_world):
    torch_world.backend("npu")
    found = next(c for c in discover() if c.name == "npu")
    (torch_world.site / "accel_npu.py").unlink()
    assert alone(found).reason.startswith(
        "the plugin failed to load: ModuleNotFoundError: "
    )


def test_no_child_to_be_had_is_a_verdict(torch_world, monkeypatch):
    torch_world.backend("npu")
    monkeypatch.setattr(sys, "executable", None)
    found = judge(isolated=True)
    assert found.status is Status.CRASHED
    assert found.reason.startswith("no process could be started to ask it: ")
    assert found.hint == ""
    monkeypatch.setenv("ACCEL_PROBE", "isolated")
    assert judge(isolated=True).hint == "unset ACCEL_PROBE to probe in this process"


def test_what_is_built_in_needs_no_child_for_its_answer(torch_world):
    cpu = next(c for c in discover() if c.name == "cpu")
    assert alone(cpu).usable
    assert "torch" not in sys.modules
