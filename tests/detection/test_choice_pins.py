"""What DS_ACCELERATOR pins is chosen, or the error says why not."""

from __future__ import annotations

import sys

import pytest
from accel_tests.asking import chosen, counting, error, statuses
from accel_tests.plugins import hook

from accel_core import get_accelerator
from accel_core.backend import Hardware, Visibility
from accel_core.detection import How, messages
from accel_core.errors import BackendNotFoundError, BackendUnavailableError, SettingWarning


@pytest.mark.parametrize("text", ["mlu", " mlu ", "MLU", "mlu,", "Mlu@Accel_MLU", "mlu@accel-mlu"])
def test_a_pin_in_all_its_forms(several, text):
    """USERS 33."""
    found = chosen(DS_ACCELERATOR=text)
    assert (found.chosen, found.how) == ("mlu", How.PINNED)
    assert statuses(found) == {"mlu": "usable"}
    assert found.environ == {"DS_ACCELERATOR": text}


@pytest.mark.skipif(sys.platform != "linux", reason="device nodes are looked for on Linux")
def test_a_pin_whose_devices_are_all_hidden_is_honoured_and_told(torch_world, monkeypatch):
    """The node is here; on a login node, where none is, a pin without a device is what was meant."""
    fields = {"visibility": Visibility(("NPU_VISIBLE",))}
    monkeypatch.setenv("NPU_VISIBLE", "")
    counting(torch_world, "return 0", hardware=Hardware(nodes=("/dev/null",)), **fields)
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    with pytest.warns(SettingWarning) as told:
        assert get_accelerator().name == "npu"
    [said] = [str(warning.message) for warning in told]
    assert said == (
        "DS_ACCELERATOR='npu' is honoured without a device: NPU_VISIBLE='' hides every device. "
        "Next step: unset NPU_VISIBLE, or name in it the devices to use."
    )
    assert chosen(DS_ACCELERATOR="npu").notes == (said,)
    counting(torch_world, "return 0", **fields)  # of which the runtime alone knows whether it is here
    for name in ("accel_npu", "npu_device"):
        sys.modules.pop(name)
    assert chosen(DS_ACCELERATOR="npu").notes == (said,)
    counting(torch_world, "return 0", hardware=Hardware(nodes=("/dev/no-such-npu",)), **fields)
    for name in ("accel_npu", "npu_device"):
        sys.modules.pop(name)
    assert chosen(DS_ACCELERATOR="npu").notes == ()


@pytest.mark.parametrize("text", ["", "  ", ","])
def test_an_empty_pin_is_no_pin(several, text):
    assert chosen(DS_ACCELERATOR=text).how is How.RANKED


@pytest.mark.parametrize("name", ["npu", "mlu", "sdaa", "cpu"])
def test_every_installed_name_can_be_pinned(several, name):
    """USERS 33: DS_ACCELERATOR=cuda recursed for ever. USERS 31: npu has no device here."""
    assert chosen(DS_ACCELERATOR=name).chosen == name


def test_an_unknown_pin_lists_what_is_installed_and_what_was_meant_or_to_be_installed(several):
    for name, step in (("mlo", "Did you mean 'mlu'?"), ("cuda", "Next step: pip install accel-cuda.")):
        found = error(DS_ACCELERATOR=name)
        assert isinstance(found, BackendNotFoundError)
        assert isinstance(found, LookupError)
        assert str(found) == (
            f"DS_ACCELERATOR={name!r}: no installed distribution declares {name}. "
            f"Installed: mlu, npu, sdaa, generic, cpu. {step}"
        )


def test_a_pin_to_a_distribution_that_is_not_there(several):
    found = error(DS_ACCELERATOR="mlu@better-mlu")
    assert "no installed distribution declares mlu from better-mlu" in str(found)
    assert str(found).endswith("mlu is declared by accel-mlu.")  # nobody knows of a better-mlu to install
    assert "pip install" not in str(found)
    assert "Did you mean" not in str(found)


@pytest.mark.parametrize("name", ["ipu", "xpa"])
def test_a_name_of_another_kind_of_device_is_no_slip_of_the_finger(several, name):
    """ "ipu" was read as "xpu"."""
    several.backend("xpu", 10)
    text = str(error(DS_ACCELERATOR=name))
    assert ("Did you mean" in text) is (name != "ipu")
    assert "pip install" not in text


def test_gpu_means_the_backends_for_gpus(several):
    several.backend("cuda", 10)
    several.backend("xpu", 20)
    assert str(error(DS_ACCELERATOR="gpu")).endswith("For a GPU name one of cuda, xpu.")
    # Those that work here, and another kind of device where there are none.
    assert str(error(DS_ACCELERATOR="gpu", ACCEL_BLOCK="xpu")).endswith("For a GPU name one of cuda.")
    assert str(error(DS_ACCELERATOR="gpu", ACCEL_BLOCK="xpu,cuda")).endswith(
        "No backend for a GPU is usable here: `accel why` says why. "
        "Or set DS_ACCELERATOR to one of: mlu, sdaa, cpu."
    )


def test_what_cannot_work_here_is_not_advised(several):
    """Its hardware is absent, its vendor's package is broken, it counts no device: it would fail."""
    several.backend("far", hardware=Hardware(nodes=("/dev/no-such-card[0-9]*",), pci_ids=("fade:0001",)))
    several.module("torch_bad", "raise ImportError('libbad.so')")
    several.backend("bad", vendor_import="torch_bad")
    several.backend("xpu", vendor_import="ipex")
    assert str(error(DS_ACCELERATOR="xpu")).endswith("Or set DS_ACCELERATOR to one of: mlu, sdaa, cpu.")


def test_a_pin_whose_vendor_is_missing_names_everything(several):
    """The thing, its distribution, the cause, the next step; there is no fall-back from a pin."""
    several.backend("xpu", vendor_import="ipex", install_hint="pip install intel-extension-for-pytorch")
    found = error(DS_ACCELERATOR="xpu")
    assert isinstance(found, BackendUnavailableError)
    assert isinstance(found, RuntimeError)
    assert str(found) == (
        "xpu (accel-xpu 1.0) is not usable: ipex is not installed. "
        "Next step: pip install intel-extension-for-pytorch. "
        "Or set DS_ACCELERATOR to one of: mlu, sdaa, cpu."
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


@pytest.mark.parametrize("pin", ["npu", "npu@accel-npu", "NPU", "cpu"])
def test_a_pinned_choice_imports_one_plugin_module_at_most(several, pin):
    """USERS 22, 28: asserted in a process of its own; JAX_PLATFORMS=cpu still ran cuInit."""
    code = (
        "import json, sys\nimport accel_core\nname = accel_core.get_accelerator().name\n"
        "ours = ('accel_core', 'accel_train')  # accel-train's adapters are asked for a plugin's class\n"
        "mine = sorted(m for m in sys.modules if m.startswith('accel_') and not m.startswith(ours))\n"
        "print(json.dumps([name, mine]))"
    )
    mine = [] if pin == "cpu" else ["accel_npu", "accel_sim_device"]
    assert several.child(code, variables={"DS_ACCELERATOR": pin}).answer == [pin.lower()[:3], mine]


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
        str(error(DS_ACCELERATOR="npu")),
        str(error(DS_ACCELERATOR="npu,gone")),
        str(error(ACCEL_STRICT="always")),
        str(selection),
        messages.fallback(selection.verdicts, (), in_full=True),
    ]
    assert [text for text in texts if ".." in text] == []
    assert not any(verdict.reason.endswith(".") for verdict in selection.verdicts)
