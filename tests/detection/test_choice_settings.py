"""What the user's settings pin, allow, refuse and stop: what is chosen, or what the error says."""

import sys

import pytest
from accel_tests.asking import chosen, counting, error, statuses
from accel_tests.plugins import NO_DEVICE, hook

import accel_core
from accel_core.backend import Hardware, Visibility
from accel_core.errors import (
    BackendNotFoundError,
    BackendUnavailableError,
    SettingError,
    SettingWarning,
)
from accel_core.explain import messages
from accel_core.hardware import bus, vendors
from accel_core.select import select
from accel_core.settings import read
from accel_core.verdict import How

posix = pytest.mark.skipif(sys.platform == "win32", reason="sessions")


def pin(text, **more):
    return {"DS_ACCELERATOR": text, **more}


#: Settings, for npu without a device, mlu and sdaa: what is chosen and how; all statuses, where they count.
CHOSEN = [
    *(  # every form of a name
        (pin(text), "mlu", How.PINNED, {"mlu": "usable"})
        for text in ("mlu", " mlu ", "MLU", "mlu,", "Mlu@Accel_MLU", "mlu@accel-mlu")
    ),
    *((pin(text), "mlu", How.RANKED, None) for text in ("", "  ", ",")),
    # A pin ends the search, whatever the name; npu is pinned without a device, as an image build does.
    *((pin(name), name, How.PINNED, None) for name in ("npu", "sdaa", "cpu")),
    # One that is unknown, or has no device, is passed over here, and the record says so.
    (
        pin("tpu, npu, mlu, sdaa, cpu"), "mlu", How.PREFERRED,
        {"tpu": "not_installed", "npu": "no_device", "mlu": "usable"},
    ),
    (pin("npu,cpu"), "cpu", How.PREFERRED, None),
    ({"ACCEL_BLOCK": "mlu"}, "sdaa", How.RANKED, None),
    ({"ACCEL_ALLOW": "sdaa"}, "sdaa", How.RANKED, None),
    ({"ACCEL_ALLOW": "SDAA , cpu"}, "sdaa", How.RANKED, None),
    ({"ACCEL_ALLOW": "mlu,sdaa", "ACCEL_BLOCK": "mlu"}, "sdaa", How.RANKED, None),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "name", "how", "all_of"), CHOSEN, ids=str)
def test_what_settings_choose(several, environ, name, how, all_of):
    found = chosen(**environ)
    assert (found.name, found.how, found.environ) == (name, how, environ)
    assert all_of in (None, statuses(found))


def backend(name, priority=10, *, source="", **fields):
    """Installs a backend; with a source, also its vendor's package."""

    def install(world):
        if source:
            world.module(f"torch_{name}", source)
            fields["vendor_import"] = f"torch_{name}"
        world.backend(name, priority, **fields)

    return install


CUDA, XPU = backend("cuda"), backend("xpu", 20)
IPEX = "pip install intel-extension-for-pytorch"
GONE = backend("xpu", vendor_import="ipex", install_hint=IPEX)
SETVARS = hook("accel_explain", "backend, error", "return 'source setvars.sh'")
#: Its hardware is absent, its vendor's package is broken: it would fail, and is not advised.
FAR = backend(
    "far", hardware=Hardware(nodes=("/dev/no-such-card[0-9]*",), pci_ids=("fade:0001",))
)
BAD = backend("bad", source="raise ImportError('libbad.so')")
INSTEAD = "Or set DS_ACCELERATOR=cpu; `accel list` shows the usable backends."
UNKNOWN = (
    "no installed distribution declares {0}. Installed: mlu, npu, sdaa, generic, cpu. "
)
NOT_FOUND, UNAVAILABLE = BackendNotFoundError, BackendUnavailableError
#: What stands beside the three, settings, the error's kind, its text or parts; "!": this is not there.
REFUSED = {
    "a slip": (
        (), pin("mlo"), NOT_FOUND, f"DS_ACCELERATOR='mlo': {UNKNOWN.format('mlo')}Did you mean 'mlu'?"
    ),
    "not installed": (
        (), pin("cuda"), NOT_FOUND,
        f"DS_ACCELERATOR='cuda': {UNKNOWN.format('cuda')}Next step: pip install accel-cuda.",
    ),
    "another distribution": (  # nobody knows of a better-mlu to install
        (), pin("mlu@better-mlu"), NOT_FOUND,
        [
            "no installed distribution declares mlu from better-mlu", " mlu is declared by accel-mlu.",
            "!pip install", "!Did you mean",
        ],
    ),
    # "ipu" was read as "xpu": a name of another kind of device is no slip of the finger.
    "another kind": ([XPU], pin("ipu"), NOT_FOUND, ["!Did you mean", "!pip install"]),
    "a slip of a backend beside": ([XPU], pin("xpa"), NOT_FOUND, ["Did you mean 'xpu'", "!pip install"]),
    "gpu": (
        [CUDA, XPU], pin("gpu"), NOT_FOUND,
        ["For a GPU name one of cuda, xpu: `accel list` shows which are usable."],
    ),
    "gpu, of none": ((), pin("gpu"), NOT_FOUND, [f"No backend for a GPU is installed. {INSTEAD}"]),
    "no vendor's package": (
        [FAR, BAD, GONE], pin("xpu"), UNAVAILABLE,
        f"xpu (accel-xpu 1.0) is not usable: ipex is not installed. Next step: {IPEX}. {INSTEAD}",
    ),
    # The error contains the root cause and the next step, not only that loading failed.
    "a broken vendor": (
        [backend("xpu", source="raise ImportError('libze.so')", extra=SETVARS)], pin("xpu"), UNAVAILABLE,
        [
            "xpu (accel-xpu 1.0) is not usable: torch_xpu failed: ImportError: libze.so",
            "Next step: source setvars.sh.",
        ],
    ),
    "a plugin that fails": (
        [lambda world: world.plugin("bad", "raise OSError('libbad.so')")], pin("bad"), UNAVAILABLE,
        [
            "bad (accel-bad 1.0) is not usable: the plugin failed to load: OSError: libbad.so",
            "Next step: pip install --force-reinstall accel-bad, or pip uninstall it.",
        ],
    ),
    "none of a list": (
        (), pin("npu,tpu"), UNAVAILABLE,
        [
            "DS_ACCELERATOR='npu,tpu': none of these is usable.", INSTEAD,
            "npu (accel-npu 1.0): no device: nothing on the bus", "no installed distribution declares tpu",
        ],
    ),
    "blocked": (
        (), pin("mlu", ACCEL_BLOCK="mlu"), UNAVAILABLE,
        ["mlu (accel-mlu 1.0) is not usable: ACCEL_BLOCK names it. Next step: take mlu out of ACCEL_BLOCK."],
    ),
    # The error contains the reason for each backend: nobody has to turn on debug logs.
    "not even the CPU": (
        (), {"ACCEL_ALLOW": "npu"}, UNAVAILABLE,
        [
            "The settings rule out what is usable.", "npu (accel-npu 1.0): no device: nothing on the bus",
            "mlu (accel-mlu 1.0): blocked: ACCEL_ALLOW does not name it. add mlu to ACCEL_ALLOW",
            "cpu (accel-core",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(several, what):
    """The thing, its distribution, the cause, the next step; there is no fall-back from a pin."""
    installs, environ, kind, words = REFUSED[what]
    for install in installs:
        install(several)
    found = error(**environ)
    assert isinstance(found, kind)
    assert isinstance(found, LookupError if kind is NOT_FOUND else RuntimeError)
    assert isinstance(words, list) or str(found) == words
    for word in words if isinstance(words, list) else ():
        assert (word.lstrip("!") in str(found)) is not word.startswith("!"), word
    if what == "a broken vendor":
        assert isinstance(found.__cause__, ImportError)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACCEL_PROBE_TIMEOUT", "abc"),
        ("ACCEL_STRICT", "perhaps"),
        ("ACCEL_PROBE", "outside"),
        ("DS_ACCELERATOR", "npu@"),
        ("ACCEL_ALLOW", "@"),
        ("ACCEL_BLOCK", "x@"),
    ],
)
def test_a_malformed_setting_stops_the_choice_by_name(
    several, monkeypatch, name, value
):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=f"{name}='{value}' is not valid"):
        accel_core.get_accelerator()


def test_after_a_malformed_setting_is_gone_the_choice_is_made(several, monkeypatch):
    monkeypatch.setenv("ACCEL_STRICT", "perhaps")
    with pytest.raises(SettingError):
        accel_core.get_accelerator()
    monkeypatch.delenv("ACCEL_STRICT")
    assert accel_core.get_accelerator().name == "mlu"


def test_without_torch_the_error_says_how_to_install_it(world):
    """Everything but the accelerator itself works without torch."""
    world.backend("npu", extra=NO_DEVICE)
    found = select(read({}))
    assert isinstance(found.error, BackendUnavailableError)
    assert "cpu (accel-core" in str(found.error)
    assert "accel setup cpu" in str(found.error)


@pytest.mark.skipif(
    sys.platform != "linux", reason="device nodes are looked for on Linux"
)
def test_a_pin_whose_devices_are_all_hidden_is_honoured_and_told(
    torch_world, monkeypatch
):
    """The node is here, or the runtime alone knows; where no node is, a login node is what was meant."""
    monkeypatch.setenv("NPU_VISIBLE", "")
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    said = (
        "DS_ACCELERATOR='npu' is honoured without a device: NPU_VISIBLE='' hides every device. "
        "Next step: unset NPU_VISIBLE, or name in it the devices to use."
    )
    for nodes, notes in (
        (("/dev/null",), (said,)),
        ((), (said,)),
        (("/dev/no-such-npu",), ()),
    ):
        fields = {
            "visibility": Visibility(("NPU_VISIBLE",)),
            "hardware": Hardware(nodes=nodes),
        }
        counting(torch_world, "return 0", **fields)
        for name in ("accel_npu", "npu_device"):
            sys.modules.pop(name, None)
        assert chosen(DS_ACCELERATOR="npu").notes == notes
        if nodes == ("/dev/null",):
            with pytest.warns(SettingWarning) as told:
                assert accel_core.get_accelerator().name == "npu"
            assert [str(warning.message) for warning in told] == [said]


@pytest.mark.parametrize(
    "body",
    [
        "raise accel_core.BackendUnavailableError('the card sleeps. Wake it.')",
        "raise accel_core.BackendUnavailableError('the card sleeps.', hint='wake it.')",
        "raise accel_core.DeclinedError('there is no card.', hint='buy one.')",
        "raise OSError('no driver.')",
        "return 5.",
    ],
)
def test_a_sentence_of_somebody_elses_ends_with_one_full_stop(torch_world, body):
    """In the error, the warning, the record, and what refuses the CPU."""
    torch_world.backend("npu", extra=hook("accel_create", "backend, others", body))
    selection = chosen()
    texts = [
        *(
            str(error(**environ))
            for environ in (pin("npu"), pin("npu,gone"), {"ACCEL_STRICT": "always"})
        ),
        str(selection),
        messages.fallback_message(selection.verdicts, (), verbose=True),
    ]
    assert [text for text in texts if ".." in text] == []
    assert not any(verdict.reason.endswith(".") for verdict in selection.verdicts)


# ---------------------------------------------------------------------------- strict

NVIDIA = vendors.Vendor(
    "NVIDIA GPU", "cuda", evidence=bus.Evidence(nodes=("/dev/nvidia0",))
)
CARD = bus.Evidence(nodes=("/dev/davinci0",))


@pytest.fixture
def card(torch_world, monkeypatch):
    """A machine with npu's card."""
    monkeypatch.setattr(
        bus,
        "evidence",
        lambda backend, root="/": CARD if backend.name == "npu" else None,
    )
    return torch_world


def test_strict_refuses_the_cpu_where_a_plugin_is_broken(torch_world):
    """A job for a GPU must not run on the CPU because a plugin fails to load."""
    torch_world.plugin("npu", "raise ImportError('libfoo')")
    found = error(ACCEL_STRICT="1")
    assert str(found).startswith(
        "ACCEL_STRICT=1 refuses the CPU, and no accelerator is usable:"
    )
    assert "libfoo" in str(found)
    assert chosen(ACCEL_STRICT="0").name == "cpu"
    assert chosen(ACCEL_STRICT="1", DS_ACCELERATOR="cpu").name == "cpu"


def test_strict_refuses_the_cpu_where_hardware_is_there(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    assert chosen(ACCEL_STRICT="1").name == "cpu"
    monkeypatch.setattr(vendors, "known_hardware", lambda: (NVIDIA,))
    assert "NVIDIA GPU is present (/dev/nvidia0)" in str(error(ACCEL_STRICT="1"))
    monkeypatch.setattr(vendors, "known_hardware", lambda: ())
    monkeypatch.setattr(bus, "evidence", lambda backend, root="/": CARD)
    assert isinstance(error(ACCEL_STRICT="1"), UNAVAILABLE)


def test_strict_refuses_the_cpu_where_two_distributions_declare_the_hardware_that_is_there(
    card,
):
    card.backend("npu", 700, distribution="accel-npu")
    card.backend("npu", 600, distribution="better-npu")
    found = error(ACCEL_STRICT="1")
    assert "npu (accel-npu 1.0): conflict: better-npu 1.0 declares npu too" in str(
        found
    )
    assert chosen(ACCEL_STRICT="1", ACCEL_BLOCK="@better-npu").name == "npu"


def test_strict_has_nothing_against_what_the_user_ruled_out(card):
    card.backend("npu", extra=NO_DEVICE)
    assert isinstance(error(ACCEL_STRICT="1"), UNAVAILABLE)
    assert chosen(ACCEL_STRICT="1", ACCEL_BLOCK="npu").name == "cpu"


def test_a_machine_without_accelerators_is_refused_the_cpu_always_only(torch_world):
    """A job that a scheduler put on a node without devices must not train on the CPU."""
    assert chosen(ACCEL_STRICT="1").name == "cpu"
    found = error(ACCEL_STRICT="always")
    assert isinstance(found, UNAVAILABLE)
    assert str(found).startswith(
        "ACCEL_STRICT=always refuses the CPU, and no accelerator is usable:\n"
        "  no plugin of an accelerator is installed\n"
    )
    assert chosen(ACCEL_STRICT="always", DS_ACCELERATOR="cpu").name == "cpu"


@posix
# ---------------------------------------------------------------------------- notes, probing


def test_hardware_without_its_plugin_is_named_with_the_command(
    torch_world, monkeypatch
):
    integrated = vendors.Vendor(
        "Intel integrated GPU",
        "xpu",
        evidence=bus.Evidence(pci=("8086",)),
        is_integrated=True,
    )
    known = (NVIDIA, vendors.Vendor("Ascend NPU", "npu", evidence=CARD), integrated)
    monkeypatch.setattr(vendors, "known_hardware", lambda: known)
    torch_world.backend("npu", extra=NO_DEVICE)
    assert chosen().missing_plugins == (
        "NVIDIA GPU is present (/dev/nvidia0) and its plugin is not installed: pip install accel-cuda",
    )
    monkeypatch.setenv("ACCEL_BLOCK", "cuda")  # whose plugin would not be let in
    assert chosen().missing_plugins == ()


def test_settings_that_name_nothing_say_what_may_be_meant(torch_world):
    torch_world.backend("npu", vendor_import="torch_npu")
    record = chosen(
        ACCEL_BLOCK="npv,mlu,zpu", ACCEL_STRIKT="1"
    )  # zpu: another first letter, nobody's slip
    assert record.notes == (
        "accel-core has no setting ACCEL_STRIKT. Did you mean ACCEL_STRICT?",
        "ACCEL_BLOCK names npv, which is not installed. Did you mean 'npu'?",
    )
    assert record.to_dict()["notes"] == list(record.notes)
    assert chosen(ACCEL_BLOCK="mlu").notes == ()


@posix
def test_a_choice_in_children_only_imports_nothing_here(several):
    for environ in ({}, pin("mlu")):
        assert select(read(environ), isolated=True).name == "mlu"
    assert "torch" not in sys.modules


def test_a_pinned_entry_point_whose_plugin_declares_another_name_is_told(torch_world):
    declares = "Backend(name='other', priority=1, device_type='cpu')"
    torch_world.plugin(
        "bad",
        f"from accel_core import *\n{hook('accel_backends', '', f'return {declares}')}",
    )
    assert str(error(DS_ACCELERATOR="bad")) == (
        "DS_ACCELERATOR='bad': the plugin of entry point bad declares another name: `accel list` shows it."
    )
