"""`torch.compile(model, backend="accel")`, by an entry point in torch's group `torch_dynamo_backends`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import accel_core
from accel_train.compiling import compiler_of, known_to_inductor, refused
from accel_train.device_interface import register

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["accel"]


def accel(
    graph: torch.fx.GraphModule, inputs: list[Any], **options: Any
) -> Callable[..., Any]:
    """Compile `graph` with the chosen accelerator's compiler.

    `options` are the keywords `mode` and `options` of `torch.compile`, passed to that compiler. If the graph
    has no tensor on the accelerator (a CPU part between two parts on the device), the graph is compiled with
    the compiler for the device that its tensors are on.

    Raises what choosing raises. Raises `UnsupportedError` if torch does not list the compiler, or if the
    compiler is inductor and has no code for the device. torch shows these errors as `BackendCompilerFailed`.
    """
    import torch
    from torch._dynamo import lookup_backend

    kinds = list(
        dict.fromkeys(
            each.device.type for each in inputs if isinstance(each, torch.Tensor)
        )
    )
    ours = _accelerator_of(kinds)
    register(ours)
    compiler = compiler_of(ours)
    if compiler != "inductor":
        return lookup_backend(compiler)(graph, inputs, **options)
    declared = ours.device_type if ours.backend.compile_backend == "inductor" else None
    for kind in kinds:
        if kind != declared and not known_to_inductor(kind):
            raise refused(kind)
    # torch's own wrapper: it reads mode and options, and vendors patch it.
    wrapper: Any = torch._TorchCompileInductorWrapper
    try:
        compiled: Callable[..., Any] = wrapper(
            options.get("mode"), options.get("options"), None
        )(graph, inputs)
    except Exception as error:
        # A vendor may register its code in that call, so of its device nothing is known before.
        if declared and not known_to_inductor(declared):
            raise refused(declared) from error
        raise
    return compiled


def _accelerator_of(kinds: list[str]) -> Accelerator:
    chosen = accel_core.get_accelerator()
    if not kinds or chosen.device_type in kinds:
        return chosen
    return accel_core.accelerator(f"{kinds[0]}:0")
