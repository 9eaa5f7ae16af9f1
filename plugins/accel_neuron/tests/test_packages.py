"""Three packages are called torch-neuronx: PyPI's placeholder, AWS's for PyTorch/XLA, and TorchNeuron.

Each is installed here as metadata on disk, and asked in a child process, as `accel why neuron` does.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

import accel_neuron
from accel_core import Backend, BackendUnavailableError
from accel_neuron import BACKEND, checks, package

PLACEHOLDER = (
    'raise ImportError("WRONG PACKAGE. Please install the package from Neuron '
    'Repository - pip.repos.neuron.amazonaws.com")'
)
#: The code of torch_neuronx/__init__.py, the version, and words of the verdict on it.
PACKAGES = {
    "PyPI's placeholder": (PLACEHOLDER, "1.0", "is PyPI's placeholder, which does not support any device"),
    "AWS's for PyTorch/XLA": (
        "", "2.9.0.2.15", "is AWS's package for PyTorch/XLA, which adds the device xla",
    ),
    "a closed beta": ("", "2.11.3.0.1278", "is older than 2.13.3, AWS's first public TorchNeuron"),
}  # fmt: skip


def install(folder, version, code=""):
    """Put a torch_neuronx of that version into a folder for `sys.path`."""
    top = folder / "torch_neuronx"
    top.mkdir()
    (top / "__init__.py").write_text(code)
    metadata = folder / f"torch_neuronx-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch-neuronx\nVersion: {version}\n"
    )
    return folder


def why(folder):
    """The record that `accel why neuron --json` prints with that folder first on `sys.path`."""
    environ = {**os.environ, "DS_ACCELERATOR": "neuron"}
    path = [str(folder), environ.get("PYTHONPATH", "")]
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    command = [sys.executable, "-m", "accel_core", "why", "neuron", "--json"]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(find_spec("torch") is None, reason="the verdict is on a torch")
@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_has_its_own_verdict(name, tmp_path):
    code, version, words = PACKAGES[name]
    verdict = json.dumps(why(install(tmp_path, version, code)))
    assert f"torch-neuronx {version} {words}" in verdict
    assert "accel setup neuron" in verdict


def installed(monkeypatch, tmp_path, version):
    monkeypatch.syspath_prepend(str(install(tmp_path, version)))


def test_torchneuron_for_the_torch_that_is_installed_is_right(monkeypatch, tmp_path):
    installed(monkeypatch, tmp_path, "2.13.3.0.5")
    monkeypatch.setattr(
        package, "torch_build", lambda: SimpleNamespace(version="2.13.0+cpu")
    )
    assert package.find_package_problem() is None
    assert accel_neuron.accel_probe(BACKEND) is None
    assert checks.check_package().what == "torch-neuronx 2.13.3.0.5 is TorchNeuron"


def test_torchneuron_for_another_torch_names_both(monkeypatch, tmp_path):
    """AWS's release notes: install the family that matches the PyTorch version."""
    installed(monkeypatch, tmp_path, "2.14.3.0.5")
    monkeypatch.setattr(
        package, "torch_build", lambda: SimpleNamespace(version="2.13.0+cpu")
    )
    fault = package.find_package_problem()
    assert fault.reason == (
        "torch-neuronx 2.14.3.0.5 is for torch 2.14, but torch 2.13.0+cpu is installed"
    )
    assert fault.step == "accel setup neuron"
    with pytest.raises(BackendUnavailableError, match=r"is for torch 2\.14"):
        accel_neuron.accel_probe(BACKEND)


def test_without_torch_neuronx_there_is_no_fault():
    assert package.torch_neuronx_version() is None
    assert package.find_package_problem() is None
    assert checks.check_package().level == "ok"


def test_the_doctor_finds_a_wrong_package(monkeypatch, tmp_path):
    installed(monkeypatch, tmp_path, "1.0")
    found = checks.check_package()
    assert found.level == "error"
    assert found.facts == {"torch-neuronx": "1.0"}
    assert found.step == "accel setup neuron"


def bus(monkeypatch, *ids):
    """Have the PCI bus show devices with these ids alone."""

    def evidence(backend):
        return ", ".join(each for each in ids if each in backend.hardware.pci_ids)

    monkeypatch.setattr(package, "evidence", evidence)


@pytest.mark.parametrize("older", ["1d0f:7164", "1d0f:7264", "1d0f:7064"])
def test_an_older_device_is_not_torchneurons(monkeypatch, older):
    bus(monkeypatch, older)
    answer = accel_neuron.accel_probe(BACKEND)
    assert not answer.usable
    assert answer.reason == (
        f"this machine has Trainium1 or Inferentia ({older}), but TorchNeuron supports "
        "only Trainium2 and Trainium3"
    )
    assert answer.hint == "use a Trn2 or Trn3 instance"
    assert checks.check_generation().level == "error"


@pytest.mark.parametrize("ids", [(), ("1d0f:7364",), ("1d0f:7364", "1d0f:7164")])
def test_trainium2_and_a_bus_that_shows_nothing_are_left_to_the_probe(monkeypatch, ids):
    bus(monkeypatch, *ids)
    assert package.find_unsupported_device() is None
    assert checks.check_generation().level == "ok"


@pytest.mark.parametrize(
    ("visible", "number", "level"),
    [("0-3", "", "ok"), ("", "4", "ok"), ("", "", "ok"), ("0-3", "4", "warning")],
)
def test_two_variables_that_choose_cores(monkeypatch, visible, number, level):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", visible)
    monkeypatch.setenv("NEURON_RT_NUM_CORES", number)
    found = checks.check_core_variables()
    assert found.level == level
    assert found.step == ("unset NEURON_RT_NUM_CORES" if level == "warning" else "")


def test_other_backends_are_not_its_own():
    acme = Backend(name="acme", priority=1, device_type="acme")
    assert accel_neuron.accel_probe(acme) is None
    assert accel_neuron.accel_checks(acme) == []
    assert accel_neuron.accel_checks(BACKEND) == checks.CHECKS
