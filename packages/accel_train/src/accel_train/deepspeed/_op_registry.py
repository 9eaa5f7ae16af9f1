"""Add every builder of accel_core's accelerator to DeepSpeed's registry of operators, by its `NAME`.

DeepSpeed lists only the builders in the package that `op_builder_dir()` names, and looks up every builder in
`deepspeed.ops.__compatible_ops__`. Builders from other packages (accel-train's portable builders, a plugin's
builders) must be added to both.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

from accel_core.errors import UnsupportedError

__all__ = ["ALL_OPS", "NOT_IMPLEMENTED", "add_missing_ops", "refresh_compatible_ops"]

#: DeepSpeed's module that lists all operators.
ALL_OPS = "deepspeed.ops.op_builder.all_ops"
#: DeepSpeed's name for a builder that does not exist, which it lists as an incompatible operator.
NOT_IMPLEMENTED = "deepspeed_not_implemented"


def add_missing_ops(all_ops: Any, accelerator: Any) -> None:
    """Add the accelerator's operators that DeepSpeed's module `all_ops` does not list yet to this module.

    Nothing is added for an accelerator that lists no operators, such as one of DeepSpeed's own accelerators.
    """
    for builder_name in _listed_builders(accelerator):
        # An error of a builder that cannot be imported is raised again when a program requests the builder.
        with contextlib.suppress(UnsupportedError):
            builder = accelerator.create_op_builder(builder_name)
            builder_names = {builder.name, type(builder).NAME}
            missing_names = builder_names - set(all_ops.ALL_OPS)
            for name in sorted(missing_names):
                all_ops.ALL_OPS[name] = builder
            if missing_names:
                all_ops.__op_builders__.append(builder)


def _listed_builders(accelerator: Any) -> Iterable[str]:
    """Return the names of the accelerator's builders, or nothing if the accelerator cannot list them."""
    op_builders = getattr(accelerator, "op_builders", None)
    if callable(op_builders):
        names: Iterable[str] = op_builders()
        return names
    return ()  # DeepSpeed's own accelerators have no such method.


def refresh_compatible_ops(accelerator: Any) -> None:
    """Update DeepSpeed's record of compatible operators, after `accelerator` became its accelerator."""
    all_ops = sys.modules.get(ALL_OPS)
    if all_ops is None:
        return
    all_ops = importlib.reload(all_ops)
    add_missing_ops(all_ops, accelerator)
    # Several modules hold this dictionary, so it is changed in place.
    compatible_ops = vars(sys.modules["deepspeed.ops"]).get("__compatible_ops__")
    if isinstance(compatible_ops, dict):
        for name, builder in all_ops.ALL_OPS.items():
            compatible_ops[name] = bool(builder.is_compatible())
