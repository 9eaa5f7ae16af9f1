"""Checks of `accel doctor` for AWS Trainium.

They check which package called torch-neuronx is installed, the device's generation, and
the two variables that select NeuronCores.
"""

from __future__ import annotations

import os

from accel_core import Check, CheckResult
from accel_neuron.package import (
    Problem,
    find_package_problem,
    find_unsupported_device,
    torch_neuronx_version,
)

__all__ = ["CHECKS", "check_core_variables", "check_generation", "check_package"]

_VISIBLE_CORES, _CORE_COUNT = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"


def check_package() -> CheckResult:
    """Check that the installed torch-neuronx is TorchNeuron.

    PyPI's placeholder and AWS's package for PyTorch/XLA have the same name as
    TorchNeuron.
    """
    version = torch_neuronx_version()
    facts = {"torch-neuronx": version or "not installed"}
    ok_text = "torch-neuronx is not installed"
    if version is not None:
        ok_text = f"torch-neuronx {version} is TorchNeuron"
    return _result(find_package_problem(), ok_text, facts)


def check_generation() -> CheckResult:
    """Check that the device is a Trainium2 or newer, which TorchNeuron needs."""
    return _result(find_unsupported_device(), "no device is older than Trainium2", {})


def check_core_variables() -> CheckResult:
    """Check that at most one environment variable selects NeuronCores.

    `NEURON_RT_VISIBLE_CORES` lists indices, and `NEURON_RT_NUM_CORES` sets the number
    of cores.
    """
    visible_cores = os.environ.get(_VISIBLE_CORES)
    core_count = os.environ.get(_CORE_COUNT)
    facts = {
        _VISIBLE_CORES: visible_cores or "not set",
        _CORE_COUNT: core_count or "not set",
    }
    if visible_cores and core_count:
        what = f"{_VISIBLE_CORES} and {_CORE_COUNT} are both set, but both select NeuronCores"
        return CheckResult("warning", what, f"unset {_CORE_COUNT}", facts)
    return CheckResult("ok", "at most one variable selects NeuronCores", facts=facts)


def _result(
    problem: Problem | None, ok_text: str, facts: dict[str, str]
) -> CheckResult:
    """Return the result of a check: an error for a problem, and otherwise `ok_text`."""
    if problem is not None:
        return CheckResult("error", problem.reason, problem.step, facts)
    return CheckResult("ok", ok_text, facts=facts)


CHECKS = [
    Check("torch-neuronx-package", "The package torch-neuronx", check_package),
    Check("trainium-generation", "The generation of the device", check_generation),
    Check(
        "neuron-cores",
        "Variables that select NeuronCores",
        check_core_variables,
    ),
]
