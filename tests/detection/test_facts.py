"""What is told of a device before anything is imported, by fields that no plugin here needs to have.

The backend is nobody's, its machine is a tree of files on disk.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from accel_core.backend import Backend, Granted, Hardware, Provenance, Visibility
from accel_core.detection import Candidate, Outcome, Status
from accel_core.detection.probe import Case, examine
from accel_core.machine.devices import evidence
from accel_core.settings import Settings

ACME = Backend(
    name="acme",
    priority=350,
    device_type="acme",
    vendor_import="json",
    hardware=Hardware(
        name="Acme XLA card",
        nodes=("/dev/acme[0-9]*",),
        shared_nodes=("/dev/accel/accel[0-9]*",),
        pci_ids=("fade:0001",),
        driver_file="/sys/module/acme",
        driver_step="install Acme's driver",
    ),
    granted=Granted(docker="--device /dev/acme0"),
    install_hint="pip install torch-acme",
    visibility=Visibility(
        variables=("ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES"), filters=("ACME_FILTER",), grammar="cuda"
    ),
    provenance=Provenance("accel-acme", "1.0", "acme", "accel_acme"),
)
#: What comes with torch itself.
TORCH_OWN = replace(ACME, vendor_import="torch", in_torch=ACME.in_torch._replace(builds=("xpu",)))
CARD = "PCI fade:0001 at 0000:00:04.0"

#: What rules a backend out, and what speaks against its device alone.
Ruling = tuple[Outcome | None, Outcome | None]


class Machine:
    """A machine as a tree of files."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._monkeypatch = root, monkeypatch

    def file(self, path: str, text: str = "") -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def card(self) -> None:
        """A card on the bus."""
        self.file(
            "/sys/bus/pci/devices/0000:00:04.0/modalias",
            "pci:v0000FADEd00000001sv0000FADEsd00000001bc12sc00i00\n",
        )

    def torch(self, version: str, **builds: str) -> None:
        """An installed torch, which must not be imported."""
        kinds = "".join(f"{name} = {builds.get(name)!r}\n" for name in ("cuda", "hip", "xpu"))
        self.file("/site/torch/__init__.py", "raise SystemExit('torch was imported')")
        self.file("/site/torch/version.py", f"__version__ = {version!r}\n{kinds}")
        self._monkeypatch.syspath_prepend(str(self.root / "site"))

    def examine(
        self, backend: Backend = ACME, *, pinned: bool = False
    ) -> tuple[Outcome | None, Outcome | None]:
        root = str(self.root)
        found = evidence(backend, root)
        return examine(Case(Candidate(backend, ModuleType("p")), Settings(), found, pinned, root))

    def doubts(self, backend: Backend) -> tuple[str, str, int | None]:
        """Reason, hint and count of what speaks against the device, while nothing rules the backend out."""
        ruled_out, absence = self.examine(backend)
        assert ruled_out is None
        assert absence is not None
        assert absence.status is Status.NO_DEVICE
        return absence.reason, absence.hint, absence.devices

    def said(self, backend: Backend = ACME) -> tuple[str, str, int | None]:
        """Reason, hint and count of what rules the backend out."""
        outcome, _ = self.examine(backend)
        assert outcome is not None
        assert outcome.status is Status.NO_DEVICE
        return outcome.reason, outcome.hint, outcome.devices


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr("accel_core.machine.on_linux", lambda: True)
    for name in ("ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES", "ACME_FILTER"):
        monkeypatch.delenv(name, raising=False)
    return Machine(tmp_path, monkeypatch)


def test_nothing_stands_against_a_device_with_its_node(machine):
    machine.file("/dev/acme0")
    assert machine.examine() == (None, None)


class TestHardware:
    def test_none(self, machine):
        reason = "this machine has no Acme XLA card (none of /dev/acme[0-9]*, PCI fade:0001)"
        assert machine.said() == (reason, "", 0)

    def test_without_a_name_for_people(self, machine):
        reason = "this machine has none of /dev/acme[0-9]*, PCI fade:0001"
        assert machine.said(replace(ACME, hardware=ACME.hardware._replace(name=""))) == (reason, "", 0)

    def test_none_on_this_node_of_a_cluster(self, machine, monkeypatch):
        """The scheduler put the job where there is none, for nobody asked it for one."""
        monkeypatch.setenv("SLURM_JOB_ID", "4711")
        reason, hint, _ = machine.said(replace(ACME, granted=ACME.granted._replace(slurm="card")))
        assert reason.startswith("this machine has no Acme XLA card")
        assert hint == (
            "if the cluster has an Acme XLA card, "
            "ask Slurm for it: #SBATCH --gres=card:1, or srun --gres=card:1"
        )
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        monkeypatch.delenv("SLURM_JOB_ID")
        assert machine.said()[1] == (
            "if the cluster has an Acme XLA card, ask for it under the container's resources.limits in the "
            "pod's spec; `kubectl describe node` lists the names"
        )

    def test_none_for_the_torch_that_is_here(self, machine):
        machine.torch("2.13.0+xpu", xpu="20250301")
        reason = "torch 2.13.0+xpu is an XPU build, and this machine has no Acme XLA card"
        assert machine.said(TORCH_OWN) == (reason, "", 0)

    def test_another_torch_is_no_help_where_there_is_none(self, machine):
        machine.torch("2.13.0+cpu")
        assert machine.said(TORCH_OWN)[0].startswith("this machine has no Acme XLA card (none of ")

    def test_a_pin_forgives_it_and_asks_on(self, machine):
        outcome, absence = machine.examine(pinned=True)
        assert outcome is None
        assert absence is not None
        assert absence.reason.startswith("this machine has no Acme XLA card")
        machine.torch("2.13.0+cpu")
        outcome, absence = machine.examine(TORCH_OWN, pinned=True)
        assert outcome is not None
        assert outcome.reason == (
            "this machine has no Acme XLA card; and torch 2.13.0+cpu is a CPU build, without XPU"
        )
        assert outcome.hint.startswith("run on a machine that has one; for a login node or an image: ")
        assert absence is not None


class TestWhereTheBusDoesNotTell:
    """No PCI id is known of some vendors' cards: a missing node means one of three, and decides nothing."""

    UNKNOWN = replace(ACME, hardware=ACME.hardware._replace(pci_ids=()))

    def test_in_a_container(self, machine):
        machine.file("/.dockerenv")
        machine.file("/sys/module/acme/refcnt")
        assert machine.doubts(self.UNKNOWN) == (
            "this container has none of /dev/acme[0-9]*",
            "if the host has an Acme XLA card, start it with its devices: docker run --device /dev/acme0",
            0,
        )

    def test_without_a_driver(self, machine):
        assert machine.doubts(self.UNKNOWN) == (
            "this machine has none of /dev/acme[0-9]*, and the driver of an Acme XLA card is not loaded",
            "if it has an Acme XLA card, install Acme's driver",
            0,
        )

    def test_with_a_driver(self, machine):
        machine.file("/sys/module/acme/refcnt")
        assert machine.doubts(self.UNKNOWN) == ("this machine has none of /dev/acme[0-9]*", "", 0)

    def test_nothing_more_is_known(self, machine):
        machine.file("/.dockerenv")
        bare = replace(
            self.UNKNOWN,
            hardware=self.UNKNOWN.hardware._replace(driver_file=""),
            granted=self.UNKNOWN.granted._replace(docker=""),
        )
        assert machine.doubts(bare) == ("this machine has none of /dev/acme[0-9]*", "", 0)


class TestTorchBuilds:
    @pytest.fixture(autouse=True)
    def card(self, machine):
        machine.file("/dev/acme0")

    @pytest.mark.parametrize(
        ("version", "builds", "needed", "device_type", "reason"),
        [
            ("2.13.0+cpu", {}, ("xpu",), "acme", "torch 2.13.0+cpu is a CPU build, without XPU"),
            ("2.13.0", {"cuda": "13.0"}, ("xpu",), "acme", "torch 2.13.0 is a CUDA build, without XPU"),
            ("2.13.0+cpu", {}, ("hip",), "cuda", "torch 2.13.0+cpu is a CPU build, without CUDA and ROCm"),
            ("2.13.0", {"cuda": "13.0"}, ("hip",), "cuda", "torch 2.13.0 is a CUDA build, without ROCm"),
            ("2.13.0", {"hip": "7.0"}, ("cuda",), "cuda", "torch 2.13.0 is a ROCm build, without CUDA"),
        ],
    )
    def test_another_build(self, machine, version, builds, needed, device_type, reason):
        machine.torch(version, **builds)
        backend = replace(
            TORCH_OWN, in_torch=TORCH_OWN.in_torch._replace(builds=needed), device_type=device_type
        )
        # No count: with such a torch a pin cannot be honoured.
        assert machine.said(backend) == (reason, "pip install torch-acme", None)

    @pytest.mark.parametrize("builds", [{"xpu": "1"}, {"cuda": "13.0", "xpu": "1"}, {"hip": "7.0"}])
    def test_any_of_them_will_do(self, machine, builds):
        machine.torch("2.13.0", **builds)
        assert machine.examine(
            replace(TORCH_OWN, in_torch=TORCH_OWN.in_torch._replace(builds=("xpu", "hip")))
        ) == (None, None)


class TestNamespace:
    def taken(self, monkeypatch, module: str, **namespace: object) -> None:
        """`torch.acme`, of whose functions `is_available` comes from `module`."""
        own = ModuleType("torch.acme")
        code = "def is_available(): return True"
        exec(code, given := {"__name__": module})
        own.is_available = given["is_available"]  # type: ignore[attr-defined]
        vars(own).update(namespace)
        torch = SimpleNamespace(acme=own, version=SimpleNamespace(__version__="2.13.0", xpu="1"))
        monkeypatch.setitem(sys.modules, "torch", torch)

    def test_another_packages_functions(self, machine, monkeypatch):
        machine.torch("2.13.0", xpu="1")
        self.taken(monkeypatch, "torch_other.patch")
        outcome, _ = machine.examine(TORCH_OWN)
        assert outcome is not None
        assert outcome.status is Status.STANDS_ASIDE
        assert outcome.reason == "torch.acme is impersonated by torch_other.patch"
        assert outcome.hint == "choose that vendor's own backend, or do not load torch_other.patch"

    def test_another_packages_module(self, machine, monkeypatch):
        machine.torch("2.13.0", xpu="1")
        self.taken(monkeypatch, "torch.acme", __name__="torch_other.device")
        assert machine.examine(TORCH_OWN)[0].reason == "torch.acme is impersonated by torch_other.device"

    @pytest.mark.parametrize("module", ["torch.acme", "friendly.wrapper"])
    def test_torch_itself_and_a_package_with_the_same_device_behind(self, machine, monkeypatch, module):
        machine.torch("2.13.0", xpu="1")
        machine.file("/dev/acme0")
        self.taken(monkeypatch, module)
        assert machine.examine(
            replace(TORCH_OWN, in_torch=TORCH_OWN.in_torch._replace(wrapped_by=("friendly",)))
        ) == (None, None)
        self.taken(monkeypatch, "torch.acme", __name__=module)
        assert machine.examine(
            replace(TORCH_OWN, in_torch=TORCH_OWN.in_torch._replace(wrapped_by=("friendly",)))
        ) == (None, None)

    @pytest.mark.parametrize("own", [TORCH_OWN, ACME], ids=["torch", "a vendor"])
    def test_a_package_that_takes_it_over_below_python(self, machine, monkeypatch, own):
        """Every function is the namespace's own, and behind them is another maker's device."""
        machine.torch("2.13.0", xpu="1")
        machine.file("/dev/acme0")
        self.taken(monkeypatch, "torch.acme")
        backend = replace(own, in_torch=own.in_torch._replace(taken_over_by=("torch_deep",)))
        assert machine.examine(backend) == (None, None)
        monkeypatch.setitem(sys.modules, "torch_deep", ModuleType("torch_deep"))
        outcome, _ = machine.examine(backend)
        assert outcome is not None
        assert outcome.status is Status.STANDS_ASIDE
        assert outcome.reason == "torch.acme is impersonated by torch_deep"
        assert outcome.hint == "choose that vendor's own backend, or do not load torch_deep"
        assert machine.examine(own) == (None, None)

    def test_a_vendors_own_namespace_is_his(self, machine, monkeypatch):
        machine.file("/dev/acme0")
        self.taken(monkeypatch, "torch_acme.device")
        assert machine.examine() == (None, None)


class TestHidden:
    @pytest.fixture(autouse=True)
    def card(self, machine):
        machine.file("/dev/acme0")

    @pytest.mark.parametrize("name", ["ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES", "ACME_FILTER"])
    def test_before_the_vendor_is_imported(self, machine, monkeypatch, name):
        monkeypatch.setenv(name, "")
        assert machine.said() == (
            f"{name}='' hides every device",
            f"unset {name}, or set it to the devices to use",
            0,
        )

    @pytest.mark.parametrize("value", ["NoDevFiles", ""])
    def test_by_slurm_which_gave_the_job_none(self, machine, monkeypatch, value):
        monkeypatch.setenv("ACME_VISIBLE_DEVICES", value)
        monkeypatch.setenv("SLURM_JOB_ID", "4711")
        backend = replace(ACME, granted=ACME.granted._replace(slurm="gpu"))
        reason, hint, _ = machine.said(backend)
        assert reason.startswith(f"ACME_VISIBLE_DEVICES={value!r} hides every device")
        assert reason.endswith("; Slurm gave the job 4711 none")
        assert hint == "ask Slurm for it: #SBATCH --gres=gpu:1, or srun --gres=gpu:1"
        # Slurm gave some, or would not say: then it is the variable.
        assert machine.said()[1] == "unset ACME_VISIBLE_DEVICES, or set it to the devices to use"
        monkeypatch.setenv("SLURM_JOB_GPUS", "2")
        assert machine.said(backend)[1] == "unset ACME_VISIBLE_DEVICES, or set it to the devices to use"

    def test_the_first_that_is_set_counts_and_each_filter_by_itself(self, machine, monkeypatch):
        monkeypatch.setenv("ACME_VISIBLE_DEVICES", "0")
        monkeypatch.setenv("CARD_VISIBLE_DEVICES", "")
        assert machine.examine() == (None, None)
        monkeypatch.setenv("ACME_FILTER", "-1")
        assert machine.said()[0] == "ACME_FILTER='-1' hides every device: '-1' ends the list"

    def test_a_value_that_cannot_be_understood_is_the_runtimes_affair(self, machine, monkeypatch):
        monkeypatch.setenv("ACME_VISIBLE_DEVICES", "all")
        assert machine.examine(replace(ACME, visibility=ACME.visibility._replace(grammar="indices"))) == (
            None,
            None,
        )

    def test_no_device_is_said_before_a_hidden_one(self, machine, monkeypatch):
        monkeypatch.setenv("ACME_VISIBLE_DEVICES", "")
        (machine.root / "dev/acme0").unlink()
        assert machine.said()[0].startswith("this machine has no Acme XLA card")


class TestDriver:
    @pytest.fixture(autouse=True)
    def card(self, machine):
        machine.card()

    def test_not_loaded(self, machine):
        reason = f"an Acme XLA card is on the bus ({CARD}), but its driver is not loaded"
        assert machine.said() == (reason, "install Acme's driver", 0)

    @pytest.mark.parametrize("name", ["an NVIDIA GPU", "an AMD GPU", "a TPU", "a Biren GPU", "an Intel GPU"])
    def test_a_name_has_its_article(self, machine, name):
        card = replace(ACME, hardware=ACME.hardware._replace(name=name.partition(" ")[2]))
        assert machine.said(card)[0].startswith(f"{name} is on the bus")

    @pytest.mark.parametrize(
        ("mark", "variable", "name", "step"),
        [
            (
                "/.dockerenv", "", "this container",
                "start it with its devices: docker run --device /dev/acme0",
            ),
            (
                "/run/.containerenv", "", "this Podman container",
                "start it with its devices: podman run --device /dev/acme0",
            ),
            (
                "", "KUBERNETES_SERVICE_HOST", "this Kubernetes pod",
                "ask for it in the pod's spec, under the container: resources: {limits: {acme.com/card: 1}}",
            ),
            (
                "", "APPTAINER_CONTAINER", "this Apptainer container",
                "start it with the host's devices: apptainer exec --bind /dev/acme0",
            ),
        ],
    )  # fmt: skip
    def test_a_container_without_its_devices(self, machine, monkeypatch, mark, variable, name, step):
        machine.file("/sys/module/acme/refcnt")
        if mark:
            machine.file(mark)
        if variable:
            monkeypatch.setenv(variable, "there")
        reason, hint, devices = machine.said(
            replace(ACME, granted=ACME.granted._replace(kubernetes="acme.com/card"))
        )
        assert reason == (
            f"the host has an Acme XLA card ({CARD}), "
            f"but {name} has no /dev/acme[0-9]* or /dev/accel/accel[0-9]*"
        )
        assert (hint, devices) == (step, 0)

    def test_a_node_that_may_be_its_own(self, machine):
        machine.file("/.dockerenv")
        machine.file("/dev/accel/accel0")
        assert machine.examine() == (None, None)

    def test_a_driver_that_has_not_made_its_nodes_yet(self, machine):
        machine.file("/sys/module/acme/refcnt")
        assert machine.examine() == (None, None)

    def test_nothing_is_said_without_a_word_for_it(self, machine):
        machine.file("/.dockerenv")
        assert machine.examine(
            replace(
                ACME,
                hardware=ACME.hardware._replace(driver_file=""),
                granted=ACME.granted._replace(docker=""),
            )
        ) == (None, None)

    def test_the_evidence_is_the_verdicts(self, machine, monkeypatch):
        """Strict choice refuses the CPU over it: the device is here."""
        assert str(evidence(ACME, str(machine.root))) == CARD


def test_a_device_that_runs_is_not_argued_with(machine, monkeypatch):
    """Neither files nor variables tell what is so once the runtime has started; torch's build still does."""
    monkeypatch.setenv("ACME_FILTER", "")
    running = SimpleNamespace(is_initialized=lambda: True)
    version = SimpleNamespace(__version__="2.13.0+cpu", cuda=None, hip=None, xpu=None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(acme=running, version=version))
    assert machine.examine() == (None, None)
    assert machine.said(replace(ACME, in_torch=ACME.in_torch._replace(builds=("xpu",))))[0].endswith(
        "is a CPU build, without XPU"
    )
