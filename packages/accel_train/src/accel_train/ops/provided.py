"""The operators of accel-train, for every device, for the entry point in group `accel.op_builders`."""

from __future__ import annotations

from accel_core import Backend, OpProvider, hookimpl

__all__ = ["accel_op_builders"]

_PORTABLE = (
    "CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "FusedAdamBuilder", "FusedLambBuilder",
    "FusedLionBuilder",
)  # fmt: skip


@hookimpl
def accel_op_builders(backend: Backend) -> list[OpProvider]:
    """List the providers: first the operators compiled for the CPU, then those in torch's own operators."""
    compiled = {"CPUAdamBuilder": "accel_train.ops.cpu_adam:CPUAdamBuilder"}
    portable = {op: f"accel_train.ops.portable:{op}" for op in _PORTABLE}
    return [
        OpProvider(
            compiled,
            name="accel-train compiled",
            kind="compiled",
            optional=True,
            last=True,
        ),
        OpProvider(
            portable,
            name="accel-train portable",
            kind="portable",
            package="accel_train.ops",
            optional=True,
            last=True,
        ),
    ]
