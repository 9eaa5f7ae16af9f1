"""The highest usable backend is chosen."""

import builtins
import sys

import pytest
from accel_tests.asking import chosen, error, statuses
from accel_tests.plugins import hook

import accel_core
from accel_core.backend import TorchIntegration
from accel_core.verdict import How, Status


def test_the_highest_usable_backend_is_chosen_and_nothing_below_is_probed(several):
    """Installed is not available: npu, which has no device, does not end the search."""
    several.module("sdaa_vendor", "")
    several.backend("sdaa", 200, vendor_import="sdaa_vendor")
    found = chosen()
    assert found.name == "mlu"
    assert found.how is How.RANKED
    below = dict.fromkeys(("sdaa", "generic", "cpu"), "not_probed")
    assert statuses(found) == {"npu": "no_device", "mlu": "usable", **below}
    assert found.verdicts[2].reason == "lower priority than mlu"
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


def test_a_backend_that_takes_over_a_namespace_ranks_first_and_the_other_may_defer(
    torch_world,
):
    """supa replaces torch.cuda, so cuda looks usable without an NVIDIA GPU."""
    aside = "return ProbeResult(False, 'supa has it', deferred=True)"
    torch_world.backend(
        "cuda", 900, extra=hook("accel_probe", "backend, others", aside)
    )
    torch_world.backend(
        "supa", 100, torch_integration=TorchIntegration(takes_over="cuda")
    )
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
        torch_integration=TorchIntegration(taken_over_by=("torch_deep",)),
    )
    return torch_world


def test_what_torchs_import_takes_over_is_the_other_vendors(taken_over):
    found = chosen()
    assert found.name == "cpu"
    assert statuses(found)["cuda"] == "deferred"
    assert found.verdicts[0].reason == "torch.cuda is overridden by torch_deep"
    assert (
        found.verdicts[0].hint
        == "choose the backend of torch_deep's vendor, or do not load torch_deep"
    )
    assert found.verdicts[0].reason in str(error(DS_ACCELERATOR="cuda"))
    taken_over.backend(
        "deep",
        190,
        vendor_import="torch_deep",
        device_type="cuda",
        torch_integration=TorchIntegration(takes_over="cuda"),
    )
    found = chosen()
    assert [v.name for v in found.verdicts][:2] == ["deep", "cuda"]
    assert found.name == "deep"


def test_a_cpu_plugin_is_a_conflict_and_the_built_in_cpu_stays(torch_world):
    torch_world.backend("cpu", 999, distribution="fast-cpu")
    found = chosen()
    assert found.name == "cpu"
    assert found.how is How.FALLBACK
    assert found.provenance.distribution == "accel-core"
    (rival,) = [v for v in found.verdicts if not v.builtin]
    assert rival.status is Status.CONFLICT
    assert (
        rival.hint
        == "set DS_ACCELERATOR=cpu@fast-cpu, or name the other distribution in ACCEL_BLOCK"
    )
    assert chosen(DS_ACCELERATOR="cpu@fast-cpu").provenance.distribution == "fast-cpu"
    assert chosen(DS_ACCELERATOR="cpu").provenance.distribution == "accel-core"
