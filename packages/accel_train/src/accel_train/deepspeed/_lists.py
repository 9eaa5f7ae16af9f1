"""DeepSpeed's lists of operators: add every builder of our accelerator under its `NAME`.

DeepSpeed lists the builders in the package that `op_builder_dir()` names, and looks up
`deepspeed.ops.__compatible_ops__[Builder.NAME]` for builders that `get_op_builder()` returned. Builders from
elsewhere (accel-core's portable ones, a plugin's) are missing in these lists until they are added.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

from accel_core.errors import UnsupportedError

__all__ = ["ALL_OPS", "NOT_IMPLEMENTED", "complete", "renew"]

#: The module that holds the list.
ALL_OPS = "deepspeed.ops.op_builder.all_ops"
#: What DeepSpeed calls each builder that there is not; it lists the name as one that is not compatible.
NOT_IMPLEMENTED = "deepspeed_not_implemented"


def complete(module: Any, accelerator: Any) -> None:
    """Add to `module`, DeepSpeed's `all_ops`, the operators of `accelerator` that it lacks.

    Adds nothing if the accelerator lists no operators: it is DeepSpeed's own, or it has none.
    """
    for name in _named(accelerator):
        with contextlib.suppress(
            UnsupportedError
        ):  # it fails to import, and says so when it is asked for
            builder = accelerator.create_op_builder(name)
            keys = {builder.name, type(builder).NAME} - set(module.ALL_OPS)
            module.ALL_OPS.update(dict.fromkeys(sorted(keys), builder))
            if keys:
                module.__op_builders__.append(builder)


def _named(accelerator: Any) -> Iterable[str]:
    op_builders = getattr(accelerator, "op_builders", None)
    return op_builders() if callable(op_builders) else ()


def renew(accelerator: Any) -> None:
    """Check again which operators `accelerator` is compatible with, if another one was checked before."""
    module = sys.modules.get(ALL_OPS)
    if module is None:
        return
    module = importlib.reload(module)
    complete(module, accelerator)
    answers = vars(sys.modules["deepspeed.ops"]).get("__compatible_ops__")
    if isinstance(answers, dict):  # one object, in several modules
        answers.update(
            {
                name: bool(builder.is_compatible())
                for name, builder in module.ALL_OPS.items()
            }
        )
