"""The funnel: each status is reached by a real plugin, cheapest question first, and nothing is raised."""

import json
import os
import sys
from dataclasses import replace

import pytest
from accel_tests.asking import counting, judge, names, vendor
from accel_tests.plugins import ACCELERATOR, HEAD, arguments, hook

from accel_core import Hardware, InTorch, discover, hardware
from accel_core.hardware import bus, vendors
from accel_core.probe import Prober
from accel_core.settings import Pin, Settings
from accel_core.verdict import Reason, Status, Why

# ---------------------------------------------------------------------------- probe
# The funnel: each status is reached by a real plugin, cheapest question first, and nothing is raised.


def test_a_candidate_is_judged_by_the_cheapest_question(torch_world):
    """A blocked plugin for another platform with a broken vendor: policy comes first."""
    fields = {
        "requires": ("absent>1",),
        "hardware": Hardware(nodes=("/dev/no-npu",), platforms=("nowhere",)),
    }
    vendor(torch_world, "raise ImportError", **fields)
    assert judge(settings=Settings(block=(Pin("npu"),))).status is Status.BLOCKED
    assert judge().status is Status.NO_DEVICE
    assert "torch_npu" not in sys.modules


def test_hardware_without_its_package_is_told(torch_world, monkeypatch):
    monkeypatch.setattr(
        bus,
        "evidence",
        lambda backend, root="/": bus.Evidence(nodes=("/dev/davinci0",)),
    )
    torch_world.backend(
        "npu",
        vendor_import="torch_npu",
        hardware=Hardware(nodes=("/dev/davinci[0-9]*",)),
    )
    found = judge()
    assert (
        found.reason
        == "torch_npu is not installed, though the hardware is there: /dev/davinci0"
    )
    assert found.evidence == "/dev/davinci0"


def test_a_package_whose_import_is_forbidden_is_not_installed(torch_world, monkeypatch):
    vendor(torch_world, "")
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    assert judge().status is Status.NOT_INSTALLED


def test_a_package_for_which_a_finder_fails_is_not_installed(torch_world, monkeypatch):
    class Failing:
        def find_spec(self, name, path=None, target=None):
            if name == "torch_npu":
                raise ValueError("a finder that fails")

    torch_world.backend("npu", vendor_import="torch_npu")
    monkeypatch.setattr(sys, "meta_path", [Failing(), *sys.meta_path])
    assert judge().status is Status.NOT_INSTALLED


def test_a_plugin_that_fails_to_load_carries_its_error_into_the_verdict(torch_world):
    torch_world.plugin("npu", "raise ImportError('libfoo')")
    found = judge()
    assert found.status is Status.BROKEN
    assert found.cause == "ImportError: libfoo"
    assert found.priority == 0
    assert found.device_type == ""
    assert found.vendor_import == ()


def test_a_value_error_of_a_plugin_is_not_an_invalid_declaration(torch_world):
    torch_world.plugin("mlu", "int('x')")
    assert judge("mlu").status is Status.BROKEN


def test_looking_for_a_package_imports_nothing_of_it(torch_world):
    torch_world.module("torch_npu.__init__", "raise SystemExit('imported')")
    torch_world.backend(
        "npu", vendor_import="torch_npu.deep.module", requires=("absent",)
    )
    assert judge().reason == "absent is not installed"
    assert "torch_npu" not in sys.modules


def needs(*requires, **fields):
    return {"requires": requires, **fields}


ELSEWHERE = {"hardware": Hardware(platforms=("plan9", "amiga-m68k"))}
LACKING = {
    "vendor_import": ("torch_npu", "torch_npu_old.sub"),
    "install_hint": "pip install torch-npu",
}
ONLY = "this device exists on plan9, amiga-m68k only"
ABSENT = "absent is not installed"
BOTH = (Pin("npu", "accel-npu"),), (Pin("npu", "other"),)
USABLE, INVALID = (
    (Status.USABLE, "", ""),
    (Status.INVALID, "its requirement {} cannot be checked", ""),
)
#: Fields of npu, what is allowed and blocked; its status, what the reason begins with, the next step.
KNOWN = {
    "usable": ({}, (), (), USABLE),
    "blocked": (
        {}, (), (Pin("npu"),), (Status.BLOCKED, "ACCEL_BLOCK names it", "take npu out of ACCEL_BLOCK")
    ),
    "not allowed": (
        {}, (Pin("cuda"),), (), (Status.BLOCKED, "ACCEL_ALLOW does not name it", "add npu to ACCEL_ALLOW")
    ),
    "another's is blocked": ({}, *BOTH, USABLE),
    "another platform": (ELSEWHERE, (), (), (Status.NO_DEVICE, ONLY, "")),
    "no vendor's package": (
        LACKING, (), (),
        (Status.NOT_INSTALLED, "torch_npu or torch_npu_old.sub is not installed", "pip install torch-npu"),
    ),
    "a range": (needs("torch-npu>=2.6.0rc0", "torch-npu<3"), (), (), USABLE),
    "another spelling": (needs("Torch.NPU>2.5"), (), (), USABLE),
    "absent": (needs("absent>=1"), (), (), (Status.NOT_INSTALLED, ABSENT, "pip install 'absent>=1'")),
    "absent, with a hint of its own": (
        needs("absent>=1", install_hint="run it"), (), (), (Status.NOT_INSTALLED, ABSENT, "run it")
    ),
    "too old": (
        needs("torch-npu>=3"), (), (),
        (
            Status.INCOMPATIBLE, "it needs torch-npu>=3 and torch-npu 2.6.0rc1 is installed",
            "pip install 'torch-npu>=3'",
        ),
    ),
    "a marker of another Python": (needs("absent; python_version < '3'"), (), (), USABLE),
    "a marker of an extra": (needs("absent; extra == 'x'"), (), (), USABLE),
    "no requirement": (needs("not a requirement!"), (), (), INVALID),
    "empty": (needs(""), (), (), INVALID),
    "a private build": (needs("private"), (), (), USABLE),
    "a private build in no range": (
        needs("private>=1"), (), (),
        (
            Status.INCOMPATIBLE, "it needs private>=1 and private our build 7 is installed",
            "pip install 'private>=1'",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", KNOWN)
def test_what_is_known_without_an_import(torch_world, what):
    fields, allow, block, (status, reason, hint) = KNOWN[what]
    torch_world.distribution("torch-npu", "2.6.0rc1")
    torch_world.distribution("private", "our build 7")
    torch_world.backend("npu", **fields)
    found = judge(settings=Settings(allow=allow, block=block))
    assert (found.status, found.hint, found.usable) == (
        status,
        hint,
        status is Status.USABLE,
    )
    assert found.reason.startswith(
        reason.format(*map(repr, fields.get("requires", ())))
    )
    assert found.reason or found.usable
    assert found.devices == (2 if found.usable else found.devices)
    assert found.ms > 0
    if what in ("another platform", "no vendor's package"):
        assert judge(pinned=True).status is status  # also if it is pinned


GONE = Hardware(nodes=("/dev/no-such-npu[0-9]*",))
LACKS_NODE = "this machine has none of /dev/no-such-npu[0-9]*"
COUNTS_NONE = "the vendor's runtime counts no device"
FAILS = "raise ImportError('libhccl.so')"
#: What the vendor's package does, or its count; the hardware, whether it is pinned; status, reason, devices.
ABSENT_HARDWARE = {
    # Without the hardware nobody needs to know first that the installed package is broken.
    "no node and no PCI function end the search": (
        FAILS, replace(GONE, pci_ids=("fffe",)), False, Status.NO_DEVICE, f"{LACKS_NODE}, PCI fffe", 0
    ),
    # A driver may name its nodes otherwise; a container may show others: the vendor counts.
    "only a node could tell, and none is counted": ("return 0", GONE, False, Status.NO_DEVICE, LACKS_NODE, 0),
    "only a node could tell, and some are": ("return 3", GONE, False, Status.USABLE, "", 3),
    "a vendor that raises where no node is": (FAILS, GONE, False, Status.NO_DEVICE, LACKS_NODE, 0),
    "none is counted": ("return 0", Hardware(), False, Status.NO_DEVICE, COUNTS_NONE, 0),
    # A login node, or an image build.
    "pinned": ("return 0", Hardware(), True, Status.USABLE, f"pinned, though {COUNTS_NONE}", 0),
    "a pin does not look for hardware": ("return 2", GONE, True, Status.USABLE, "", 2),
    "a pin still needs a vendor that works": (
        FAILS, GONE, True, Status.BROKEN, "torch_npu failed: ImportError: libhccl.so", None
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ABSENT_HARDWARE)
def test_where_no_hardware_is_seen(torch_world, monkeypatch, what):
    monkeypatch.setattr(hardware, "on_linux", lambda: True)
    source, signs, pinned, *verdict = ABSENT_HARDWARE[what]
    (counting if source.startswith("return") else vendor)(
        torch_world, source, hardware=signs
    )
    found = judge(pinned=pinned)
    assert [found.status, found.reason, found.devices] == verdict
    assert "torch_npu" not in sys.modules
    if (
        source.startswith("return") and not pinned
    ):  # no PCI id says that it is not here: the vendor counts
        assert ("npu_device" in sys.modules) is (not signs.pci_ids)


# ---------------------------------------------------------------------------- faults, claims, no torch


def test_torch_missing_is_told_by_name(world):
    world.backend("npu")
    found = judge()
    assert found.status is Status.BROKEN
    assert found.reason.startswith("torch is not installed: accel setup")
    cpu = next(c for c in discover() if c.name == "cpu")
    judged = Prober(Settings()).probe(cpu, (cpu,))
    assert (judged.status, judged.reason) == (
        Status.NOT_INSTALLED,
        "torch is not installed",
    )
    assert judged.hint == vendors.command_with_its_package("accel setup cpu")


def test_a_claim_that_nobody_loaded_is_not_probed(torch_world):
    torch_world.backend("npu")
    loaded = next(c for c in discover() if c.name == "npu")
    claim = replace(loaded, backend=None, why=Why(Reason.NOT_LOADED))
    judged = Prober(Settings()).probe(claim, (claim,))
    assert (judged.status, judged.reason) == (
        Status.NOT_PROBED,
        "its plugin was not loaded",
    )


def test_an_exceptions_frames_keep_nothing_alive(torch_world):
    import gc

    torch_world.module("torch_npu", "")
    torch_world.module(
        "npu_device",
        "import accel_core\nclass Big: pass\nseen = []\nclass Simulated(accel_core.Accelerator):\n"
        "    def device_count(self):\n        import weakref\n        big = Big()\n"
        "        seen.append(weakref.ref(big))\n"
        "        raise RuntimeError('out of memory')\n",
    )
    torch_world.backend("npu", accelerator="npu_device:Simulated")
    found = judge()
    gc.collect()
    (reference,) = sys.modules["npu_device"].seen
    assert found.error is not None
    assert reference() is None


# ---------------------------------------------------------------------------- the verdict as a record


def test_a_verdict_is_printable_and_json(torch_world):
    torch_world.backend(
        "npu",
        description="a device",
        url="https://example.org",
        vendor_import=("json", "torch"),
    )
    found = judge()
    record = json.loads(json.dumps(found.to_dict()))
    assert record["name"] == "npu"
    assert record["distribution"] == "accel-npu"
    assert record["entry_point"] == "accel_npu"
    assert record["vendor_import"] == ["json", "torch"]
    assert record["status"] == "usable"
    assert (record["description"], record["url"]) == ("a device", "https://example.org")
    assert str(found) == "npu (accel-npu 1.0): usable"
    backend = next(v for v in discover() if v.name == "npu")
    why = Why(Reason.PLUGIN_ANSWERS, {"text": "none", "step": "look again"})
    answered = replace(backend, status=Status.NO_DEVICE, why=why)
    assert str(answered) == "npu (accel-npu 1.0): no device: none. look again"


# --- A library that was built for another torch ----------------------------------------------------------

LACKS = "/site/torch_npu/lib/libtorch_npu.so: undefined symbol: "


@pytest.mark.parametrize(
    "symbol",
    [
        "_ZN3c1021throwNullDataPtrErrorEv",
        "_ZNK2at10TensorBase4sizeEl",
        "_ZN5torch8autograd4Node4nameEv",
        "_ZTIN3c105ErrorE",
    ],
)
def test_a_library_that_lacks_a_symbol_of_torch_was_built_for_another_torch(
    torch_world, symbol
):
    vendor(torch_world, f"raise ImportError({LACKS + symbol!r})")
    found = judge()
    assert found.status is Status.BROKEN
    assert found.reason == (
        f"torch_npu failed: built for another torch (yours is 2.99.0+simulated): ImportError: {LACKS}{symbol}"
    )
    assert found.hint == "install the vendor's wheel for this torch"
    assert found.cause == f"ImportError: {LACKS}{symbol}"


@pytest.mark.parametrize(
    "symbol", ["aclInit", "_ZN4acme4opensERKN2at6TensorE", "_ZN6c10_npu3getEv"]
)
def test_a_symbol_of_anybody_else_tells_nothing_of_torch(torch_world, symbol):
    vendor(torch_world, f"raise ImportError({LACKS + symbol!r})")
    found = judge()
    assert found.reason == f"torch_npu failed: ImportError: {LACKS}{symbol}"
    assert found.hint == ""


def test_a_hint_of_the_plugins_own_comes_before_that(torch_world):
    vendor(
        torch_world,
        f"raise ImportError('{LACKS}_ZN3c104getEv')",
        hints=(("undefined", "update CANN"),),
    )
    assert judge().hint == "update CANN"


def test_a_torch_that_does_not_import_is_for_the_doctor(torch_world):
    torch_world.module("torch", f"raise ImportError('{LACKS}_ZN3c104getEv')")
    vendor(torch_world, "")
    found = judge()
    assert found.hint.startswith("run `accel doctor` in the program's folder")
    assert "another torch" not in found.reason


# --- A package that was built for one release of torch, told by metadata ---------------------------------

OTHER = (
    "torch-npu {0} works with torch 2.8 only, and torch 2.99.0+simulated is installed"
)
TORCH_2_8 = "pip install 'torch==2.8.*'"
#: Its version, whether it is pinned, its own way out; status, reason, next step.
RELEASES = [
    ("2.8.10+xpu", False, "", Status.INCOMPATIBLE, OTHER, TORCH_2_8),
    ("2.8.10+xpu", True, "", Status.INCOMPATIBLE, OTHER, TORCH_2_8),
    ("2.8", False, "do this", Status.INCOMPATIBLE, OTHER, f"{TORCH_2_8}, or: do this"),
    ("2.99.7.post1+cann", False, "", Status.USABLE, "", ""),
    (
        "",
        False,
        "do this",
        Status.NOT_INSTALLED,
        "torch-npu is not installed",
        "do this",
    ),
]
BUILT_FOR = InTorch(same_version=("torch-npu",))


@pytest.mark.parametrize(
    ("version", "pinned", "way_out", "status", "reason", "hint"), RELEASES
)
def test_a_package_of_another_release_of_torch_is_not_imported(
    torch_world, version, pinned, way_out, status, reason, hint
):
    """Such a package may end the process when it is imported beside another torch."""
    if version:
        torch_world.distribution("torch-npu", version)
    source = (
        ""
        if status is Status.USABLE
        else "raise KeyboardInterrupt('imported beside another torch')"
    )
    vendor(torch_world, source, in_torch=BUILT_FOR, install_hint=way_out)
    found = judge(pinned=pinned)
    assert (found.status, found.reason, found.hint) == (
        status,
        reason.format(version),
        hint,
    )
    assert found.usable or not {"torch", "torch_npu"} & set(sys.modules)


def test_without_torch_it_is_torch_that_is_missing(world):
    world.distribution("torch-npu", "2.8")
    vendor(world, "", in_torch=BUILT_FOR)
    assert "torch is not installed" in judge().reason


# ---------------------------------------------------------------------------- probe hooks
# What a plugin's own hooks say is believed where it fits; the owner alone is asked about his device.


ASIDE = "ProbeResult(False, 'torch_supa has it', 'a hint', stands_aside=True)"
NONE = "ProbeResult(False, 'nothing on the bus', devices=0)"
WHY = "AttributeError: module 'json' has no attribute 'missing'"
MISSING = f"accelerator='json:missing' of accel-npu 1.0 failed: {WHY}"
COUNTED = "npu_device:Simulated"
#: What `accel_probe` answers, the accelerator, whether it is pinned; the verdict with its reason and devices.
SAID = {
    "it stands aside": (ASIDE, "", False, Status.STANDS_ASIDE, "torch_supa has it", None),
    "no device": (NONE, "", False, Status.NO_DEVICE, "nothing on the bus", 0),
    "no device, pinned": (NONE, "", True, Status.USABLE, "pinned, though nothing on the bus", 0),
    # Else a command would call usable what `get_accelerator()` then fails to build.
    "no device, pinned, cannot be built": (NONE, "json:missing", True, Status.BROKEN, MISSING, None),
    "usable, and never counted": ("ProbeResult(True, devices=8)", COUNTED, False, Status.USABLE, "", 8),
    # It must not make the whole choice fail.
    "usable, cannot be built": ("ProbeResult(True)", "json:missing", False, Status.BROKEN, MISSING, None),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_a_plugins_own_word_on_its_device(torch_world, what):
    answer, accelerator, pinned, *verdict = SAID[what]
    torch_world.module(
        "npu_device", ACCELERATOR.format(count="raise RuntimeError('never asked')")
    )
    fields = {"accelerator": accelerator} if accelerator else {}
    torch_world.backend(
        "npu",
        extra=hook("accel_probe", "backend, others", f"return {answer}"),
        **fields,
    )
    found = judge(pinned=pinned)
    assert [found.status, found.reason, found.devices] == verdict
    assert found.status.is_failure is (found.status is Status.BROKEN)
    assert (found.hint == "a hint") is ("a hint" in answer)
    # Without a pin it is asked before anything is imported.
    assert ("torch" in sys.modules) is (
        pinned or "True" in answer.replace("aside=True", "")
    )


def test_the_other_backends_are_shown_to_the_probe(torch_world):
    torch_world.backend("mlu")
    body = "return ProbeResult(False, ','.join(sorted(b.name for b in others)))"
    torch_world.backend("npu", extra=hook("accel_probe", "backend, others", body))
    assert judge().reason == "cpu,generic,mlu"


#: The same hook under a name of its own, which pluggy takes by its marker.
NAMED = "\n@hookimpl(specname={hook!r})\ndef somehow(backend, others):\n    {body}\n"


@pytest.mark.parametrize("own", ["npu", "mlu"])
@pytest.mark.parametrize("named", [False, True], ids=["by name", "specname"])
@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("accel_probe", "return ProbeResult(False, '{0} judged ' + backend.name)", "{0} judged {0}"),
        (
            "accel_create", "raise RuntimeError('{0} built ' + backend.name)",
            "accel_create() of accel-{0} 1.0 failed: RuntimeError: {0} built {0}",
        ),
    ],
    ids=["accel_probe", "accel_create"],
)  # fmt: skip
def test_the_owner_alone_is_asked_about_his_device(
    torch_world, own, named, name, body, reason
):
    for each, priority in (("npu", 700), ("mlu", 300)):
        body_of = body.format(each)
        source = (
            NAMED.format(hook=name, body=body_of)
            if named
            else hook(name, "backend, others", body_of)
        )
        torch_world.backend(each, priority, extra=source)
    assert judge(own).reason == reason.format(own)


def test_a_declaration_under_another_name_is_read(torch_world):
    named = "@hookimpl(specname='accel_backends')\ndef what_we_have():\n"
    torch_world.plugin(
        "acme", f"{HEAD}{named}    return Backend({arguments('acme')})\n"
    )
    assert "acme" in names(discover())
    assert judge("acme").usable


# ---------------------------------------------------------------------------- everybody about an error

RAISES = "raise ImportError('libfoo.so: cannot open shared object file')"


def explaining(world, name, body, parameters="backend, error", **fields):
    world.backend(name, extra=hook("accel_explain", parameters, body), **fields)


BAD = ("raise ValueError", "import sys; sys.exit(3)", "return 5", "return ''")


@pytest.mark.parametrize(
    ("body", "parameters"),
    [
        *((body, "backend, error") for body in BAD),
        ("return 'never'", "backend, flavour"),
    ],
)
def test_one_that_fails_answers_nonsense_or_does_not_fit_is_passed_over(
    torch_world, body, parameters
):
    vendor(torch_world, RAISES)
    explaining(torch_world, "sdaa", body, parameters, priority=900)
    explaining(torch_world, "mlu", "return f'{backend.name}: {error}'", priority=300)
    assert judge().hint == "npu: libfoo.so: cannot open shared object file"


def test_the_owner_first_then_its_declaration_then_others(torch_world):
    explaining(torch_world, "mlu", "return 'from mlu'", priority=900)
    own = hook(
        "accel_explain",
        "backend, error",
        "return 'own' if 'libfoo' in str(error) else None",
    )
    vendor(
        torch_world,
        RAISES,
        extra=own,
        hints=(("libfoo", "data"), ("LIB(BAR|BAZ)", "more data")),
    )
    assert judge().hint == "own"
    for error, hint in (("libbar.so", "more data"), ("another one", "from mlu")):
        torch_world.module("torch_npu", f"raise ImportError({error!r})")
        assert judge().hint == hint
    for number in range(
        19
    ):  # each that failed would import all, were their number not bounded
        torch_world.backend(f"more{number}", 950)
    assert judge().hint != "from mlu"


# ---------------------------------------------------------------------------- counting starts the runtime

#: The runtime refuses every process that was forked from one that has counted.
STARTS = """
        import os
        if os.environ.get("RUNTIME") not in (None, str(os.getpid())):
            raise RuntimeError("cannot re-initialise the runtime in a forked subprocess")
        os.environ["RUNTIME"] = str(os.getpid())
        return 3"""


def test_without_the_declaration_it_is_counted_here(torch_world, monkeypatch):
    monkeypatch.setenv("RUNTIME", str(os.getpid()))
    counting(torch_world, STARTS)
    assert judge().devices == 3
