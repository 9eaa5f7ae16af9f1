"""Plugins that end, crash or hang the process that loads them; and plugins that nobody may load."""

import sys
import time
from dataclasses import replace

import pytest
from accel_tests.asking import chosen, judge, look, names, statuses
from accel_tests.plugins import HEAD, arguments, declaring, hook

import accel_core
from accel_core import ResourceRequest, Verdict, isolation
from accel_core.settings import Pin, Settings, read
from accel_core.verdict import Status

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
    rich = {
        "hints": ((r"lib(a|b)\.so", "do this"),),
        "request": ResourceRequest(slurm="gpu"),
    }
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
            assert far.backend == near.backend
            assert far.provenance == near.provenance
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
    assert found["bad"].reason.startswith("no response within 1.5 s; last step: ")
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
    assert found.name == "mlu"
    assert found.verdicts[0].hint == "from mlu"
    assert judge(isolated=True).hint == "from mlu"


#: Settings by which the user rules the plugin spy out.
POLICIES = [
    {"ACCEL_BLOCK": "spy"},
    {"ACCEL_BLOCK": "spy@accel-spy"},
    {"ACCEL_ALLOW": "npu,cpu"},
    {"ACCEL_ALLOW": "npu,spy@another"},
    {"ACCEL_ALLOW": "npu,other@accel-spy", "ACCEL_BLOCK": "spy"},
]


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

    @pytest.mark.parametrize("policy", POLICIES, ids=str)
    def test_applies_before_the_import(self, spy, policy):
        found = chosen(**policy)
        assert found.name == "npu"
        assert statuses(found)["spy"] == "blocked"
        assert not spy.exists()

    @pytest.mark.parametrize("policy", POLICIES, ids=str)
    def test_the_verdict_and_its_hint_name_the_variable(self, spy, policy):
        verdict = next(v for v in chosen(**policy).verdicts if v.name == "spy")
        variable = "ACCEL_BLOCK" if "ACCEL_BLOCK" in policy else "ACCEL_ALLOW"
        assert variable in verdict.reason
        assert variable in verdict.hint

    @pytest.mark.parametrize("pin", ["spy", "other", "spy@accel-spy"])
    @pytest.mark.parametrize("policy", POLICIES, ids=str)
    def test_applies_to_a_pin(self, spy, policy, pin):
        assert chosen(**policy, DS_ACCELERATOR=pin).name is None
        assert not spy.exists()

    @pytest.mark.parametrize("policy", POLICIES, ids=str)
    def test_nobody_looks_into_the_plugin_for_another_name(self, spy, policy):
        assert look(Pin("other"), read(policy)) == ()
        assert not spy.exists()

    @pytest.mark.parametrize("policy", POLICIES, ids=str)
    def test_the_plugin_is_listed_unimported(self, spy, policy, monkeypatch):
        for name, value in policy.items():
            monkeypatch.setenv(name, value)
        assert "spy" in names(accel_core.discover())
        assert not spy.exists()

    @posix
    def test_applies_to_the_child_that_imports(self, spy):
        found = chosen(ACCEL_BLOCK="spy", ACCEL_PROBE="isolated")
        assert found.name == "npu"
        assert statuses(found)["spy"] == "blocked"
        assert not spy.exists()

    def test_a_name_with_its_distribution_allows_that_to_be_imported(self, spy):
        """An entry point may be called otherwise than what it declares."""
        found = chosen(ACCEL_ALLOW="other@accel-spy")
        assert found.name == "other"
        assert statuses(found)["spy"] == "blocked"
        assert spy.exists()

    def test_a_blocked_name_that_another_plugin_declares_blocks_that_backend(self, spy):
        found = chosen(ACCEL_BLOCK="other,npu")
        assert found.name == "spy"
        assert statuses(found)["other"] == "blocked"

    @posix
    @pytest.mark.parametrize("mode", ["inline", "isolated"])
    def test_what_is_blocked_does_not_come_in_through_torchs_autoload(
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
        assert found.name == "cpu"
        assert generic.status is Status.NO_DEVICE
        assert (
            "the packages that add one belong to other backends (torch-spy: spy)"
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
        "the plugin failed to load (entry point npu = 'accel_npu'): OSError: not beside pytest"
        in found.verdicts[0].reason
    )


@posix
def test_a_plugin_that_fails_only_beside_others_is_told_with_how_to_find_the_culprit(
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
        "the plugin loads alone, but failed to load together with other plugins (entry point "
        "mlu = 'accel_mlu'): ModuleNotFoundError: import of colorsys halted; None in sys.modules"
    )
    assert found["mlu"].hint == (
        "to find the cause, name the other plugins in ACCEL_BLOCK, one at a time"
    )
    for name, loads in (("npu", False), ("bbb", True)):
        again = {
            each.name: each
            for each in look(None, replace(ISOLATED, block=(Pin(name),)))
        }
        assert (again["mlu"].backend is not None) is loads, name
