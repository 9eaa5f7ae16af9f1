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
from accel_core.select import select
from accel_core.settings import read
from accel_core.verdict import How, Note

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
def test_settings_choose_a_backend_and_are_in_the_record(
    several, environ, name, how, all_of
):
    found = chosen(**environ)
    assert found.name == name
    assert found.how == how
    assert found.environ == environ
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
INSTEAD = "To use the CPU instead, set DS_ACCELERATOR=cpu. `accel list` shows the usable backends."
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
        ["For a GPU, use one of these backends: cuda, xpu. `accel list` shows which of them are usable."],
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
            (
                "bad (accel-bad 1.0) is not usable: the plugin failed to load "
                "(entry point bad = 'accel_bad'): OSError: libbad.so"
            ),
            "Next step: pip install --force-reinstall accel-bad, or pip uninstall accel-bad.",
        ],
    ),
    "none of a list": (
        (), pin("npu,tpu"), UNAVAILABLE,
        [
            "DS_ACCELERATOR='npu,tpu': none of these backends is usable.", INSTEAD,
            "npu (accel-npu 1.0): no device: nothing on the bus", "no installed distribution declares tpu",
        ],
    ),
    "blocked": (
        (), pin("mlu", ACCEL_BLOCK="mlu"), UNAVAILABLE,
        [
            "mlu (accel-mlu 1.0) is not usable: excluded by ACCEL_BLOCK.",
            "Next step: remove mlu from ACCEL_BLOCK.",
        ],
    ),
    # The error contains the reason for each backend: nobody has to turn on debug logs.
    "not even the CPU": (
        (), {"ACCEL_ALLOW": "npu"}, UNAVAILABLE,
        [
            "The settings exclude every usable backend.",
            "npu (accel-npu 1.0): no device: nothing on the bus",
            "mlu (accel-mlu 1.0): blocked: not listed in ACCEL_ALLOW. Next step: add mlu to ACCEL_ALLOW",
            "cpu (accel-core",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_setting_that_cannot_be_met_is_an_error_with_cause_and_next_step(
    several, what
):
    """The thing, its distribution, the cause, the next step; there is no fallback from a pin."""
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
    note = Note(
        (
            "DS_ACCELERATOR='npu' selects a backend that has no usable device: "
            "NPU_VISIBLE='' hides every device"
        ),
        "unset NPU_VISIBLE, or set it to the devices to use",
        "npu",
    )
    for nodes, notes in (
        (("/dev/null",), (note,)),
        ((), (note,)),
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
            assert [str(warning.message) for warning in told] == [
                f"{note.text}. Next step: {note.step}."
            ]


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
