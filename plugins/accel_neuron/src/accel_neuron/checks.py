"""Checks of `accel doctor` for AWS Trainium.

They check which package called torch-neuronx is installed, the device's generation, and
the two variables that select NeuronCores.
"""

from __future__ import annotations

import os

from accel_core import Check, CheckResult
from accel_neuron.package import (
    Fault,
    older_generation,
    package_fault,
    torch_neuronx_version,
)

__all__ = ["CHECKS", "cores", "generation", "package"]

_VISIBLE, _NUMBER = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"


def package() -> CheckResult:
    """Check that the installed torch-neuronx is TorchNeuron, and not PyPI's placeholder
    or AWS's package for PyTorch/XLA.
    """
    installed = torch_neuronx_version()
    facts = {"torch-neuronx": installed or "not installed"}
    right = "torch-neuronx is not installed"
    if installed is not None:
        right = f"torch-neuronx {installed} is TorchNeuron"
    return _result(package_fault(), right, facts)


def generation() -> CheckResult:
    """Check that the device is a Trainium2 or newer, which TorchNeuron needs."""
    return _result(older_generation(), "no device is older than Trainium2", {})


def cores() -> CheckResult:
    """Check that at most one variable selects NeuronCores: `NEURON_RT_VISIBLE_CORES`
    lists indices, and `NEURON_RT_NUM_CORES` sets the number of cores.
    """
    visible, number = os.environ.get(_VISIBLE), os.environ.get(_NUMBER)
    facts = {_VISIBLE: visible or "not set", _NUMBER: number or "not set"}
    if visible and number:
        what = f"{_VISIBLE} and {_NUMBER} are both set, but both select NeuronCores"
        return CheckResult("warning", what, f"unset {_NUMBER}", facts)
    return CheckResult("ok", "at most one variable selects NeuronCores", facts=facts)


def _result(fault: Fault | None, right: str, facts: dict[str, str]) -> CheckResult:
    if fault is not None:
        return CheckResult("error", fault.reason, fault.step, facts)
    return CheckResult("ok", right, facts=facts)


CHECKS = [
    Check("torch-neuronx-package", "The package torch-neuronx", package),
    Check("trainium-generation", "The generation of the device", generation),
    Check("neuron-cores", "Variables that select NeuronCores", cores),
]
