"""The backend `xpu.external`: Intel Extension for DeepSpeed with IPEX.

The extension's accelerator class lacks most of today's interface, and importing it
imports DeepSpeed, which queries the accelerator while it is being chosen. This module
therefore does not import the extension: IPEX registers the device, and only the
extension's operator builders are used, each imported on request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from accel_core import Backend, hookimpl
from accel_xpu import IPEX, accel_probe, with_cpu_build_note

if TYPE_CHECKING:
    from accel_core import OpProvider

__all__ = ["EXTERNAL", "accel_op_builders", "accel_probe"]

#: The extension's package of builders. Importing it imports DeepSpeed, IPEX and
#: oneCCL's bindings.
_PACKAGE = "intel_extension_for_deepspeed.op_builder"
#: The builders of release 0.9.4 of the extension, with their modules.
_MODULE_OF_BUILDER = {
    "CPUAdagradBuilder": "cpu_adagrad",
    "CPUAdamBuilder": "cpu_adam",
    "FusedAdamBuilder": "fused_adam",
    "InferenceBuilder": "transformer_inference",
    "QuantizerBuilder": "quantizer",
    "TransformerBuilder": "transformer",
    "UtilsBuilder": "utils",
}

EXTERNAL = replace(
    IPEX,
    name="xpu.external",
    priority=900,
    description="Intel GPUs, with Intel Extension for DeepSpeed",
    url="https://github.com/intel/intel-extension-for-deepspeed",
    install_hint=IPEX.install_hint,
    requires=(*IPEX.requires, "intel-extension-for-deepspeed"),
)


@hookimpl
def accel_backends() -> Backend:
    """Return the backend `xpu.external`."""
    return with_cpu_build_note(EXTERNAL)


@hookimpl
def accel_op_builders(backend: Backend) -> OpProvider | None:
    """Return the operator builders of Intel Extension for DeepSpeed.

    The result is `None` for a backend other than `xpu.external`. Builders that cannot
    be imported are skipped.
    """
    if backend.name != EXTERNAL.name:
        return None
    # Imported here to keep discovery fast.
    from accel_xpu.operators import DeepSpeedExtensionOps

    builders = {
        builder: f"{_PACKAGE}.{module}:{builder}"
        for builder, module in _MODULE_OF_BUILDER.items()
    }
    return DeepSpeedExtensionOps(
        builders, name="intel-extension-for-deepspeed", package=_PACKAGE, optional=True
    )
