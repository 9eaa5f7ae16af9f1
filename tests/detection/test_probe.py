"""The funnel: each status is reached by a real plugin, cheapest question first, and nothing is raised."""

import os
import sys
from dataclasses import replace
from typing import NamedTuple

import pytest
from accel_tests.asking import counting, judge, vendor

from accel_core import Hardware, discover, hardware
from accel_core.hardware import bus, vendors
from accel_core.probe import Prober
from accel_core.settings import Pin, Settings
from accel_core.verdict import Reason, Status, Why


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
        == "torch_npu is not installed, though the hardware is present: /dev/davinci0"
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
    (Status.INVALID, "the requirement {} cannot be checked", ""),
)
#: Fields of npu, what is allowed and blocked; its status, what the reason begins with, the next step.
KNOWN = {
    "usable": ({}, (), (), USABLE),
    "blocked": (
        {}, (), (Pin("npu"),), (Status.BLOCKED, "excluded by ACCEL_BLOCK", "remove npu from ACCEL_BLOCK")
    ),
    "not allowed": (
        {}, (Pin("cuda"),), (), (Status.BLOCKED, "not listed in ACCEL_ALLOW", "add npu to ACCEL_ALLOW")
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
            Status.INCOMPATIBLE, "the backend requires torch-npu>=3, but torch-npu 2.6.0rc1 is installed",
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
            Status.INCOMPATIBLE, "the backend requires private>=1, but private our build 7 is installed",
            "pip install 'private>=1'",
        ),
    ),
}  # fmt: skip


def judge_what_is_known(world, fields, settings, **options):
    world.distribution("torch-npu", "2.6.0rc1")
    world.distribution("private", "our build 7")
    world.backend("npu", **fields)
    return judge(settings=settings, **options)


@pytest.mark.parametrize("what", KNOWN)
def test_what_is_known_without_an_import(torch_world, what):
    fields, allow, block, (status, reason, hint) = KNOWN[what]
    settings = Settings(allow=allow, block=block)
    found = judge_what_is_known(torch_world, fields, settings)
    assert found.status is status
    assert found.usable is (status is Status.USABLE)
    assert found.hint == hint
    assert found.reason.startswith(
        reason.format(*map(repr, fields.get("requires", ())))
    )
    assert found.reason or found.usable
    assert found.ms > 0
    if found.usable:
        assert found.devices == 2


@pytest.mark.parametrize("what", ["another platform", "no vendor's package"])
def test_a_pin_forgives_neither_another_platform_nor_a_missing_package(
    torch_world, what
):
    fields, allow, block, (status, _, _) = KNOWN[what]
    settings = Settings(allow=allow, block=block)
    found = judge_what_is_known(torch_world, fields, settings, pinned=True)
    assert found.status is status


GONE = Hardware(nodes=("/dev/no-such-npu[0-9]*",))
LACKS_NODE = "/dev/no-such-npu[0-9]* not found"
COUNTS_NONE = "the vendor's runtime counts no device"
FAILS = "raise ImportError('libhccl.so')"


class Machine(NamedTuple):
    """A vendor's package on a machine, and the verdict on it."""

    #: The body of `device_count()`, or what the package does when it is imported.
    source: str
    hardware: Hardware
    status: Status
    reason: str = ""
    devices: int | None = 0
    pinned: bool = False


ABSENT_HARDWARE = {
    # Without the hardware nobody needs to know first that the installed package is broken.
    "no node and no PCI function end the search": Machine(
        FAILS,
        replace(GONE, pci_ids=("fffe",)),
        Status.NO_DEVICE,
        "/dev/no-such-npu[0-9]*, PCI fffe not found",
    ),
    # A driver may name its nodes otherwise; a container may show others: the vendor counts.
    "only a node could tell, and none is counted": Machine(
        "return 0", GONE, Status.NO_DEVICE, LACKS_NODE
    ),
    "only a node could tell, and some are": Machine(
        "return 3", GONE, Status.USABLE, devices=3
    ),
    "a vendor that raises where no node is": Machine(
        FAILS, GONE, Status.NO_DEVICE, LACKS_NODE
    ),
    "none is counted": Machine("return 0", Hardware(), Status.NO_DEVICE, COUNTS_NONE),
    # A login node, or an image build.
    "pinned": Machine(
        "return 0",
        Hardware(),
        Status.USABLE,
        f"pinned, though {COUNTS_NONE}",
        pinned=True,
    ),
    "a pin does not look for hardware": Machine(
        "return 2", GONE, Status.USABLE, devices=2, pinned=True
    ),
    "a pin still needs a vendor that works": Machine(
        FAILS,
        GONE,
        Status.BROKEN,
        "torch_npu failed: ImportError: libhccl.so",
        devices=None,
        pinned=True,
    ),
}


@pytest.mark.parametrize("what", ABSENT_HARDWARE)
def test_where_no_hardware_is_seen(torch_world, monkeypatch, what):
    monkeypatch.setattr(hardware, "on_linux", lambda: True)
    case = ABSENT_HARDWARE[what]
    counts = case.source.startswith("return")
    install = counting if counts else vendor
    install(torch_world, case.source, hardware=case.hardware)
    found = judge(pinned=case.pinned)
    assert found.status is case.status
    assert found.reason == case.reason
    assert found.devices == case.devices
    assert "torch_npu" not in sys.modules
    if counts and not case.pinned:
        # Where no PCI id says that it is not here, the vendor counts.
        assert ("npu_device" in sys.modules) is (not case.hardware.pci_ids)


def test_torch_missing_is_told_by_name(world):
    world.backend("npu")
    found = judge()
    assert found.status is Status.BROKEN
    assert found.reason.startswith("torch is not installed: run `accel setup`")
    cpu = next(c for c in discover() if c.name == "cpu")
    judged = Prober(Settings()).probe(cpu, (cpu,))
    assert judged.status is Status.NOT_INSTALLED
    assert judged.reason == "torch is not installed"
    assert judged.hint == vendors.command_with_its_package("accel setup cpu")


def test_a_claim_that_nobody_loaded_is_not_probed(torch_world):
    torch_world.backend("npu")
    loaded = next(c for c in discover() if c.name == "npu")
    claim = replace(loaded, backend=None, why=Why(Reason.NOT_LOADED))
    judged = Prober(Settings()).probe(claim, (claim,))
    assert judged.status is Status.NOT_PROBED
    assert judged.reason == "its plugin was not loaded"


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
