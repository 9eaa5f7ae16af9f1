"""Which backend is chosen, how, what the record says, and the fall-back's one warning."""

import builtins
import json
import os
import sys
import warnings

import pytest
from accel_tests import layouts, plugins
from accel_tests.asking import chosen, counting, error, statuses
from accel_tests.plugins import NO_DEVICE, hook

import accel_core
from accel_core import current
from accel_core.backend import Hardware, InTorch, Visibility
from accel_core.errors import AcceleratorFallbackWarning, BackendConflictError
from accel_core.hardware import bus, vendors
from accel_core.select import select
from accel_core.settings import read
from accel_core.verdict import How, Status

# ---------------------------------------------------------------------------- ranked


def test_the_highest_usable_backend_is_chosen_and_nothing_below_is_probed(several):
    """Installed is not available: npu, which has no device, does not end the search."""
    several.module("sdaa_vendor", "")
    several.backend("sdaa", 200, vendor_import="sdaa_vendor")
    found = chosen()
    assert (found.name, found.how) == ("mlu", How.RANKED)
    below = dict.fromkeys(("sdaa", "generic", "cpu"), "not_probed")
    assert statuses(found) == {"npu": "no_device", "mlu": "usable", **below}
    assert found.verdicts[2].reason == "it ranks below mlu"
    assert "sdaa_vendor" not in sys.modules


def test_a_backend_that_ranks_lower_and_is_not_installed_is_in_the_record(several):
    several.backend("broken", 100, vendor_import="absent_vendor")
    assert statuses(chosen())["broken"] == "not_installed"


def test_a_broken_vendor_leaves_the_next_one_its_turn(several):
    several.module("torch_npu", "import sys; sys.exit(1)")
    several.backend("npu", 700, vendor_import="torch_npu")
    found = chosen()
    assert found.name == "mlu"
    assert statuses(found)["npu"] == "broken"


def test_an_accelerator_that_cannot_be_built_leaves_the_next_one_its_turn(several):
    several.backend(
        "npu",
        700,
        extra=hook("accel_probe", "backend, others", "return ProbeResult(True)"),
        accelerator="json:missing",
    )
    assert accel_core.get_accelerator().name == "mlu"
    assert statuses(accel_core.selection())["npu"] == "broken"


def test_an_impersonator_is_asked_first_and_what_it_impersonates_may_stand_aside(
    torch_world,
):
    """supa replaces torch.cuda, so cuda looks usable without an NVIDIA GPU."""
    aside = "return ProbeResult(False, 'supa has it', stands_aside=True)"
    torch_world.backend(
        "cuda", 900, extra=hook("accel_probe", "backend, others", aside)
    )
    torch_world.backend("supa", 100, in_torch=InTorch(impersonates="cuda"))
    found = chosen()
    assert [v.name for v in found.verdicts][:2] == ["supa", "cuda"]
    assert found.name == "supa"


@pytest.fixture
def taken_over(torch_world, monkeypatch):
    """`import torch` brings a package that takes `torch.cuda` over, by a hook such as Kunlunxin's."""
    usual = builtins.__import__

    def hooked(name, *arguments, **named):
        if name == "torch":
            usual("torch_deep")
        return usual(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", hooked)
    torch_world.module("torch_deep", "")
    torch_world.backend(
        "cuda",
        200,
        vendor_import="torch",
        device_type="cuda",
        in_torch=InTorch(taken_over_by=("torch_deep",)),
    )
    return torch_world


def test_what_torchs_import_takes_over_is_the_other_vendors(taken_over):
    found = chosen()
    assert (found.name, statuses(found)["cuda"]) == ("cpu", "stands_aside")
    assert found.verdicts[0].reason == "torch.cuda is impersonated by torch_deep"
    assert (
        found.verdicts[0].hint
        == "choose that vendor's own backend, or do not load torch_deep"
    )
    assert found.verdicts[0].reason in str(error(DS_ACCELERATOR="cuda"))
    taken_over.backend(
        "deep",
        190,
        vendor_import="torch_deep",
        device_type="cuda",
        in_torch=InTorch(impersonates="cuda"),
    )
    found = chosen()
    assert [v.name for v in found.verdicts][:2] == ["deep", "cuda"]
    assert found.name == "deep"


def test_a_cpu_plugin_is_a_conflict_and_the_built_in_cpu_stays(torch_world):
    torch_world.backend("cpu", 999, distribution="fast-cpu")
    found = chosen()
    assert (found.name, found.how, found.provenance.distribution) == (
        "cpu",
        How.FALLBACK,
        "accel-core",
    )
    (rival,) = [v for v in found.verdicts if not v.builtin]
    assert rival.status is Status.CONFLICT
    assert rival.hint == "set DS_ACCELERATOR=cpu@fast-cpu, or ACCEL_BLOCK the other one"
    assert chosen(DS_ACCELERATOR="cpu@fast-cpu").provenance.distribution == "fast-cpu"
    assert chosen(DS_ACCELERATOR="cpu").provenance.distribution == "accel-core"


# ---------------------------------------------------------------------------- conflicts


@pytest.fixture
def rivals(torch_world):
    torch_world.backend("npu", 700, distribution="accel-npu")
    torch_world.backend("npu", 600, distribution="better-npu")
    return torch_world


def test_ranked_choice_skips_both_of_two_rivals(rivals):
    found = chosen()
    assert found.name == "cpu"
    conflicts = [v for v in found.verdicts if v.status is Status.CONFLICT]
    assert [v.provenance.distribution for v in conflicts] == ["accel-npu", "better-npu"]
    assert conflicts[0].reason == "better-npu 1.0 declares npu too"
    assert (
        conflicts[0].hint
        == "set DS_ACCELERATOR=npu@accel-npu, or ACCEL_BLOCK the other one"
    )


def test_rivals_that_rank_below_the_chosen_one_are_conflicts_in_the_record(rivals):
    rivals.backend("top", 999)
    assert [v.status for v in chosen().verdicts if v.name == "npu"] == [
        Status.CONFLICT
    ] * 2


def test_with_both_rivals_blocked_both_are_blocked(rivals):
    assert [
        v.status for v in chosen(ACCEL_BLOCK="npu").verdicts if v.name == "npu"
    ] == [Status.BLOCKED] * 2


def test_a_pin_to_rivals_that_are_both_blocked_is_a_conflict(rivals):
    assert isinstance(
        error(ACCEL_BLOCK="npu", DS_ACCELERATOR="npu"), BackendConflictError
    )


def test_a_pin_to_rivals_asks_which_is_meant(rivals):
    found = error(DS_ACCELERATOR="npu")
    assert isinstance(found, BackendConflictError)
    assert "DS_ACCELERATOR='npu': accel-npu 1.0 and better-npu 1.0 declare npu." in str(
        found
    ).replace("better-npu 1.0 and accel-npu 1.0", "accel-npu 1.0 and better-npu 1.0")
    assert "npu@accel-npu" in str(found)
    assert "npu@better-npu" in str(found)
    assert not [m for m in sys.modules if m in ("accel_npu", "better_npu")]


def test_a_pin_to_rivals_under_other_entry_points_asks_too(torch_world):
    for name in ("one", "two"):
        torch_world.plugin(name, plugins.declaring(plugins.arguments("npu")))
    assert isinstance(error(DS_ACCELERATOR="npu"), BackendConflictError)


@pytest.mark.parametrize(
    "policy",
    [
        {"DS_ACCELERATOR": "npu@better-npu"},
        {"ACCEL_BLOCK": "npu@accel-npu"},
        {"ACCEL_ALLOW": "npu@Better_NPU,cpu"},
        {"ACCEL_BLOCK": "npu@accel-npu", "DS_ACCELERATOR": "npu"},
        {"ACCEL_ALLOW": "npu@better-npu", "DS_ACCELERATOR": "npu"},
    ],
)
def test_a_word_about_one_of_them_settles_it(rivals, policy):
    found = chosen(**policy)
    assert found.name == "npu"
    assert found.provenance.distribution == "better-npu"


# ---------------------------------------------------------------------------- the record


def test_the_record_is_kept_printable_and_json(several, monkeypatch):
    """A run that went to the CPU can be explained later: what was chosen, when, in which environment."""
    monkeypatch.setenv("ACCEL_BLOCK", "sdaa")
    accel_core.get_accelerator()
    record = accel_core.selection()
    assert record is accel_core.selection()
    data = json.loads(json.dumps(record.to_dict()))
    assert data["chosen"] == "mlu"
    assert data["how"] == "ranked"
    assert (data["distribution"], data["version"]) == ("accel-mlu", "1.0")
    assert data["pid"] == os.getpid()
    assert data["environ"] == {"ACCEL_BLOCK": "sdaa"}
    assert data["ms"] > 0
    # Of sdaa, which is blocked, the plugin is not imported: its priority is not known.
    assert [v["name"] for v in data["verdicts"]] == [
        "npu",
        "mlu",
        "generic",
        "sdaa",
        "cpu",
    ]
    text = str(record)
    for line in (
        "mlu (accel-mlu 1.0): the highest-ranking usable one.",
        "  npu (accel-npu 1.0): no device: nothing on the bus",
        "  sdaa (accel-sdaa 1.0): blocked: ACCEL_BLOCK names it.",
        "Variables: ACCEL_BLOCK='sdaa'",
        f"Chosen by process {os.getpid()} in ",
    ):
        assert line in text
    assert "mlu (accel-mlu 1.0): usable" not in text


@pytest.mark.parametrize(
    ("pin", "how"),
    [
        ("mlu", "pinned by DS_ACCELERATOR"),
        ("npu,mlu", "the first usable one of DS_ACCELERATOR's list"),
    ],
)
def test_the_record_says_how(several, pin, how):
    assert how in str(chosen(DS_ACCELERATOR=pin))


def test_a_failed_choice_has_a_record_too(several):
    found = chosen(DS_ACCELERATOR="tpu")
    assert str(found).startswith(
        "No backend could be chosen. DS_ACCELERATOR='tpu': no installed"
    )
    assert json.loads(json.dumps(found.to_dict()))["chosen"] is None


def test_hardware_without_a_plugin_is_in_the_printed_record(torch_world, monkeypatch):
    known = vendors.Vendor(
        "NVIDIA GPU", "cuda", evidence=bus.Evidence(nodes=("/dev/nvidia0",))
    )
    monkeypatch.setattr(vendors, "known_hardware", lambda: (known,))
    assert "NVIDIA GPU is present" in str(chosen())


# ---------------------------------------------------------------------------- choice fallback
# The fall-back to the CPU warns once, with every reason, and only where it is news.


def test_the_fall_back_warns_once_with_every_reason(torch_world):
    """The CPU is never used silently: one warning a process, at the caller's line, with the reasons."""
    torch_world.backend("npu", extra=NO_DEVICE)
    torch_world.backend(
        "mlu", vendor_import="torch_mlu", install_hint="pip install torch-mlu"
    )
    torch_world.plugin("bad", "raise ImportError('libbad.so')")
    with pytest.warns(AcceleratorFallbackWarning) as caught:
        assert accel_core.get_accelerator().name == "cpu"
    (warning,) = caught
    text = str(warning.message)
    assert text.startswith("No accelerator is usable, so the CPU is used:\n")
    for line in (
        "npu (accel-npu 1.0): no device: nothing on the bus",
        "mlu (accel-mlu 1.0): not installed: torch_mlu is not installed. pip install torch-mlu",
        "bad (accel-bad 1.0): broken: the plugin failed to load: ImportError: libbad.so",
        "Run `accel why`",
        "DS_ACCELERATOR=cpu",
    ):
        assert line in text
    assert "generic" not in text
    assert warning.filename == __file__
    accel_core.set_accelerator(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert accel_core.get_accelerator().name == "cpu"


def test_many_missing_vendor_packages_share_one_line_of_the_warning(torch_world):
    for name in ("mlu", "sdaa", "supa"):
        torch_world.backend(name, vendor_import=f"torch_{name}")
    torch_world.plugin("bad", "raise ImportError('libbad.so')")
    (caught,) = warned()
    text = str(caught.message)
    assert "  vendor's package not installed: mlu, sdaa, supa\n" in text
    assert "bad (accel-bad 1.0): broken" in text
    assert text.count("\n") == 3


def test_the_warning_points_at_the_callers_line_from_everywhere(torch_world):
    torch_world.backend("npu", extra=NO_DEVICE)
    for call in (accel_core.get_accelerator, accel_core.selection):
        assert [w.filename for w in warned(call)] == [__file__]


def test_a_warning_that_is_an_error_leaves_a_choice_behind(torch_world):
    torch_world.backend("npu", extra=NO_DEVICE)
    with pytest.raises(AcceleratorFallbackWarning):
        accel_core.get_accelerator()
    assert accel_core.get_accelerator().name == "cpu"


def test_nothing_installed_and_nothing_there_is_no_news(torch_world):
    assert accel_core.get_accelerator().name == "cpu"
    assert accel_core.selection().how is How.FALLBACK


def test_a_pinned_cpu_is_no_reason_to_warn(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert warned() == []
    assert accel_core.get_accelerator().name == "cpu"


def test_a_backend_that_the_user_blocked_is_no_reason_to_warn(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    monkeypatch.setenv("ACCEL_BLOCK", "npu")
    assert warned() == []
    assert accel_core.get_accelerator().name == "cpu"


def test_hidden_devices_are_named_in_the_warning(torch_world, monkeypatch):
    """Ray sets CUDA_VISIBLE_DEVICES='' in actors without a GPU: the warning says what hides the devices."""
    counting(torch_world, "return 0", visibility=Visibility(variables=("NPU_VISIBLE",)))
    monkeypatch.setenv("NPU_VISIBLE", "")
    (caught,) = warned()
    assert "NPU_VISIBLE" in str(caught.message)
    assert accel_core.selection().environ["NPU_VISIBLE"] == ""


def test_a_broken_package_that_only_torch_knows_is_in_the_warning(torch_world):
    """The CPU is never used silently because an unclaimed vendor package is broken."""
    torch_world.module("torch_foo", "raise ImportError('libfoo.so')")
    torch_world.distribution(
        "torch-foo", "1.0", {"torch.backends": {"foo": "torch_foo:autoload"}}
    )
    with pytest.warns(
        AcceleratorFallbackWarning,
        match=r"generic .* broken: .*ImportError: libfoo\.so",
    ):
        assert accel_core.get_accelerator().name == "cpu"


def two_ways(world, first, second, **fields):
    """One name declared twice, through one package: what `accel_probe` says of each."""
    reason = f"{first!r} if backend.priority == 2 else {second!r}"
    body = f"return ProbeResult(False, {reason}, 'get one')"
    ways = [plugins.arguments("acme", priority, **fields) for priority in (2, 1)]
    world.plugin(
        "acme",
        plugins.declaring(*ways) + plugins.hook("accel_probe", "backend, others", body),
    )


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("no A", "no B", "no A; no B"),
        ("torch has neither", "torch has neither", "torch has neither"),
    ],
)
def test_two_declarations_of_one_backend_share_a_line(
    torch_world, monkeypatch, caplog, first, second, told
):
    caplog.set_level("DEBUG", "accel_core")  # in full
    two_ways(torch_world, first, second)
    (caught,) = warned()
    assert f"\n  acme (accel-acme 1.0): no device: {told}. get one\n" in str(
        caught.message
    )
    assert str(caught.message).count("acme") == 2  # its name and its distribution
    accel_core.set_accelerator(None)
    monkeypatch.setenv("DS_ACCELERATOR", "acme")
    with pytest.raises(accel_core.BackendUnavailableError) as refused:
        accel_core.get_accelerator()
    assert f"acme (accel-acme 1.0) is not usable: {told}. Next step: get one." in str(
        refused.value
    )


def test_that_one_device_is_missing_is_no_news_beside_the_other(
    torch_world, monkeypatch
):
    two_ways(
        torch_world,
        "its driver is not loaded",
        "no B",
        hardware=Hardware(nodes=("/dev/acme",)),
    )
    seen = {2: bus.Evidence(pci=("fade:0001",)), 1: None}
    monkeypatch.setattr(
        bus, "evidence", lambda backend, root="/": seen.get(backend.priority)
    )
    (caught,) = warned()
    text = str(caught.message)
    assert (
        "acme (accel-acme 1.0): no device: its driver is not loaded. get one\n" in text
    )
    assert "no B" not in text
    assert "no B" in str(accel_core.selection())


# --- how much is said, by whom, and where ---------------------------------------------------------------

HERE, GONE = ("/dev/null",), ("/dev/acme[0-9]*",)


def cards(world, *names, nodes=GONE):
    for name in names:
        card = Hardware(f"{name.capitalize()} GPU", nodes=nodes, pci_ids=("fade",))
        world.backend(
            name,
            hardware=card,
            vendor_import="json" if nodes == GONE else f"torch_{name}",
        )


def warned(call=accel_core.get_accelerator):
    accel_core.set_accelerator(None)
    current._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return caught


def test_where_there_merely_is_no_device_one_line_says_so(torch_world, caplog):
    cards(torch_world, "acme", "other")
    for name in ("mlu", "sdaa", "supa"):
        torch_world.backend(name, vendor_import=f"torch_{name}")
    (caught,) = warned()
    assert str(caught.message) == (
        "No accelerator is usable, so the CPU is used: no Acme or Other GPU found. `accel why` says more; "
        "DS_ACCELERATOR=cpu says that the CPU is meant."
    )
    caplog.set_level("DEBUG", "accel_core")
    (caught,) = warned()
    for words in (
        "/dev/acme[0-9]*",
        "vendor's package not installed: mlu, sdaa, supa",
        "other (accel-other",
    ):
        assert words in str(caught.message)


def test_hardware_that_is_here_is_told_first_and_in_full(torch_world):
    cards(torch_world, "acme")
    cards(torch_world, "zebra", nodes=HERE)
    (caught,) = warned()
    _, first, *_ = str(caught.message).splitlines()
    assert first.startswith(
        "  zebra (accel-zebra 1.0): not installed: torch_zebra is not installed, though"
    )


#: Who speaks of an absent device: rank 0 alone, as all hosts lack it. Of a broken one: a rank on each host.
RANKS = {
    "rank 0": {"rank": "0", "local_rank": "0", "warns_of_absent": True, "warns_of_broken": True},
    "another rank on its host": {
        "rank": "1", "local_rank": "1", "warns_of_absent": False, "warns_of_broken": False,
    },
    "first rank on another host": {
        "rank": "8", "local_rank": "0", "warns_of_absent": False, "warns_of_broken": True,
    },
    "rank without a local rank": {
        "rank": "3", "local_rank": "", "warns_of_absent": False, "warns_of_broken": False,
    },
    "no job": {"rank": "", "local_rank": "", "warns_of_absent": True, "warns_of_broken": True},
    "rank that is not a number": {
        "rank": "odd", "local_rank": "0", "warns_of_absent": False, "warns_of_broken": True,
    },
}  # fmt: skip


@pytest.fixture(params=RANKS.values(), ids=RANKS.keys())
def job_rank(request, monkeypatch):
    monkeypatch.setenv("RANK", request.param["rank"])
    monkeypatch.setenv("LOCAL_RANK", request.param["local_rank"])
    return request.param


def test_of_an_absent_device_one_rank_of_the_job_warns(torch_world, job_rank):
    cards(torch_world, "acme")
    assert len(warned()) == (1 if job_rank["warns_of_absent"] else 0)


def test_of_a_broken_device_one_rank_on_each_host_warns(torch_world, job_rank):
    cards(torch_world, "acme")
    cards(torch_world, "zebra", nodes=HERE)
    assert len(warned()) == (1 if job_rank["warns_of_broken"] else 0)


def test_it_points_past_packages_at_the_users_own_line(torch_world, tmp_path):
    torch_world.backend("npu", extra=NO_DEVICE)
    between = torch_world.root / "site-packages" / "framework.py"
    between.write_text("import accel_core\naccel_core.get_accelerator()\n")
    assert "site-packages" in str(between)
    torch_world.plugin("unused", "")
    user = tmp_path / "train.py"
    user.write_text(
        "import warnings\nwarnings.simplefilter('default')\n\nimport framework\n"
    )
    done = torch_world.child(
        f"import runpy\nrunpy.run_path({str(user)!r})", strict=False
    )
    assert f"{user}:4: AcceleratorFallbackWarning: No accelerator" in done.stderr


# ---------------------------------------------------------------------------- choice generic
# A device that only torch knows is chosen where no plugin claims it.


def announce(world, source, name="foo"):
    world.module(f"torch_{name}", source)
    world.distribution(
        f"torch-{name}", "1.0", {"torch.backends": {name: f"torch_{name}:autoload"}}
    )


BRINGS = """
import torch, types
def autoload():
    torch.foo = types.ModuleType("torch.foo")
    torch.foo.device_count = lambda: 3
    torch.accelerator.current = "foo"
"""


@pytest.mark.parametrize("pin", ["", "foo", "generic"])
def test_a_device_that_only_torch_knows_is_generic(torch_world, monkeypatch, pin):
    announce(torch_world, BRINGS)
    monkeypatch.setenv("DS_ACCELERATOR", pin)
    acc = accel_core.get_accelerator()
    assert (acc.name, acc.device_name(), acc.device_count()) == ("generic", "foo", 3)
    reasons = [str(verdict) for verdict in accel_core.selection().verdicts]
    assert any(
        "torch-foo 1.0 registers 'foo' with torch, and counts 3" in reason
        for reason in reasons
    )


def test_what_registers_a_device_and_counts_none_is_named(torch_world):
    """As torch_musa without its driver (MooreThreads/torch_musa#50)."""
    none = "\n    torch._C.private_use1, torch.ones = 'foo', lambda *_, **__: torch.lost()\n"
    lost = "def lost(): raise RuntimeError('no device')\ntorch.lost = lost\n"
    announce(torch_world, BRINGS.replace("3", "0").rstrip() + none + lost)
    told = select(read()).verdicts[1]
    assert (told.name, told.status) == ("generic", Status.NO_DEVICE)
    assert (
        told.reason == "torch-foo 1.0 registers 'foo' with torch, and counts no device"
    )
    assert told.hint.startswith("run the vendor's own tool")


@pytest.mark.parametrize("pin", ["bar", "foo@other", "npu"])
def test_of_another_name_or_distribution_it_is_not(torch_world, monkeypatch, pin):
    """A package whose plugin we have is left to it: it only has to be installed."""
    announce(torch_world, BRINGS)
    announce(torch_world, BRINGS, "npu")
    monkeypatch.setenv("DS_ACCELERATOR", pin)
    with pytest.raises(accel_core.BackendNotFoundError):
        accel_core.get_accelerator()


def test_a_broken_announcement_leaves_the_next_its_turn(torch_world):
    announce(torch_world, BRINGS)
    first = (
        torch_world.root / "first"
    )  # on the path, so that the broken one comes first
    layouts.dist_info(
        first, "torch-aaa", "1.0", {"torch.backends": {"aaa": "torch_aaa:autoload"}}
    )
    torch_world.module("torch_aaa", "import sys; sys.exit(1)")
    torch_world.set_path([first, torch_world.site])
    assert accel_core.get_accelerator().name == "generic"


#: The same of a package without an entry point: importing it is all that it takes.
BRINGS_AT_IMPORT = f"{BRINGS}\nautoload()\n"


@pytest.mark.parametrize("isolated", [False, True])
def test_a_package_that_announces_nothing_can_be_named(
    torch_world, monkeypatch, isolated
):
    """`accel --import` sets it, for the children that try the device."""
    torch_world.module("torch_foo", BRINGS_AT_IMPORT)
    monkeypatch.setenv("ACCEL_IMPORT", " torch_foo ,")
    found = select(read(), isolated=isolated)
    assert (found.name, found.verdicts[0].devices) == ("generic", 3)
    assert ("torch_foo" in sys.modules) is not isolated


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise OSError('libfoo.so')", "OSError: libfoo.so"),
        ("raise SystemExit(3)", "SystemExit: it tried to end the process with 3"),
    ],
    ids=["raises", "exits"],
)
def test_a_package_that_is_named_and_fails_is_named_in_the_verdict(
    torch_world, monkeypatch, source, told
):
    torch_world.module("torch_foo", source)
    monkeypatch.setenv("ACCEL_IMPORT", "torch_foo")
    generic = select(read(), isolated=True).verdicts[0]
    assert generic.status is Status.BROKEN
    assert (
        generic.reason
        == f"torch_foo, which ACCEL_IMPORT names, fails to import: {told}"
    )
    assert generic.hint == "take torch_foo out of ACCEL_IMPORT"


def test_a_package_that_a_plugin_claims_is_left_to_the_plugin(torch_world):
    announce(torch_world, "raise SystemExit('imported')")
    torch_world.backend("foo", vendor_import="torch_foo", extra=NO_DEVICE)
    found = chosen()
    assert statuses(found) == {
        "foo": "no_device",
        "generic": "no_device",
        "cpu": "usable",
    }
    assert (
        found.verdicts[1].reason
        == "torch 2.99.0+simulated (CPU build) has no accelerator, and a plugin claims what announces one to "
        "torch (torch-foo: foo)"
    )
    assert "torch_foo" not in sys.modules


def test_a_device_that_a_plugin_claims_is_left_to_the_plugin(
    torch_world, simulated_torch
):
    torch_world.backend("mlu", extra=NO_DEVICE)
    simulated_torch.accelerator.current = "mlu"
    found = chosen()
    assert statuses(found)["generic"] == "stands_aside"
    assert found.verdicts[1].reason == "torch's accelerator is mlu, which mlu claims"


def test_torch_without_an_accelerator_is_no_device(torch_world, simulated_torch):
    found = chosen()
    assert found.verdicts[0].reason == "torch reports no accelerator"
    assert found.verdicts[0].status is Status.NO_DEVICE


def test_a_torch_built_for_what_a_plugin_claims_stands_aside_unimported(world):
    world.module("torch.__init__", "raise SystemExit('imported')")
    world.module("torch.version", "__version__ = '2.9'\ncuda = '12.8'\n")
    world.backend("cuda", extra=NO_DEVICE)
    found = chosen()
    generic = found.verdicts[1]
    assert (generic.name, generic.status) == ("generic", Status.STANDS_ASIDE)
    assert generic.reason == "an installed plugin claims cuda"


def test_a_torch_built_for_something_nobody_claims_is_asked(world):
    world.module("torch.__init__", "raise RuntimeError('imported')")
    world.module("torch.version", "__version__ = '2.9'\nxpu = '2025'\n")
    found = chosen()
    assert found.verdicts[0].status is Status.BROKEN
    assert "RuntimeError: imported" in found.verdicts[0].reason


def test_what_nobody_claims_is_tried_in_a_child_where_probes_are_isolated(torch_world):
    """It may end the process, as it would by torch's own autoload."""
    announce(torch_world, "def autoload():\n    import os\n    os._exit(3)\n")
    found = chosen(ACCEL_PROBE="isolated")
    assert found.name == "cpu"
    assert found.verdicts[1].status is Status.CRASHED
    assert "torch_foo" not in sys.modules
