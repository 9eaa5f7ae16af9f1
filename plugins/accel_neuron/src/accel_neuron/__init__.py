"""AWS Trainium for accel-core, through TorchNeuron: the declaration of the backend
`neuron`, and the next steps after known errors.

TorchNeuron is AWS's native device for PyTorch: `torch-neuronx` from 2.13.3 on. The
facts come from AWS's documentation (awsdocs-neuron.readthedocs-hosted.com, versions
2.32 to 2.33.1), AWS's driver, and the calls in Accelerate 1.15.0, Transformers 5.24.0
and diffusers 0.42.1. The package itself was not available. Importing this module
imports neither torch nor torch_neuronx.
"""

from __future__ import annotations

from accel_core import (
    Backend,
    BackendUnavailableError,
    Check,
    Environment,
    Hardware,
    ProbeResult,
    ResourceRequest,
    TorchIntegration,
    Visibility,
    hookimpl,
)

__all__ = ["BACKEND"]

#: AWS's documentation, setup/pytorch/manual.rst: the driver's package;
#: neuron-runtime/nrt-troubleshoot.rst: its module.
_DRIVER = (
    "install AWS's driver (aws-neuronx-dkms), run `sudo modprobe neuron`, and check the "
    "driver with `neuron-ls`"
)

#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    # torch-neuronx 1.0 of PyPI, torch_neuronx/__init__.py.
    (
        r"wrong package.*neuron repository",
        "replace PyPI's placeholder with AWS's package: run `accel setup neuron`",
    ),
    # AWS's documentation, neuron-runtime/nrt-troubleshoot.rst, has these three texts.
    (
        r"unable to determine neuron driver version|requires neuron driver version",
        _DRIVER,
    ),
    (
        r"not compatible with the installed aws-neuron\w*-dkms",
        (
            "update aws-neuronx-dkms, stop the processes that use the device, and run "
            "`sudo rmmod neuron; sudo modprobe neuron`"
        ),
    ),
    (
        r"neuroncore\(s\) not available",
        (
            "stop the process that uses the NeuronCores, or select other cores with "
            "NEURON_RT_VISIBLE_CORES, because a core belongs to one process until the "
            "process ends"
        ),
    ),
    # AWS's documentation, neuron-runtime/explore/device-memory.rst.
    (
        r"failed to allocate .* on nd ?\d+:nc ?\d+",
        "the NeuronCore's memory is full: `neuron-top` shows which processes hold it",
    ),
    (
        r"torch_neuronx.*undefined symbol|libnrt\.so",
        (
            "torch-neuronx is incompatible with this torch or AWS's runtime: run `accel setup "
            "neuron`"
        ),
    ),
)

BACKEND = Backend(
    name="neuron",
    # Next to tpu, the other cloud accelerator, and below the devices that DeepSpeed
    # prefers.
    priority=340,
    device_type="neuron",
    vendor_import="torch_neuronx",
    accelerator="accel_neuron.accelerator:NeuronAccelerator",
    description="AWS Trainium, through TorchNeuron (torch-neuronx)",
    url="https://awsdocs-neuron.readthedocs-hosted.com/en/latest/torch/index.html",
    install_hint="accel setup neuron",
    # 2.13 is the first torch for which AWS released TorchNeuron
    # (release-notes/components/torchneuron). Three packages are called torch-neuronx;
    # the module `package` distinguishes them.
    requires=("torch>=2.13",),
    # torch/guides/torch-distributed: init_process_group(backend="neuron").
    communication_backend="neuron",
    # torch/compile/reference-torch-compile: torch.compile(backend="neuron").
    compile_backend="neuron",
    hardware=Hardware(
        name="AWS Trainium",
        platforms=("linux",),
        # deploy/environments/docker-setup.rst.
        nodes=("/dev/neuron[0-9]*",),
        # aws-neuron-driver 2.24.7.0, neuron_device.h: Trainium2. No available
        # source of AWS has the ids of Trainium3, which is found by its device nodes.
        pci_ids=("1d0f:7364",),
        # aws-neuron-driver, dkms.conf and nrt-troubleshoot.rst: the module's name.
        driver_file="/sys/module/neuron",
        driver_step=_DRIVER,
    ),
    visibility=Visibility(
        # neuron-runtime/guides/configuration-guide.rst: an index or an inclusive range;
        # Ray and Accelerate write indices with commas.
        variables=("NEURON_RT_VISIBLE_CORES",),
        grammar="ranges",
    ),
    request=ResourceRequest(
        # deploy/environments/docker-setup.rst.
        docker="--device /dev/neuron0",
        # deploy/includes/k8s-neuron-device-plugin.rst.
        kubernetes="aws.amazon.com/neuron",
        # Ray, python/ray/_private/accelerators/neuron.py.
        ray="neuron_cores",
        ray_noset="RAY_EXPERIMENTAL_NOSET_NEURON_RT_VISIBLE_CORES",
    ),
    torch_integration=TorchIntegration(private_use1=True),
    environment=Environment(
        # torch/reference/env-vars has the first; the compiler's is
        # NEURON_CC_FLAGS. Not all of NEURON_RT_*: each host assigns its own
        # cores.
        forward=(
            "TORCH_NEURONX",
            "NEURON_CC",
            "NEURON_LOGICAL_NC_CONFIG",
            "NEURON_RT_LOG",
            "NEURON_RT_EXEC_TIMEOUT",
        )
    ),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `neuron`, for AWS Trainium."""
    return BACKEND


@hookimpl
def accel_probe(backend: Backend) -> ProbeResult | None:
    """Reject AWS devices that TorchNeuron does not support.

    Raises `BackendUnavailableError` if another package called torch-neuronx is
    installed.
    """
    if backend.name != BACKEND.name:
        return None
    from accel_neuron.package import find_package_problem, find_unsupported_device

    device_problem = find_unsupported_device()
    if device_problem is not None:
        return ProbeResult(False, device_problem.reason, device_problem.step)
    package_problem = find_package_problem()
    if package_problem is not None:
        raise BackendUnavailableError(package_problem.reason, hint=package_problem.step)
    return None


@hookimpl
def accel_checks(backend: Backend) -> list[Check]:
    """Return the checks of `accel doctor` for AWS Trainium."""
    if backend.name != BACKEND.name:
        return []
    from accel_neuron.checks import CHECKS

    return CHECKS
