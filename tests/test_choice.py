"""Which backend is chosen, how, and what the record and the errors say about it."""

from __future__ import annotations

import json
import os
import sys
import warnings

import pytest
from accel_testing import layouts, plugins
from accel_testing.plugins import hook

import accel_core
from accel_core import choice, current, hardware
from accel_core.choice import How, Selection, choose
from accel_core.errors import (
    AcceleratorFallbackWarning,
    AccelError,
    BackendConflictError,
    BackendNotFoundError,
    BackendUnavailableError,
    SettingError,
)
from accel_core.settings import read
from accel_core.verdict import Status

NO_DEVICE = hook(
    "accel_probe", "backend, others", "return ProbeResult(False, 'nothing on the bus', devices=0)"
)


def chosen(**environ: str) -> Selection:
    return choose(read(environ), environ).selection


def error(**environ: str) -> AccelError:
    found = choose(read(environ), environ)
    assert found.error is not None
    assert found.selection.chosen is None
    assert found.selection.problem == str(found.error)
    return found.error


def statuses(selection: Selection) -> dict[str, str]:
    return {v.name: v.status.value for v in selection.verdicts}


@pytest.fixture
def several(torch_world):
    """npu has no device; mlu and sdaa work."""
    torch_world.backend("npu", 700, extra=NO_DEVICE)
    torch_world.backend("mlu", 300)
    torch_world.backend("sdaa", 200)
    return torch_world


# ---------------------------------------------------------------------------- ranked


def test_the_highest_usable_backend_is_chosen_and_nothing_below_is_probed(several):
    """USERS 9: installed is not available; npu without a device does not end the search."""
    several.module("sdaa_vendor", "")
    several.backend("sdaa", 200, vendor_import="sdaa_vendor")
    found = chosen()
    assert (found.chosen, found.how) == ("mlu", How.RANKED)
    assert statuses(found) == {
        "npu": "no_device",
        "mlu": "usable",
        "sdaa": "not_probed",
        "generic": "not_probed",
        "cpu": "not_probed",
    }
    assert found.verdicts[2].reason == "it ranks below mlu"
    assert "sdaa_vendor" not in sys.modules


def test_the_runner_up_and_what_could_not_be_it_are_in_the_record(several):
    """USERS 10: the report shows what else there was."""
    several.backend("broken", 100, vendor_import="absent_vendor")
    assert statuses(chosen())["broken"] == "not_installed"


@pytest.mark.parametrize(
    "source",
    [
        "raise ImportError('x')",
        "raise OSError('x')",
        "import json; json.x",
        "raise RuntimeError",
        "import sys; sys.exit(1)",
    ],
)
def test_a_broken_vendor_leaves_the_next_one_its_turn(several, source):
    """USERS 6, 8."""
    several.module("torch_npu", source)
    several.backend("npu", 700, vendor_import="torch_npu")
    found = chosen()
    assert found.chosen == "mlu"
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


def test_an_impersonator_is_asked_first_and_what_it_impersonates_may_stand_aside(torch_world):
    """USERS 11, 12."""
    aside = "return ProbeResult(False, 'supa has it', stands_aside=True)"
    torch_world.backend("cuda", 900, extra=hook("accel_probe", "backend, others", aside))
    torch_world.backend("supa", 100, impersonates="cuda")
    found = chosen()
    assert [v.name for v in found.verdicts][:2] == ["supa", "cuda"]
    assert found.chosen == "supa"


def test_a_cpu_plugin_is_a_conflict_and_the_built_in_cpu_stays(torch_world):
    torch_world.backend("cpu", 999, distribution="fast-cpu")
    found = chosen()
    assert (found.chosen, found.how, found.provenance.distribution) == ("cpu", How.FALLBACK, "accel-core")
    (rival,) = [v for v in found.verdicts if not v.builtin]
    assert rival.status is Status.CONFLICT
    assert rival.hint == "set DS_ACCELERATOR=cpu@fast-cpu, or ACCEL_BLOCK the other one"
    assert chosen(DS_ACCELERATOR="cpu@fast-cpu").provenance.distribution == "fast-cpu"
    assert chosen(DS_ACCELERATOR="cpu").provenance.distribution == "accel-core"


# ---------------------------------------------------------------------------- pinned


@pytest.mark.parametrize("text", ["mlu", " mlu ", "MLU", "mlu,", "Mlu@Accel_MLU", "mlu@accel-mlu"])
def test_a_pin_in_all_its_forms(several, text):
    """USERS 33."""
    found = chosen(DS_ACCELERATOR=text)
    assert (found.chosen, found.how) == ("mlu", How.PINNED)
    assert statuses(found) == {"mlu": "usable"}
    assert found.environ == {"DS_ACCELERATOR": text}


@pytest.mark.parametrize("text", ["", "  ", ","])
def test_an_empty_pin_is_no_pin(several, text):
    assert chosen(DS_ACCELERATOR=text).how is How.RANKED


@pytest.mark.parametrize("name", ["npu", "mlu", "sdaa", "cpu"])
def test_every_installed_name_can_be_pinned(several, name):
    """USERS 33: DS_ACCELERATOR=cuda recursed for ever. USERS 31: npu has no device here."""
    assert chosen(DS_ACCELERATOR=name).chosen == name


def test_an_unknown_pin_lists_what_is_installed_and_what_was_meant(several):
    found = error(DS_ACCELERATOR="mlo")
    assert isinstance(found, BackendNotFoundError)
    assert isinstance(found, LookupError)
    assert str(found) == (
        "DS_ACCELERATOR='mlo': no installed distribution declares mlo. "
        "Installed: mlu, npu, sdaa, generic, cpu. "
        "Did you mean 'mlu'? Next step: install the plugin that brings it, see `accel list`."
    )


def test_a_known_backend_that_is_not_installed_says_what_to_install(torch_world):
    assert str(error(DS_ACCELERATOR="cuda")) == (
        "DS_ACCELERATOR='cuda': no installed distribution declares cuda. "
        "Installed: generic, cpu. Next step: pip install accel-cuda."
    )


def test_a_pin_to_a_distribution_that_is_not_there(several):
    found = error(DS_ACCELERATOR="mlu@better-mlu")
    assert "no installed distribution declares mlu from better-mlu" in str(found)
    assert "Next step: pip install better-mlu." in str(found)
    assert "Did you mean" not in str(found)


def test_a_pin_whose_vendor_is_missing_names_everything(several):
    """The thing, its distribution, the cause, the next step; there is no fall-back from a pin."""
    several.backend("xpu", vendor_import="ipex", install_hint="pip install intel-extension-for-pytorch")
    found = error(DS_ACCELERATOR="xpu")
    assert isinstance(found, BackendUnavailableError)
    assert isinstance(found, RuntimeError)
    assert str(found) == (
        "xpu (accel-xpu 1.0) is not usable: ipex is not installed. "
        "Next step: pip install intel-extension-for-pytorch. "
        "Or set DS_ACCELERATOR to one of: mlu, npu, sdaa, cpu."
    )


def test_a_pin_whose_vendor_is_broken_keeps_the_cause_and_the_hint(several):
    """USERS 2, 3, 7."""
    several.module("torch_xpu", "raise ImportError('libze.so: cannot open shared object file')")
    several.backend(
        "xpu",
        vendor_import="torch_xpu",
        extra=hook("accel_explain", "backend, error", "return 'source setvars.sh'"),
    )
    found = error(DS_ACCELERATOR="xpu")
    assert "xpu (accel-xpu 1.0) is not usable: torch_xpu failed: ImportError: libze.so" in str(found)
    assert "Next step: source setvars.sh." in str(found)
    assert isinstance(found.__cause__, ImportError)


def test_a_pin_to_a_plugin_that_fails_to_load(several):
    several.plugin("bad", "raise OSError('libbad.so')")
    found = error(DS_ACCELERATOR="bad")
    assert "bad (accel-bad 1.0) is not usable: the plugin failed to load: OSError: libbad.so" in str(found)
    assert "Next step: pip install --force-reinstall accel-bad, or pip uninstall it." in str(found)


def test_a_preference_list_takes_the_first_that_is_usable(several):
    """One that is unknown, or has no device, is passed over here, and the record says so."""
    found = chosen(DS_ACCELERATOR="tpu, npu, mlu, sdaa, cpu")
    assert (found.chosen, found.how) == ("mlu", How.PREFERRED)
    assert statuses(found) == {"tpu": "not_installed", "npu": "no_device", "mlu": "usable"}


def test_a_preference_list_of_which_none_is_usable_tells_all(several):
    found = error(DS_ACCELERATOR="npu,tpu")
    assert "DS_ACCELERATOR='npu,tpu': none of these is usable." in str(found)
    assert "npu (accel-npu 1.0): no device: nothing on the bus" in str(found)
    assert "tpu" in str(found)
    assert "no installed distribution declares tpu" in str(found)
    assert "Or set DS_ACCELERATOR to one of: mlu, sdaa, cpu." in str(found)


def test_the_cpu_at_the_end_of_a_list_is_a_choice_and_no_fall_back(several):
    found = chosen(DS_ACCELERATOR="npu,cpu")
    assert (found.chosen, found.how) == ("cpu", How.PREFERRED)


@pytest.mark.parametrize("pin", ["npu", "npu@accel-npu", "NPU"])
def test_a_pinned_choice_imports_exactly_one_plugin_module(several, pin):
    """USERS 22, 28: asserted in a process of its own."""
    code = (
        "import json, sys\nimport accel_core\nname = accel_core.get_accelerator().name\n"
        "mine = sorted(m for m in sys.modules if m.startswith('accel_') and not m.startswith('accel_core'))\n"
        "print(json.dumps([name, mine]))"
    )
    assert several.child(code, variables={"DS_ACCELERATOR": pin}).answer == [
        "npu",
        ["accel_npu", "accel_sim_device"],
    ]


def test_the_pinned_cpu_imports_no_plugin_and_probes_no_vendor(several):
    """USERS 22: JAX_PLATFORMS=cpu still ran cuInit."""
    code = (
        "import json, sys\nimport accel_core\nassert accel_core.get_accelerator().name == 'cpu'\n"
        "mine = sorted(m for m in sys.modules if m.startswith('accel_') and not m.startswith('accel_core'))\n"
        "print(json.dumps(mine))"
    )
    assert several.child(code, variables={"DS_ACCELERATOR": "cpu"}).answer == []


# ---------------------------------------------------------------------------- conflicts


@pytest.fixture
def rivals(torch_world):
    torch_world.backend("npu", 700, distribution="accel-npu")
    torch_world.backend("npu", 600, distribution="better-npu")
    return torch_world


def test_ranked_choice_skips_both_of_two_rivals(rivals):
    found = chosen()
    assert found.chosen == "cpu"
    conflicts = [v for v in found.verdicts if v.status is Status.CONFLICT]
    assert [v.provenance.distribution for v in conflicts] == ["accel-npu", "better-npu"]
    assert conflicts[0].reason == "better-npu 1.0 declares npu too"
    assert conflicts[0].hint == "set DS_ACCELERATOR=npu@accel-npu, or ACCEL_BLOCK the other one"


def test_rivals_below_what_is_chosen_are_still_told(rivals):
    rivals.backend("top", 999)
    assert [v.status for v in chosen().verdicts if v.name == "npu"] == [Status.CONFLICT] * 2


def test_a_pin_to_rivals_asks_which_is_meant(rivals):
    found = error(DS_ACCELERATOR="npu")
    assert isinstance(found, BackendConflictError)
    assert "DS_ACCELERATOR='npu': accel-npu 1.0 and better-npu 1.0 declare npu." in str(found).replace(
        "better-npu 1.0 and accel-npu 1.0", "accel-npu 1.0 and better-npu 1.0"
    )
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
    assert found.chosen == "npu"
    assert found.provenance.distribution == "better-npu"


def test_with_both_rivals_blocked_both_are_blocked(rivals):
    assert {v.status for v in chosen(ACCEL_BLOCK="npu").verdicts if v.name == "npu"} == {Status.BLOCKED}
    assert isinstance(error(ACCEL_BLOCK="npu", DS_ACCELERATOR="npu"), BackendConflictError)


# ---------------------------------------------------------------------------- policy, strictness, modes


def test_allow_and_block(several):
    assert chosen(ACCEL_BLOCK="mlu").chosen == "sdaa"
    assert chosen(ACCEL_ALLOW="sdaa").chosen == "sdaa"
    assert chosen(ACCEL_ALLOW="SDAA , cpu").chosen == "sdaa"
    assert chosen(ACCEL_ALLOW="mlu,sdaa", ACCEL_BLOCK="mlu").chosen == "sdaa"


def test_a_pin_does_not_override_the_policy(several):
    found = error(DS_ACCELERATOR="mlu", ACCEL_BLOCK="mlu")
    assert (
        "mlu (accel-mlu 1.0) is not usable: ACCEL_BLOCK names it. Next step: take mlu out of ACCEL_BLOCK."
        in str(found)
    )


def test_where_not_even_the_cpu_is_allowed_the_error_carries_the_table(several):
    """USERS 18: the reasons were under DEBUG only."""
    found = error(ACCEL_ALLOW="npu")
    assert isinstance(found, BackendUnavailableError)
    assert "No usable accelerator, and the CPU cannot be chosen either." in str(found)
    for line in (
        "npu (accel-npu 1.0): no device: nothing on the bus",
        "mlu (accel-mlu 1.0): blocked: ACCEL_ALLOW does not name it. add mlu to ACCEL_ALLOW",
        "cpu (accel-core",
    ):
        assert line in str(found)


def test_strict_refuses_the_cpu_where_a_plugin_is_broken(torch_world):
    """USERS 17, 20."""
    torch_world.plugin("npu", "raise ImportError('libfoo')")
    found = error(ACCEL_STRICT="1")
    assert str(found).startswith("ACCEL_STRICT=1 refuses the CPU, and no accelerator is usable:")
    assert "libfoo" in str(found)
    assert chosen(ACCEL_STRICT="0").chosen == "cpu"
    assert chosen(ACCEL_STRICT="1", DS_ACCELERATOR="cpu").chosen == "cpu"


def test_strict_refuses_the_cpu_where_hardware_is_there(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    assert chosen(ACCEL_STRICT="1").chosen == "cpu"
    known = hardware.KnownHardware(
        "NVIDIA GPU", "cuda", "accel-cuda", hardware.Evidence(nodes=("/dev/nvidia0",))
    )
    monkeypatch.setattr(hardware, "known_hardware", lambda: (known,))
    assert "NVIDIA GPU is present (/dev/nvidia0)" in str(error(ACCEL_STRICT="1"))
    monkeypatch.setattr(hardware, "known_hardware", lambda: ())
    monkeypatch.setattr(
        hardware, "evidence", lambda backend: hardware.Evidence(pci=("19e5:d802 at 0000:00:05.0",))
    )
    assert isinstance(error(ACCEL_STRICT="1"), BackendUnavailableError)


def test_strict_has_nothing_against_what_the_user_ruled_out(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    card = hardware.Evidence(nodes=("/dev/davinci0",))
    monkeypatch.setattr(hardware, "evidence", lambda backend: card if backend.name == "npu" else None)
    assert isinstance(error(ACCEL_STRICT="1"), BackendUnavailableError)
    assert chosen(ACCEL_STRICT="1", ACCEL_BLOCK="npu").chosen == "cpu"


def test_strict_has_nothing_against_a_machine_without_accelerators(torch_world):
    assert chosen(ACCEL_STRICT="1").chosen == "cpu"


def test_hardware_without_its_plugin_is_named_with_the_command(torch_world, monkeypatch):
    known = [
        hardware.KnownHardware(
            "NVIDIA GPU", "cuda", "accel-cuda", hardware.Evidence(nodes=("/dev/nvidia0",))
        ),
        hardware.KnownHardware("Ascend NPU", "npu", "accel-npu", hardware.Evidence(nodes=("/dev/davinci0",))),
        hardware.KnownHardware(
            "Intel integrated GPU", "xpu", "accel-xpu", hardware.Evidence(pci=("8086",)), integrated=True
        ),
    ]
    monkeypatch.setattr(hardware, "known_hardware", lambda: tuple(known))
    torch_world.backend("npu", extra=NO_DEVICE)
    assert chosen().unserved == (
        "NVIDIA GPU is present (/dev/nvidia0) and its plugin is not installed: pip install accel-cuda",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="sessions")
def test_isolated_probing_survives_what_a_vendor_does(several):
    several.module("torch_npu", "import os; os._exit(127)")
    several.backend("npu", 700, vendor_import="torch_npu")
    found = chosen(ACCEL_PROBE="isolated", ACCEL_PROBE_TIMEOUT="20")
    assert statuses(found)["npu"] == "crashed"
    assert found.chosen == "mlu"


@pytest.mark.skipif(sys.platform == "win32", reason="sessions")
def test_the_timeout_is_the_users(several):
    several.module("torch_npu", "import time; time.sleep(60)")
    several.backend("npu", 700, vendor_import="torch_npu", isolated_probe=True)
    found = chosen(ACCEL_PROBE_TIMEOUT="1.5")
    assert statuses(found)["npu"] == "timed_out"
    assert found.verdicts[0].reason.startswith("no answer within 1.5 s")
    assert found.chosen == "mlu"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACCEL_PROBE_TIMEOUT", "abc"),
        ("ACCEL_STRICT", "perhaps"),
        ("ACCEL_PROBE", "outside"),
        ("DS_ACCELERATOR", "npu@"),
        ("ACCEL_ALLOW", "@x"),
        ("ACCEL_BLOCK", "x@"),
    ],
)
def test_a_malformed_setting_stops_the_choice_by_name(several, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=f"{name}='{value}' is not valid"):
        accel_core.get_accelerator()
    monkeypatch.delenv(name)
    assert accel_core.get_accelerator().name == "mlu"


@pytest.mark.skipif(sys.platform == "win32", reason="sessions")
def test_a_choice_in_children_only_imports_nothing_here(several):
    environ: dict[str, str] = {}
    assert choose(read(environ), environ, isolated=True).selection.chosen == "mlu"
    assert choose(read({"DS_ACCELERATOR": "mlu"}), environ, isolated=True).selection.chosen == "mlu"
    assert "torch" not in sys.modules


def test_without_torch_there_is_an_error_that_says_so(world):
    """USERS 29: everything but the accelerator itself works without torch."""
    world.backend("npu", extra=NO_DEVICE)
    found = choose(read({}), {})
    assert isinstance(found.error, BackendUnavailableError)
    assert "cpu (accel-core" in str(found.error)
    assert "torch is not installed. pip install torch" in str(found.error)


# ---------------------------------------------------------------------------- the fall-back's one warning


def test_the_fall_back_warns_once_with_every_reason(torch_world):
    """USERS 17, 19, 21: once a process, at the caller's line, saying why."""
    torch_world.backend("npu", extra=NO_DEVICE)
    torch_world.backend("mlu", vendor_import="torch_mlu", install_hint="pip install torch-mlu")
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
    with pytest.warns(AcceleratorFallbackWarning) as caught:
        accel_core.get_accelerator()
    text = str(caught[0].message)
    assert "  vendor's package not installed: mlu, sdaa, supa\n" in text
    assert "bad (accel-bad 1.0): broken" in text
    assert text.count("\n") == 3


def test_what_the_user_blocked_is_no_reason_to_warn(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    monkeypatch.setenv("ACCEL_BLOCK", "npu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert accel_core.get_accelerator().name == "cpu"


def test_the_warning_points_at_the_callers_line_from_everywhere(torch_world):
    torch_world.backend("npu", extra=NO_DEVICE)
    for call in (accel_core.get_accelerator, accel_core.selection):
        accel_core.set_accelerator(None)
        current._warned = False
        with pytest.warns(AcceleratorFallbackWarning) as caught:
            call()
        assert [w.filename for w in caught] == [__file__]


def test_a_warning_that_is_an_error_leaves_a_choice_behind(torch_world):
    torch_world.backend("npu", extra=NO_DEVICE)
    with pytest.raises(AcceleratorFallbackWarning):
        accel_core.get_accelerator()
    assert accel_core.get_accelerator().name == "cpu"


def test_nothing_installed_and_nothing_there_is_no_news(torch_world):
    assert accel_core.get_accelerator().name == "cpu"
    assert accel_core.selection().how is How.FALLBACK


def test_a_pinned_cpu_is_no_news(several, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert accel_core.get_accelerator().name == "cpu"


def test_hidden_devices_are_named_in_the_warning(torch_world, monkeypatch):
    """USERS 19: CUDA_VISIBLE_DEVICES='' in every Ray actor."""
    torch_world.module("npu_device", plugins.ACCELERATOR.format(count="return 0"))
    torch_world.backend("npu", accelerator="npu_device:Simulated", visible_devices=("NPU_VISIBLE",))
    monkeypatch.setenv("NPU_VISIBLE", "")
    with pytest.warns(AcceleratorFallbackWarning, match="NPU_VISIBLE"):
        accel_core.get_accelerator()
    assert accel_core.selection().environ["NPU_VISIBLE"] == ""


def test_a_broken_package_that_only_torch_knows_is_in_the_warning(torch_world):
    """USERS 17: no silent CPU because an unclaimed vendor package is broken."""
    torch_world.module("torch_foo", "raise ImportError('libfoo.so')")
    torch_world.distribution("torch-foo", "1.0", {"torch.backends": {"foo": "torch_foo:autoload"}})
    with pytest.warns(AcceleratorFallbackWarning, match=r"generic .* broken: .*ImportError: libfoo\.so"):
        assert accel_core.get_accelerator().name == "cpu"


# ---------------------------------------------------------------------------- generic


def announce(world, source: str, name: str = "foo") -> None:
    world.module(f"torch_{name}", source)
    world.distribution(f"torch-{name}", "1.0", {"torch.backends": {name: f"torch_{name}:autoload"}})


BRINGS = """
import torch, types
def autoload():
    torch.foo = types.ModuleType("torch.foo")
    torch.foo.device_count = lambda: 3
    torch.accelerator.current = "foo"
"""


def test_a_device_that_only_torch_knows_is_generic(torch_world):
    announce(torch_world, BRINGS)
    acc = accel_core.get_accelerator()
    assert (acc.name, acc.device_name(), acc.device_count()) == ("generic", "foo", 3)


def test_a_broken_announcement_leaves_the_next_its_turn(torch_world):
    announce(torch_world, BRINGS)
    first = torch_world.root / "first"  # on the path, so that the broken one comes first
    layouts.dist_info(first, "torch-aaa", "1.0", {"torch.backends": {"aaa": "torch_aaa:autoload"}})
    torch_world.module("torch_aaa", "import sys; sys.exit(1)")
    torch_world.set_path([first, torch_world.site])
    assert accel_core.get_accelerator().name == "generic"


def test_a_package_that_a_plugin_claims_is_left_to_the_plugin(torch_world):
    announce(torch_world, "raise SystemExit('imported')")
    torch_world.backend("foo", vendor_import="torch_foo", extra=NO_DEVICE)
    found = chosen()
    assert statuses(found) == {"foo": "no_device", "generic": "no_device", "cpu": "usable"}
    assert (
        found.verdicts[1].reason
        == "torch 2.99.0+simulated (CPU build) has no accelerator and no package announces one to torch"
    )
    assert "torch" not in sys.modules


def test_a_device_that_a_plugin_claims_is_left_to_the_plugin(torch_world, simulated_torch):
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
    assert (generic.name, generic.status, generic.reason) == (
        "generic",
        Status.STANDS_ASIDE,
        "an installed plugin claims cuda",
    )


def test_a_torch_built_for_something_nobody_claims_is_asked(world):
    world.module("torch.__init__", "raise RuntimeError('imported')")
    world.module("torch.version", "__version__ = '2.9'\nxpu = '2025'\n")
    found = chosen()
    assert found.verdicts[0].status is Status.BROKEN
    assert "RuntimeError: imported" in found.verdicts[0].reason


# ---------------------------------------------------------------------------- the record


def test_the_record_is_kept_printable_and_json(several, monkeypatch):
    """USERS 18, 20: who chose what, when, in which environment."""
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
    assert [v["name"] for v in data["verdicts"]] == ["npu", "mlu", "sdaa", "generic", "cpu"]
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
    [("mlu", "pinned by DS_ACCELERATOR"), ("npu,mlu", "the first usable one of DS_ACCELERATOR's list")],
)
def test_the_record_says_how(several, pin, how):
    assert how in str(chosen(DS_ACCELERATOR=pin))


def test_a_failed_choice_has_a_record_too(several):
    found = chosen(DS_ACCELERATOR="tpu")
    assert str(found).startswith("No backend could be chosen. DS_ACCELERATOR='tpu': no installed")
    assert json.loads(json.dumps(found.to_dict()))["chosen"] is None


def test_hardware_without_a_plugin_is_in_the_printed_record(torch_world, monkeypatch):
    known = hardware.KnownHardware(
        "NVIDIA GPU", "cuda", "accel-cuda", hardware.Evidence(nodes=("/dev/nvidia0",))
    )
    monkeypatch.setattr(hardware, "known_hardware", lambda: (known,))
    assert "NVIDIA GPU is present" in str(chosen())


def test_how_has_its_words():
    assert [str(h) for h in How] == [h.value for h in How] == list(choice.report._HOW)
