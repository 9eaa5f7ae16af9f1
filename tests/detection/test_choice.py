"""Which backend is chosen, how, and what the record says about it."""

import builtins
import json
import os
import sys

import pytest
from accel_tests import plugins
from accel_tests.asking import chosen, error, statuses
from accel_tests.plugins import hook

import accel_core
from accel_core.backend import InTorch
from accel_core.detection import How, Status
from accel_core.errors import BackendConflictError

# ---------------------------------------------------------------------------- ranked


def test_the_highest_usable_backend_is_chosen_and_nothing_below_is_probed(several):
    """USERS 9: installed is not available; npu without a device does not end the search."""
    several.module("sdaa_vendor", "")
    several.backend("sdaa", 200, vendor_import="sdaa_vendor")
    found = chosen()
    assert (found.chosen, found.how) == ("mlu", How.RANKED)
    below = dict.fromkeys(("sdaa", "generic", "cpu"), "not_probed")
    assert statuses(found) == {"npu": "no_device", "mlu": "usable", **below}
    assert found.verdicts[2].reason == "it ranks below mlu"
    assert "sdaa_vendor" not in sys.modules


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
    torch_world.backend("supa", 100, in_torch=InTorch(impersonates="cuda"))
    found = chosen()
    assert [v.name for v in found.verdicts][:2] == ["supa", "cuda"]
    assert found.chosen == "supa"


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
    assert (found.chosen, statuses(found)["cuda"]) == ("cpu", "stands_aside")
    assert found.verdicts[0].reason == "torch.cuda is impersonated by torch_deep"
    assert found.verdicts[0].hint == "choose that vendor's own backend, or do not load torch_deep"
    assert found.verdicts[0].reason in str(error(DS_ACCELERATOR="cuda"))
    taken_over.backend(
        "deep", 190, vendor_import="torch_deep", device_type="cuda", in_torch=InTorch(impersonates="cuda")
    )
    found = chosen()
    assert [v.name for v in found.verdicts][:2] == ["deep", "cuda"]
    assert found.chosen == "deep"


def test_a_cpu_plugin_is_a_conflict_and_the_built_in_cpu_stays(torch_world):
    torch_world.backend("cpu", 999, distribution="fast-cpu")
    found = chosen()
    assert (found.chosen, found.how, found.provenance.distribution) == ("cpu", How.FALLBACK, "accel-core")
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
    assert found.chosen == "cpu"
    conflicts = [v for v in found.verdicts if v.status is Status.CONFLICT]
    assert [v.provenance.distribution for v in conflicts] == ["accel-npu", "better-npu"]
    assert conflicts[0].reason == "better-npu 1.0 declares npu too"
    assert conflicts[0].hint == "set DS_ACCELERATOR=npu@accel-npu, or ACCEL_BLOCK the other one"


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
    # Of sdaa, which is blocked, the plugin is not imported: its priority is not known.
    assert [v["name"] for v in data["verdicts"]] == ["npu", "mlu", "generic", "sdaa", "cpu"]
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
