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
from accel_xpu import IPEX, accel_probe, described

if TYPE_CHECKING:
    from accel_core import OpProvider

__all__ = ["EXTERNAL", "accel_op_builders", "accel_probe"]

#: The extension's package of builders. Importing it imports DeepSpeed, IPEX and
#: oneCCL's bindings.
_PACKAGE = "intel_extension_for_deepspeed.op_builder"
#: The builders of release 0.9.4 of the extension, with their modules.
_MODULES = {
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
    """Return the backend of this entry point."""
    return described(EXTERNAL)


@hookimpl
def accel_op_builders(backend: Backend) -> OpProvider | None:
    """Return the extension's operator builders if `backend` is `xpu.external`;
    otherwise `None`. Builders that fail to import are skipped.
    """
    if backend.name != EXTERNAL.name:
        return None
    # Imported here to keep discovery fast.
    from accel_xpu.operators import Extension

    builders = {op: f"{_PACKAGE}.{module}:{op}" for op, module in _MODULES.items()}
    return Extension(
        builders, name="intel-extension-for-deepspeed", package=_PACKAGE, optional=True
    )
