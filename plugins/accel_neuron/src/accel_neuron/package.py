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

__all__ = [
    "Problem",
    "find_package_problem",
    "find_unsupported_device",
    "torch_neuronx_version",
]

_DISTRIBUTION = "torch-neuronx"
#: PyPI's only release, 1.0 of 2022, raises `ImportError("WRONG PACKAGE. …")`.
_FIRST_AWS_RELEASE = (1, 1)
#: AWS's documentation, archive/frameworks/torch: PyTorch 2.9 is the last release for
#: PyTorch/XLA.
_FIRST_RELEASE_WITHOUT_XLA = (2, 10)
#: AWS's documentation, release-notes/components/torchneuron: 2.13.3.0 of 2026-10-19 is
#: the first public TorchNeuron.
_FIRST_PUBLIC_RELEASE = (2, 13, 3)
#: aws-neuron-driver 2.24.7.0, neuron_device.h: Trainium1, Inferentia2, Inferentia.
_OLDER_DEVICE_IDS = (
    "1d0f:7164",
    "1d0f:7264",
    "1d0f:7064",
    "1d0f:7065",
    "1d0f:7066",
    "1d0f:7067",
)


@dataclass(frozen=True)
class Problem:
    """A reason why the backend cannot be used, and the user's next step."""

    #: A clause, without a period.
    reason: str
    step: str


def torch_neuronx_version() -> str | None:
    """Return the version of torch-neuronx, or `None` if no installed version is found."""
    for distribution in metadata.distributions(name=_DISTRIBUTION):
        # A folder without metadata raises an error of importlib_metadata.
        with suppress(Exception):
            if distribution.version:
                return distribution.version
    return None


def find_package_problem() -> Problem | None:
    """Return the reason why torch-neuronx does not provide the device `neuron`.

    The result is `None` if torch-neuronx provides the device or is not installed.
    """
    version = torch_neuronx_version()
    if version is None:
        return None
    release = _parse_release(version)
    step = "accel setup neuron"
    package = f"{_DISTRIBUTION} {version}"
    if release < _FIRST_AWS_RELEASE:
        return Problem(
            f"{package} is PyPI's placeholder, which does not support any device", step
        )
    if release < _FIRST_RELEASE_WITHOUT_XLA:
        return Problem(
            f"{package} is AWS's package for PyTorch/XLA, which adds the device xla. The "
            "device neuron needs TorchNeuron, which is torch-neuronx 2.13.3 or newer",
            step,
        )
    if release < _FIRST_PUBLIC_RELEASE:
        return Problem(
            f"{package} is older than 2.13.3, AWS's first public TorchNeuron", step
        )
    return _find_torch_mismatch(package, release, step)


def _find_torch_mismatch(
    package: str, release: tuple[int, ...], step: str
) -> Problem | None:
    """Return a problem if torch-neuronx was built for a different minor release of torch.

    AWS's release notes require the same minor release. `package` is the name and
    version of torch-neuronx in messages.
    """
    build = torch_build()
    if build is None:
        return None
    installed_minor_release = _parse_release(build.version)[:2]
    required_minor_release = release[:2]
    if installed_minor_release == required_minor_release:
        return None
    required_torch = ".".join(str(number) for number in required_minor_release)
    return Problem(
        f"{package} is for torch {required_torch}, but torch {build.version} is installed",
        step,
    )


def find_unsupported_device() -> Problem | None:
    """Return a problem if all AWS devices in this machine are older than Trainium2.

    TorchNeuron does not support them.
    """
    if _find_pci_devices(BACKEND.hardware.pci_ids):
        return None
    older_devices = _find_pci_devices(_OLDER_DEVICE_IDS)
    if not older_devices:
        return None
    return Problem(
        f"this machine has Trainium1 or Inferentia ({older_devices}), but TorchNeuron supports "
        "only Trainium2 and Trainium3",
        "use a Trn2 or Trn3 instance",
    )


def _find_pci_devices(pci_ids: tuple[str, ...]) -> Evidence | None:
    """Return the PCI functions of this machine that have one of these ids.

    Without such a function, the result is `None` or empty.
    """
    # Without device nodes in the declaration, only PCI ids are evidence.
    hardware = replace(BACKEND.hardware, nodes=(), pci_ids=pci_ids)
    return evidence(replace(BACKEND, hardware=hardware))


def _parse_release(text: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, such as `(2, 13, 3, 0)` for
    `"2.13.3.0+1"`.
    """
    numeric_part = re.match(r"[0-9]+(\.[0-9]+)*", text)
    if numeric_part is None:
        return ()
    return tuple(int(number) for number in numeric_part[0].split("."))
