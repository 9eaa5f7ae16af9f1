"""What is told of a device before anything is imported, by fields that no plugin here needs to have.

The backend is nobody's, its machine is a tree of files on disk.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import pytest
from accel_tests.acme import ACME, acme

from accel_core import Backend, Status, evidence

#: What comes with torch itself.
TORCH_OWN = acme(vendor_import="torch", torch_integration={"builds": ("xpu",)})
#: No PCI id is known of some vendors' cards: a missing node means one of three, and decides nothing.
UNKNOWN = {"hardware": {"pci_ids": ()}}
SILENT = {"hardware": {"driver_file": ""}, "request": {"docker": ""}}
SLURM = acme(request={"slurm": "gpu"})
INDICES = acme(visibility={"grammar": "indices"})

NODE, SHARED = "/dev/acme0", "/dev/accel/accel0"
BUS, DRIVER = "fade:0001 120000", "/sys/module/acme/refcnt"
DOCKER, PODMAN = "/.dockerenv", "/run/.containerenv"
OURS = "/dev/acme[0-9]* or /dev/accel/accel[0-9]*"
CARD = "PCI fade:0001 at 0000:81:00.0"


class Row(NamedTuple):
    """A machine, a backend, and what is said: reason, next step, devices; a text may end in an ellipsis."""

    said: tuple[str, str, int | None] | None
    files: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}
    backend: Backend = ACME
    #: The release of torch, and what it was built for.
    torch: tuple[str, Mapping[str, str]] | None = None
    #: Whether it only speaks against the device, and rules nothing out.
    doubt: bool = False


NONE = "no Acme XLA card found (looked for /dev/acme[0-9]*, PCI fade:0001)"
NO_NODE = "/dev/acme[0-9]* not found"
ON_THE_BUS = (
    f"an Acme XLA card is on the PCI bus ({CARD}), but its driver is not loaded"
)
UNSET = "export {0}=0"
SLURMS = "request a device from Slurm: #SBATCH --gres={0}:1, or srun --gres={0}:1"
LIMITS = "request a device in the pod's spec, under resources.limits of the container"
ASK_POD = f"{LIMITS}; `kubectl describe node` lists the resource names"
NOT_GIVEN = "…; Slurm assigned no such device to job 4711"


def hidden(name):
    """What is said where this variable, set to nothing, hides all devices."""
    return f"{name}='' hides every device", UNSET.format(name), 0


def built(version, torch, needed, device_type, reason):
    """A torch of another build. No count: with such a torch a pin cannot be honoured."""
    backend = acme(
        vendor_import="torch",
        torch_integration={"builds": (needed,)},
        device_type=device_type,
    )
    said = (f"torch {version} is a {reason}", "pip install torch-acme", None)
    return Row(said, (NODE,), backend=backend, torch=(version, torch))


def suits(**torch):
    """A torch of which one build will do."""
    backend = acme(vendor_import="torch", torch_integration={"builds": ("xpu", "hip")})
    return Row(None, (NODE,), backend=backend, torch=("2.13.0", torch))


ROWS = {
    "its node is here": Row(None, (NODE,)),
    "none": Row((NONE, "", 0)),
    "none, without a name for people": Row(
        ("/dev/acme[0-9]*, PCI fade:0001 not found", "", 0), backend=acme(hardware={"name": ""})
    ),
    # The scheduler put the job where there is none, for nobody asked it for one.
    "none on this node of a Slurm cluster": Row(
        (NONE, f"if the cluster has an Acme XLA card, {SLURMS.format('card')}", 0), (),
        {"SLURM_JOB_ID": "4711"}, acme(request={"slurm": "card"}),
    ),
    "none in this pod": Row(
        (NONE, f"if the cluster has an Acme XLA card, {ASK_POD}", 0), (),
        {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
    ),
    "none for the torch that is here": Row(
        ("torch 2.13.0+xpu is an XPU build, and no Acme XLA card found", "", 0),
        backend=TORCH_OWN, torch=("2.13.0+xpu", {"xpu": "20250301"}),
    ),
    "another torch is no help where there is none": Row(
        (NONE, "", 0), backend=TORCH_OWN, torch=("2.13.0+cpu", {})
    ),
    # ------------------------------------------------------------ where the bus does not tell
    "no node in a container": Row(
        (
            "/dev/acme[0-9]* not found in this container",
            (
                "if the host has an Acme XLA card, start the container with access to the devices: "
                "docker run --device /dev/acme0"
            ), 0,
        ),
        (DOCKER, DRIVER), {}, acme(**UNKNOWN), None, True,
    ),
    "no node without a driver": Row(
        (
            f"{NO_NODE}, and the driver of an Acme XLA card is not loaded",
            "if this machine has an Acme XLA card, install Acme's driver", 0,
        ),
        (), {}, acme(**UNKNOWN), None, True,
    ),
    "no node with a driver": Row((NO_NODE, "", 0), (DRIVER,), {}, acme(**UNKNOWN), None, True),
    "no node, and nothing more is known": Row(
        (NO_NODE, "", 0), (DOCKER,), {},
        acme(hardware={"pci_ids": (), "driver_file": ""}, request={"docker": ""}), None, True,
    ),
    # ------------------------------------------------------------ torch's build
    "a CPU build": built("2.13.0+cpu", {}, "xpu", "acme", "CPU build, without XPU"),
    "a CUDA build": built("2.13.0", {"cuda": "13.0"}, "xpu", "acme", "CUDA build, without XPU"),
    "a CPU build for ROCm": built("2.13.0+cpu", {}, "hip", "cuda", "CPU build, without CUDA and ROCm"),
    "a CUDA build for ROCm": built("2.13.0", {"cuda": "13.0"}, "hip", "cuda", "CUDA build, without ROCm"),
    "a ROCm build for CUDA": built("2.13.0", {"hip": "7.0"}, "cuda", "cuda", "ROCm build, without CUDA"),
    "an XPU build": suits(xpu="1"),
    "a build for two": suits(cuda="13.0", xpu="1"),
    "the other of two": suits(hip="7.0"),
    # ------------------------------------------------------------ hidden
    **{
        f"hidden by {name}": Row(hidden(name), (NODE,), {name: ""})
        for name in ("ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES", "ACME_FILTER")
    },
    **{
        f"Slurm gave the job none: {value!r}": Row(
            (f"ACME_VISIBLE_DEVICES={value!r} hides every device{NOT_GIVEN}", SLURMS.format("gpu"), 0),
            (NODE,), {"ACME_VISIBLE_DEVICES": value, "SLURM_JOB_ID": "4711"}, SLURM,
        )
        for value in ("NoDevFiles", "")
    },
    "Slurm would not say": Row(
        hidden("ACME_VISIBLE_DEVICES"), (NODE,), {"ACME_VISIBLE_DEVICES": "", "SLURM_JOB_ID": "4711"}
    ),
    "Slurm gave some": Row(
        hidden("ACME_VISIBLE_DEVICES"), (NODE,),
        {"ACME_VISIBLE_DEVICES": "", "SLURM_JOB_ID": "4711", "SLURM_JOB_GPUS": "2"}, SLURM,
    ),
    "the first that is set counts": Row(
        None, (NODE,), {"ACME_VISIBLE_DEVICES": "0", "CARD_VISIBLE_DEVICES": ""}
    ),
    "each filter by itself": Row(
        ("ACME_FILTER='-1' hides every device: '-1' ends the list", "export ACME_FILTER=0", 0), (NODE,),
        {"ACME_VISIBLE_DEVICES": "0", "ACME_FILTER": "-1"},
    ),
    # It is the runtime's affair.
    "a value that cannot be understood": Row(None, (NODE,), {"ACME_VISIBLE_DEVICES": "all"}, INDICES),
    "no device is said before a hidden one": Row((NONE, "", 0), (), {"ACME_VISIBLE_DEVICES": ""}),
    # ------------------------------------------------------------ driver and container
    "not loaded": Row((ON_THE_BUS, "install Acme's driver", 0), (BUS,)),
    **{
        f"not loaded: {name}": Row(
            (f"{name} is on the PCI bus…", "install Acme's driver", 0), (BUS,), {},
            acme(hardware={"name": name.partition(" ")[2]}),
        )
        for name in ("an NVIDIA GPU", "an AMD GPU", "a TPU", "a Biren GPU", "an Intel GPU", "an MTT GPU")
    },
    # What brings the devices into each container is told in tests/machine/test_placement.py.
    "a container": Row(
        (
            f"the host has an Acme XLA card ({CARD}), but this Podman container has no {OURS}",
            "start the container with access to the devices: podman run --device /dev/acme0", 0,
        ),
        (BUS, DRIVER, PODMAN),
    ),
    "a node that may be its own": Row(None, (BUS, DOCKER, SHARED)),
    "a driver that has not made its nodes yet": Row(None, (BUS, DRIVER)),
    "nothing is said without a word for it": Row(None, (BUS, DOCKER), {}, acme(**SILENT)),
}  # fmt: skip


@pytest.mark.parametrize("what", ROWS)
def test_files_and_variables_of_a_machine_rule_a_backend_out_or_not(
    machine, monkeypatch, what
):
    row = ROWS[what]
    for sign in row.files:
        machine.sign(sign)
    for name, value in row.environ.items():
        monkeypatch.setenv(name, value)
    if row.torch:
        machine.torch(row.torch[0], **row.torch[1])
    ruled_out, absence = machine.examine(row.backend)
    if row.said is None:
        assert ruled_out is None
        assert absence is None
        return
    outcome = absence if row.doubt else ruled_out
    assert (ruled_out is None) is row.doubt
    assert outcome.status is Status.NO_DEVICE
    begin, _, end = row.said[0].partition("…")
    assert outcome.reason == row.said[0] or (
        "…" in row.said[0] and outcome.reason.startswith(begin)
    )
    assert outcome.reason.endswith(end)
    assert (outcome.hint, outcome.devices) == row.said[1:]


def test_a_pin_forgives_a_missing_device_and_asks_on(machine):
    outcome, absence = machine.examine(pinned=True)
    assert outcome is None
    assert absence.reason == NONE
    machine.torch("2.13.0+cpu")
    outcome, absence = machine.examine(TORCH_OWN, pinned=True)
    assert outcome.reason == (
        "no Acme XLA card found; and torch 2.13.0+cpu is a CPU build, without XPU"
    )
    assert outcome.hint.startswith(
        "run on a machine that has an Acme XLA card; or, on a login node or in an image build: "
    )
    assert absence is not None


def test_the_evidence_is_the_verdicts(machine):
    """Strict choice refuses the CPU over it: the device is here."""
    machine.sign(BUS)
    assert str(evidence(ACME, machine.path)) == CARD


class TestNamespace:
    @pytest.fixture(autouse=True)
    def torch(self, machine):
        machine.torch("2.13.0", xpu="1")
        machine.sign(NODE)

    def taken(self, monkeypatch, module, **namespace):
        """`torch.acme`, of whose functions `is_available` comes from `module`."""
        own = ModuleType("torch.acme")
        code = "def is_available(): return True"
        exec(code, given := {"__name__": module})
        own.is_available = given["is_available"]
        vars(own).update(namespace)
        torch = SimpleNamespace(
            acme=own, version=SimpleNamespace(__version__="2.13.0", xpu="1")
        )
        monkeypatch.setitem(sys.modules, "torch", torch)

    def aside(self, machine, backend, by):
        outcome, _ = machine.examine(backend)
        assert outcome.status is Status.DEFERRED
        assert outcome.reason == f"torch.acme is overridden by {by}"
        assert (
            outcome.hint == f"choose the backend of {by}'s vendor, or do not load {by}"
        )

    def test_another_packages_functions_or_module(self, machine, monkeypatch):
        self.taken(monkeypatch, "torch_other.patch")
        self.aside(machine, TORCH_OWN, "torch_other.patch")
        self.taken(monkeypatch, "torch.acme", __name__="torch_other.device")
        self.aside(machine, TORCH_OWN, "torch_other.device")

    @pytest.mark.parametrize("module", ["torch.acme", "friendly.wrapper"])
    def test_torch_itself_and_a_package_with_the_same_device_behind(
        self, machine, monkeypatch, module
    ):
        backend = acme(
            vendor_import="torch",
            torch_integration={"builds": ("xpu",), "wrapped_by": ("friendly",)},
        )
        self.taken(monkeypatch, module)
        assert machine.examine(backend) == (None, None)
        self.taken(monkeypatch, "torch.acme", __name__=module)
        assert machine.examine(backend) == (None, None)

    @pytest.mark.parametrize("own", [TORCH_OWN, ACME], ids=["torch", "a vendor"])
    def test_a_package_that_takes_it_over_below_python(self, machine, monkeypatch, own):
        """Every function is the namespace's own, and behind them is another maker's device."""
        self.taken(monkeypatch, "torch.acme")
        backend = replace(
            own,
            torch_integration=replace(
                own.torch_integration, taken_over_by=("torch_deep",)
            ),
        )
        assert machine.examine(backend) == (None, None)
        monkeypatch.setitem(sys.modules, "torch_deep", ModuleType("torch_deep"))
        self.aside(machine, backend, "torch_deep")
        assert machine.examine(own) == (None, None)

    def test_a_vendors_own_namespace_is_his(self, machine, monkeypatch):
        self.taken(monkeypatch, "torch_acme.device")
        assert machine.examine() == (None, None)


def test_a_device_that_runs_is_not_argued_with(machine, monkeypatch):
    """Neither files nor variables tell what is so once the runtime has started; torch's build still does."""
    monkeypatch.setenv("ACME_FILTER", "")
    running = SimpleNamespace(is_initialized=lambda: True)
    version = SimpleNamespace(__version__="2.13.0+cpu", cuda=None, hip=None, xpu=None)
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(acme=running, version=version)
    )
    assert machine.examine() == (None, None)
    outcome, _ = machine.examine(acme(torch_integration={"builds": ("xpu",)}))
    assert outcome.reason.endswith("is a CPU build, without XPU")
