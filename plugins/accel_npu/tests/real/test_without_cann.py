"""torch-npu installed and CANN not: `import torch` is dead, and everything of ours goes on and says why."""

import json

import pytest
from accel_tests import children
from stand_in.children import run

LIBRARY = "libhccl.so: cannot open shared object file"
NEEDS_CANN = "torch_npu 2.13.0 needs CANN, which is not installed"
#: The command as the user has it, on a machine that has a card.
WITH_A_CARD = """
from accel_core.hardware import bus
bus.device_nodes = lambda *_: ("/dev/davinci0",)
"""


def accel(*arguments, card):
    return (WITH_A_CARD if card else "") + children.accel(*arguments)


def verdict(ended, name="npu"):
    return next(b for b in json.loads(ended.stdout)["backends"] if b["name"] == name)


def test_importing_torch_is_broken(without_cann):
    """What we have to survive; when this fails, torch or torch_npu has learnt better."""
    ended = without_cann("import torch")
    assert ended.returncode == 1
    assert "Failed to load the backend extension: torch_npu" in ended.stderr
    assert LIBRARY in ended.stderr


@pytest.fixture(scope="module")
def listed_without_a_card():
    """`accel list --json` on a machine without a card."""
    return run(accel("list", "--json", card=False)).succeeded()


def test_without_a_card_npu_has_no_device_and_needs_cann(listed_without_a_card):
    npu = verdict(listed_without_a_card)
    assert npu["status"] == "no_device"
    assert npu["devices"] == 0
    assert "/dev/davinci[0-9]*" in npu["reason"]
    assert f"; besides, {NEEDS_CANN}: ImportError: {LIBRARY}" in npu["reason"]
    assert npu["hint"].startswith(
        "pip uninstall torch_npu. (On a machine with the device, do this instead: accel setup npu"
    )


def test_without_a_card_the_cpu_is_chosen(listed_without_a_card):
    assert json.loads(listed_without_a_card.stdout)["chosen"] == "cpu"


def test_the_package_that_breaks_torchs_import_is_named(listed_without_a_card):
    """Torch is not to blame; the verdict on npu has the reason and the one remedy."""
    [autoload] = json.loads(listed_without_a_card.stdout)["autoload"]
    assert autoload.startswith(
        "torch_npu 2.13.0 fails when torch loads it (torch.backends: torch_npu ="
    )
    reason = (
        ", for the same reason as npu. `import torch` fails because of this package"
    )
    assert autoload.endswith(reason)


def test_generic_leaves_torch_npu_to_its_plugin(listed_without_a_card):
    generic = verdict(listed_without_a_card, "generic")
    assert (
        "the packages that add one belong to other backends (torch_npu: npu)"
        in generic["reason"]
    )


def test_one_cause_has_one_remedy(without_cann):
    """Issue 25: uninstalling came beside CANN's script, of a package without a device."""
    shown = without_cann(accel("why", card=False), COLUMNS="300").stdout
    for once in ("pip uninstall", "accel setup npu", "libhccl.so"):
        assert shown.count(once) == 1, shown
    assert f"{NEEDS_CANN}: ImportError: {LIBRARY}" in shown
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in shown


def test_list_with_a_card_names_the_library_and_the_fix(without_cann):
    ended = without_cann(accel("list", "--json", card=True)).succeeded()
    npu = verdict(ended)
    assert npu["status"] == "broken"
    assert LIBRARY in npu["reason"]
    assert "accel setup npu" in npu["hint"]
    assert npu["evidence"] == "/dev/davinci0"
    assert json.loads(ended.stdout)["chosen"] == "cpu"


GET = """
import json, os, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import accel_core
    acc = accel_core.get_accelerator()
import torch
# torch_npu's own source has one, where it was not compiled before.
said = [str(w.message) for w in caught if w.category not in (SyntaxWarning, DeprecationWarning)]
slot = torch._C._get_privateuse1_backend_name()
print(json.dumps([acc.name, said, torch.ones(2).sum().item(), slot]))
"""


def test_get_accelerator_falls_back_and_says_why(without_cann):
    """The failed import leaves torch as it was: the slot is free."""
    name, (warning,), total, slot = without_cann(WITH_A_CARD + GET).answer
    assert name == "cpu"
    assert total == 2.0
    assert slot == "privateuseone"
    assert LIBRARY in warning
    assert "accel setup npu" in warning


def test_without_a_card_it_is_not_even_imported(without_cann):
    code = GET + "import sys\nfound = accel_core.selection().autoload\n"
    code += "print(json.dumps(['torch_npu' in sys.modules, *found]))"
    # What the user's own `import torch` would do, commands find out, in a child process.
    assert without_cann(code).answer == [False]


def test_a_pin_is_refused_with_the_library_and_the_fix(without_cann):
    ended = without_cann(
        "import accel_core; accel_core.get_accelerator()", DS_ACCELERATOR="npu"
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(
        "accel_core.errors.BackendUnavailableError: npu (accel-npu 0.1.0) is not usable"
    )
    assert LIBRARY in last
    assert "accel setup npu" in last


@pytest.fixture(scope="module")
def examined():
    """`accel doctor npu` on a machine with a card."""
    command = accel("doctor", "npu", "--json", "--topic", "candidates", card=True)
    return run(command)


@pytest.fixture(scope="module")
def finding(examined):
    """The doctor's finding on npu."""
    [topic] = json.loads(examined.stdout)["topics"]
    [broken] = [f for f in topic["findings"] if f["code"] == "candidates.broken"]
    return broken


def test_the_doctor_ends_with_status_1(examined):
    assert examined.returncode == 1
    assert json.loads(examined.stdout)["exit_status"] == 1


def test_the_doctor_names_the_cause_and_counts_the_libraries(finding):
    assert finding["what"].startswith(f"broken: {NEEDS_CANN}: ImportError: {LIBRARY}")
    assert (
        "libascendcl.so, libacl_op_compiler.so, libge_runner.so, libgraph.so and 1 more are missing too"
        in finding["what"]
    )
    assert "accel setup npu" in finding["step"]


def test_the_doctor_names_every_library_that_is_missing(finding):
    """It reads the files, and loads none."""
    entries = finding["facts"]["missing libraries"].split("; ")
    lacking = [entry.partition(" ")[0] for entry in entries]
    assert {"libhccl.so", "libascendcl.so", "libacl_tdt_channel.so"} <= {*lacking}
    assert not [
        name for name in lacking if "torch" in name or name.startswith("libstdc++")
    ]


def test_the_doctors_facts_name_the_file_the_package_and_the_toolkit(finding):
    facts = finding["facts"]
    assert facts["raised by"].partition(",")[0].endswith(".py")
    assert "torch_npu 2.13.0 in " in facts["vendor's package"]
    assert "torch==2.13.0.*" in facts["vendor's package"]
    assert facts["toolkit"].startswith("ASCEND_HOME_PATH is not set")
