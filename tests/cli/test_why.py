"""`accel why`: the whole choice, and one backend in detail."""

import pytest
from accel_tests import layouts
from accel_tests.plugins import NO_DEVICE

from accel_core.hardware import bus, vendors

OFF = "ProbeResult(False, 'switched off', 'switch it on', devices=0)"


def the_backend(document):
    """The one backend of a document."""
    assert len(document["backends"]) == 1
    return document["backends"][0]


def test_says_what_would_be_chosen_and_why_not_the_others(accel):
    accel.install("off", OFF, priority=995)
    accel.install("npu")
    done = accel("why", ACCEL_BLOCK="nothing").succeeded()
    assert done.stdout.startswith(
        "npu (accel-npu 1.5) would be used: the usable backend with the highest priority.\n"
    )
    assert "off (accel-off 1.5, priority 995): no device: switched off" in done.stdout
    assert "next step: switch it on" in done.stdout
    assert "not probed: lower priority than npu" in done.stdout
    assert "ACCEL_BLOCK  'nothing'" in done.stdout


def test_a_choice_that_fails_ends_with_1_and_its_record(accel):
    accel.install("off", OFF.replace("devices=0", "devices=None"))
    done = accel("why", DS_ACCELERATOR="off")
    assert done.returncode == 1
    assert done.stdout.startswith(
        "No backend can be chosen. off (accel-off 1.5) is not usable: switched off."
    )
    assert done.stdout.count("switched off") == 1
    assert done.stderr == ""
    document = accel.json("why", status=1, DS_ACCELERATOR="off")
    assert document["chosen"] is None
    assert "switched off" in document["problem"]


def test_what_is_pinned_has_the_verdict_that_it_has_as_a_pin(accel):
    """It needs no device."""
    accel.install("off", OFF)
    case = the_backend(accel.json("why", "off", DS_ACCELERATOR="off"))
    assert case["usable"] is True
    assert case["chosen"] is True
    assert (
        "It would be chosen by DS_ACCELERATOR='off'"
        in accel("why", "off", DS_ACCELERATOR="off").stdout
    )


GUIDE = "docs/howto/not-found.md"


def test_a_choice_of_the_cpu_ends_with_the_guide(accel):
    accel.install("off", OFF)
    assert accel("why").succeeded().stdout.splitlines()[-1].startswith("Why is my GPU ")
    assert GUIDE in accel("why").stdout


def test_an_unusable_backend_ends_with_the_guide(accel):
    accel.install("off", OFF)
    assert GUIDE in accel("why", "off").stdout


def test_a_usable_backend_needs_no_guide(accel):
    accel.install("npu")
    assert GUIDE not in accel("why").stdout
    assert GUIDE not in accel("why", "npu").stdout


@pytest.fixture
def outranked(accel):
    """A machine where npu is usable, and top ranks above it."""
    accel.install("top", priority=999)
    accel.install("npu", url="https://example.org", description="somebody's card")
    return accel


def test_the_document_of_a_usable_backend_has_its_rank_and_what_is_above(outranked):
    case = the_backend(outranked.json("why", "npu"))
    assert case["usable"] is True
    assert case["chosen"] is False
    assert case["rank"] == 2
    assert case["of"] == 4
    assert case["outranked_by"] == [
        {"name": "top", "distribution": "accel-top", "status": "usable"}
    ]


def test_a_usable_backend_that_ranks_below_is_told_what_is_above(outranked):
    text = outranked("why", "npu").stdout
    assert (
        "npu (accel-npu 1.5): usable. top would be chosen, because it is usable too and has a higher priority"
        in text
    )
    assert "2 of 4, with priority 990" in text
    assert "top (usable)" in text


def test_a_backend_is_shown_with_its_page_and_its_description(outranked):
    text = outranked("why", "npu").stdout
    assert "https://example.org" in text
    assert "somebody's card" in text


def test_what_breaks_import_torch_is_named_by_every_command(accel):
    """A verdict with the same cause has the one remedy; `info` shows no verdict, and gives both."""
    accel.world.module("torch_bad", "raise ImportError('libbad.so')")
    accel.world.distribution(
        "torch-bad", "2.0", {"torch.backends": {"bad": "torch_bad:autoload"}}
    )
    accel.world.backend("bad", vendor_import="torch_bad", extra=NO_DEVICE)
    fails = "torch-bad 2.0 fails when torch loads it (torch.backends: bad = torch_bad:autoload)"
    helps = (
        "`import torch` fails because of this package: pip uninstall torch-bad, or set "
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    )
    cause, same = ": ImportError: libbad.so", ", for the same reason as bad"
    for words, why in (
        (["list"], same),
        (["why"], same),
        (["why", "bad"], same),
        (["info", "cpu"], cause),
    ):
        done = accel(*words, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
        assert f"{fails}{why}. {helps}" in done.stdout, words
        assert done.stdout.count("libbad.so") == 1, words  # once a page: it may be long
        assert "no installed package adds" not in done.stdout
    assert "besides, torch_bad failed: ImportError: libbad.so" in accel("why").stdout
    assert fails not in accel("why", TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout


def test_a_torch_that_breaks_every_backend_is_told_once_a_page(accel):
    """Issue 23: "one finding once"."""
    layouts._write(
        accel.world.site,
        {"torch/__init__.py": "raise OSError('libcudart.so.12: no such file')\n"},
    )
    for name in ("npu", "mlu", "sdaa"):
        accel.world.backend(name, 900)
    for words in (["list"], ["why"]):
        said = accel(*words).stdout
        assert said.count("libcudart.so.12") == 1, said
        same = "torch fails to import, for the same reason as mlu"
        assert said.count(same) == 2, said


def test_whose_word_it_is(accel):
    """The distribution and version of the plugin and of the vendor's package, and the entry point."""
    accel.world.distribution("torch-vendored", "2.0")
    accel.world.module("torch_vendored.__init__", "")
    accel.world.backend(
        "card.two", 500, vendor_import="torch_vendored", distribution="acme-card"
    )
    said = accel("why", "card.two").stdout
    assert said.startswith("card.two (acme-card 1.0): ")
    assert "  installed      torch-vendored 2.0\n" in said
    assert "  entry point    acme_card\n" in said


def test_what_the_policy_left_unloaded_has_no_priority(accel):
    accel.install("npu")
    accel.install("off")
    blocked = {"ACCEL_BLOCK": "off"}
    assert "off (accel-off 1.5): blocked" in accel("why", **blocked).stdout
    alone = accel("why", "off", **blocked).stdout
    assert "priority" not in alone
    assert "higher priority" not in alone
    [row] = [
        s
        for s in accel("list", "--all", **blocked).stdout.splitlines()
        if s.startswith("  off")
    ]
    assert row.split()[3] == "-"


def test_without_torch_the_first_line_says_what_to_install(accel):
    done = accel("why", torch=False)
    assert done.stdout.startswith(
        "No backend can be chosen. torch is not installed. Next step: "
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"DS_ACCELERATOR": "off,gone"},
            ["none of these", "Considered", "declares gone"],
        ),
        (
            {"ACCEL_ALLOW": "bad", "of": "bad"},
            ["chosen: run `accel why` for the reason.", "the root", "accel_bad"],
        ),
        (
            {"of": "npu@First_Npu"},
            ["npu (first-npu 1.5): conflict.", "second-npu 1.5 declares npu too"],
        ),
        ({"of": "off"}, ["no device. cpu would be chosen.", "switch it on"]),
    ],
    ids=str,
)
def test_what_is_not_usable_is_told_with_its_cause_and_ends_with_1(
    accel, settings, told
):
    accel.install("off", OFF)
    accel.world.plugin("bad", "raise OSError('outer') from KeyError('the root')")
    for distribution in ("first-npu", "second-npu"):
        accel.install("npu", distribution=distribution)
    done = accel("why", *filter(None, [settings.pop("of", "")]), **settings)
    assert done.returncode == 1
    assert done.stderr == ""
    for words in told:
        assert words in done.stdout


#: Of the policy, which decides on commands too, and of none: what is expected.
BAD = {
    "ACCEL_PROBE_TIMEOUT='abc'": "a number of seconds",
    "ACCEL_BLOCK='@'": "a backend name, name@",
}


@pytest.mark.parametrize("given", BAD)
@pytest.mark.parametrize("command", [["list"], ["why", "cpu"], ["info"]], ids=" ".join)
def test_a_bad_setting_is_one_clean_message_and_status_2(accel, command, given):
    setting = dict([given.replace("'", "").split("=")])
    done = accel(*command, **setting)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert done.stdout == ""
    assert accel("--help", **setting).returncode == 0
    assert line.startswith(f"Error: {given} is not valid, expected {BAD[given]}")
    assert accel.json(*command, status=2, **setting)["error"]["type"] == "SettingError"


def test_hardware_without_its_plugin_is_named(accel, monkeypatch):
    found = vendors.Vendor(
        "NVIDIA GPU", "cuda", evidence=bus.Evidence(("/dev/nvidia0",))
    )
    monkeypatch.setattr(vendors, "known_hardware", lambda *root: (found,))
    for command in ("why", "list"):
        said = accel(command).stdout
        assert "NVIDIA GPU is present (/dev/nvidia0)" in said
        assert "pip install accel-cuda" in said


def test_a_fault_of_ours_keeps_its_traceback(accel, monkeypatch):
    monkeypatch.setattr("accel_core.cli.list.survey", lambda settings, **how: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        accel("list")
