"""Provide accel-train's operators for every device, by an entry point of the group `accel.op_builders`."""

from __future__ import annotations

from accel_core import Backend, OpProvider, hookimpl

__all__ = ["accel_op_builders"]

_PORTABLE_BUILDERS = (
    "CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "FusedAdamBuilder", "FusedLambBuilder",
    "FusedLionBuilder",
)  # fmt: skip


@hookimpl
def accel_op_builders(backend: Backend) -> OpProvider:
    """Return the provider of the portable operators. The operators of all other providers take precedence."""
    return OpProvider(
        {op: f"accel_train.ops.portable:{op}" for op in _PORTABLE_BUILDERS},
        name="accel-train portable",
        kind="portable",
        package="accel_train.ops",
        optional=True,
        last=True,
    )
