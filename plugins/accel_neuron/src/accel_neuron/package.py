"""Find out which of the three packages called torch-neuronx is installed, and whether
the machine has a device that TorchNeuron supports.

Only metadata and `/sys` are read.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata

from accel_core import Evidence, evidence, torch_build
from accel_neuron import BACKEND

__all__ = ["Fault", "older_generation", "package_fault", "torch_neuronx_version"]

_DISTRIBUTION = "torch-neuronx"
#: PyPI's only release, 1.0 of 2022, raises `ImportError("WRONG PACKAGE. …")`.
_FIRST_OF_AWS = (1, 1)
#: AWS's documentation, archive/frameworks/torch: PyTorch 2.9 is the last release for
#: PyTorch/XLA.
_FIRST_AFTER_XLA = (2, 10)
#: AWS's documentation, release-notes/components/torchneuron: 2.13.3.0 of 2026-10-19 is
#: the first public TorchNeuron.
_FIRST_PUBLIC = (2, 13, 3)
#: aws-neuron-driver 2.24.7.0, neuron_device.h: Trainium1, Inferentia2, Inferentia.
_OLDER = ("1d0f:7164", "1d0f:7264", "1d0f:7064", "1d0f:7065", "1d0f:7066", "1d0f:7067")


@dataclass(frozen=True)
class Fault:
    """Why the backend cannot be used, as a clause, and the user's next step."""

    reason: str
    step: str


def torch_neuronx_version() -> str | None:
    """Return the installed version of torch-neuronx; `None` if it has no metadata."""
    for found in metadata.distributions(name=_DISTRIBUTION):
        # A folder without metadata raises importlib_metadata's own error.
        with suppress(Exception):
            if found.version:
                return found.version
    return None


def package_fault() -> Fault | None:
    """Return why the installed torch-neuronx does not provide the device `neuron`;
    `None` if it does, or if it is not installed.
    """
    installed = torch_neuronx_version()
    if installed is None:
        return None
    release = _numbers(installed)
    step = "accel setup neuron"
    package = f"{_DISTRIBUTION} {installed}"
    if release < _FIRST_OF_AWS:
        return Fault(f"{package} is PyPI's placeholder, which contains no device", step)
    if release < _FIRST_AFTER_XLA:
        return Fault(
            f"{package} is AWS's package for PyTorch/XLA, whose device is xla; the "
            "device neuron needs TorchNeuron, torch-neuronx 2.13.3 or newer",
            step,
        )
    if release < _FIRST_PUBLIC:
        return Fault(
            f"{package} is older than 2.13.3, AWS's first public TorchNeuron", step
        )
    return _other_torch(package, release, step)


def _other_torch(package: str, release: tuple[int, ...], step: str) -> Fault | None:
    """Return a fault if the package was built for another minor release of torch. AWS's
    release notes require the same minor release.
    """
    build = torch_build()
    if build is None or _numbers(build.version)[:2] == release[:2]:
        return None
    family = ".".join(map(str, release[:2]))
    return Fault(
        f"{package} is for torch {family}, but torch {build.version} is installed", step
    )


def older_generation() -> Fault | None:
    """Return a fault if all AWS devices on the bus are older than Trainium2, which
    TorchNeuron does not support; otherwise `None`.
    """
    if _on_the_bus(BACKEND.hardware.pci_ids):
        return None
    older = _on_the_bus(_OLDER)
    if not older:
        return None
    return Fault(
        f"this machine has Trainium1 or Inferentia ({older}), but TorchNeuron supports "
        "only Trainium2 and Trainium3",
        "use a Trn2 or Trn3 instance",
    )


def _on_the_bus(pci_ids: tuple[str, ...]) -> Evidence | None:
    """Return the functions on the PCI bus that have one of these ids. The result is
    false if there are none.
    """
    hardware = replace(BACKEND.hardware, nodes=(), pci_ids=pci_ids)
    return evidence(replace(BACKEND, hardware=hardware))


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, such as `(2, 13, 3, 0)` for
    `"2.13.3.0+1"`.
    """
    release = re.match(r"[0-9]+(\.[0-9]+)*", text)
    if release is None:
        return ()
    return tuple(int(part) for part in release[0].split("."))
