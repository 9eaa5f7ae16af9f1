"""What each plugin's declaration tells of a device that cannot be used, on trees built on disk."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from accel_contracts.plugins import PLUGINS, declared

from accel_core import Backend, Provenance, evidence
from accel_core.detection import Candidate, Outcome, probe

EVERY = [backend for plugin in PLUGINS for backend in declared(plugin)]
ON_THE_BUS = [b for b in EVERY if b.hardware.pci_ids]
NODES_ONLY = [b for b in EVERY if b.hardware.nodes and not b.hardware.pci_ids]


def each(backends):
    return pytest.mark.parametrize("backend", backends, ids=[f"{b.name}-{b.priority}" for b in backends])


@pytest.fixture(autouse=True)
def _anything_is_installed(monkeypatch):
    """A machine with every vendor's package and build, and no variable: the hardware alone tells."""
    monkeypatch.setattr(probe.device, "installed_imports", lambda backend: list(backend.vendor_imports))
    monkeypatch.setattr(probe, "torch_build", lambda: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for backend in EVERY:
        for name in (*backend.visibility.variables, *backend.visibility.filters):
            monkeypatch.delenv(name, raising=False)


def examine(backend: Backend, root: Path) -> tuple[Outcome | None, Outcome | None]:
    named = replace(
        backend,
        provenance=Provenance("d", "1", "e", "m"),
        requires=(),
        in_torch=backend.in_torch._replace(same_version=()),
    )
    seen = evidence(named, str(root))
    return probe.examine(probe.Case(Candidate(named, None), probe.Settings(), seen, root=str(root)))


def reason(backend: Backend, root: Path) -> tuple[str, str]:
    """Why the backend is ruled out."""
    outcome, _ = examine(backend, root)
    return (outcome.reason, outcome.hint) if outcome else ("", "")


def doubt(backend: Backend, root: Path) -> tuple[str, str]:
    """What speaks against its device, while the vendor's count decides."""
    ruled_out, absence = examine(backend, root)
    assert ruled_out is None
    assert absence is not None
    return absence.reason, absence.hint


def write(root: Path, path: str, text: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def card(root: Path, backend: Backend) -> None:
    """A device of the backend's on the bus."""
    ids, _, kind = backend.hardware.pci_ids[0].partition("/")
    vendor, _, device = ids.upper().partition(":")
    text = f"pci:v0000{vendor}d0000{device or '1020'}sv00000000sd00000000bc{kind or '12'}sc00i00\n"
    write(root, "/sys/bus/pci/devices/0000:00:04.0/modalias", text)


def a_node(pattern: str) -> str:
    return pattern.replace("[0-9]*", "0")


def test_every_device_has_a_name_for_people():
    assert [b.name for b in EVERY if not b.hardware.name] == []


@each(ON_THE_BUS)
def test_no_device(tmp_path, backend):
    assert reason(backend, tmp_path)[0].startswith(f"this machine has no {backend.hardware.name} (none of ")


@each(ON_THE_BUS)
@pytest.mark.parametrize("shared", [False, True])
def test_a_device_with_its_node(tmp_path, backend, shared):
    own, others = backend.hardware.nodes, backend.hardware.shared_nodes
    card(tmp_path, backend)
    for node in ((others or own) if shared else (own or others))[:1]:
        write(tmp_path, a_node(node))
    write(tmp_path, "/.dockerenv")
    assert reason(backend, tmp_path) == ("", "")


@each([b for b in ON_THE_BUS if b.hardware.driver_file])
def test_the_driver_is_not_loaded(tmp_path, backend):
    card(tmp_path, backend)
    write(tmp_path, "/.dockerenv")  # whose host lacks it
    told, hint = reason(backend, tmp_path)
    assert f" {backend.hardware.name} is on the bus (PCI " in told
    assert told.endswith(", but its driver is not loaded")
    assert hint == backend.hardware.driver_step


@each([b for b in ON_THE_BUS if b.granted.docker])
def test_a_container_without_its_devices(tmp_path, backend):
    card(tmp_path, backend)
    write(tmp_path, "/.dockerenv")
    if backend.hardware.driver_file:
        write(tmp_path, backend.hardware.driver_file)
    told, hint = reason(backend, tmp_path)
    assert told.startswith("the host has ")
    assert f"but this container has no {(backend.hardware.nodes or backend.hardware.shared_nodes)[0]}" in told
    assert hint == f"start it with its devices: docker run {backend.granted.docker}"


@each([b for b in ON_THE_BUS if b.granted.docker])
def test_a_pod_without_its_devices(tmp_path, backend):
    card(tmp_path, backend)
    write(tmp_path, "/var/run/secrets/kubernetes.io/serviceaccount/token")
    if backend.hardware.driver_file:
        write(tmp_path, backend.hardware.driver_file)
    told, hint = reason(backend, tmp_path)
    assert "but this Kubernetes pod has no " in told
    resource = backend.granted.kubernetes
    assert (f"{{limits: {{{resource}: 1}}}}" if resource else "`kubectl describe node`") in hint


@each(NODES_ONLY)
def test_a_container_where_the_bus_does_not_tell(tmp_path, backend):
    write(tmp_path, "/.dockerenv")
    told, hint = doubt(backend, tmp_path)
    assert told == f"this container has none of {backend.hardware.nodes[0]}"
    assert backend.granted.docker in hint


@each([b for b in NODES_ONLY if b.hardware.driver_file])
def test_a_driver_where_the_bus_does_not_tell(tmp_path, backend):
    told, hint = doubt(backend, tmp_path)
    assert told == (
        f"this machine has none of {backend.hardware.nodes[0]}, "
        f"and the driver of a {backend.hardware.name} is not loaded"
    )
    assert backend.hardware.driver_step in hint
    write(tmp_path, backend.hardware.driver_file)
    assert doubt(backend, tmp_path) == (f"this machine has none of {backend.hardware.nodes[0]}", "")
