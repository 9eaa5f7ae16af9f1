"""Provide `torch.compile(model, backend="accel")` by an entry point of the group `torch_dynamo_backends`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import accel_core
from accel_train.compiling import (
    has_inductor_code,
    no_inductor_code_error,
    require_listed_compiler,
)
from accel_train.device_interface import register_device_interface

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["accel"]


def accel(
    graph: torch.fx.GraphModule, inputs: list[Any], **options: Any
) -> Callable[..., Any]:
    """Compile `graph` with the chosen accelerator's compiler, as a backend of `torch.compile`.

    `options` are the keyword arguments `mode` and `options` of `torch.compile`, which are passed to the
    compiler. A graph may have tensors only on other devices, for example in a CPU part between two device
    parts. Such a graph is compiled with the compiler for the tensors' device.

    Raises the same errors as `get_accelerator()`. Raises `UnsupportedError` if torch does not list the
    compiler, or if the compiler is inductor and inductor cannot generate code for the device. torch wraps
    these errors in `BackendCompilerFailed`.
    """
    import torch
    from torch._dynamo import lookup_backend

    device_types: list[str] = []
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.device.type not in device_types:
            device_types.append(value.device.type)
    accelerator = _accelerator_for(device_types)
    # Register the device type with torch's compiler, if that is still necessary.
    register_device_interface(accelerator)
    compiler = require_listed_compiler(accelerator)
    if compiler != "inductor":
        return lookup_backend(compiler)(graph, inputs, **options)
    return _compile_with_inductor(accelerator, graph, inputs, device_types, options)


def _compile_with_inductor(
    accelerator: Accelerator,
    graph: torch.fx.GraphModule,
    inputs: list[Any],
    device_types: list[str],
    options: dict[str, Any],
) -> Callable[..., Any]:
    """Compile `graph` with inductor.

    Raises `UnsupportedError` if inductor cannot generate code for one of `device_types`.
    """
    import torch

    # A vendor that declares inductor may register its code only when inductor is called.
    declared_type = None
    if accelerator.backend.compile_backend == "inductor":
        declared_type = accelerator.device_type
    for device_type in device_types:
        if device_type != declared_type and not has_inductor_code(device_type):
            raise no_inductor_code_error(device_type)
    # torch's wrapper applies mode and options, and vendors patch this wrapper.
    wrapper: Any = torch._TorchCompileInductorWrapper
    try:
        compile_graph = wrapper(options.get("mode"), options.get("options"), None)
        compiled: Callable[..., Any] = compile_graph(graph, inputs)
    except Exception as error:
        if declared_type and not has_inductor_code(declared_type):
            raise no_inductor_code_error(declared_type) from error
        raise
    return compiled


def _accelerator_for(device_types: list[str]) -> Accelerator:
    """Return the accelerator for tensors of `device_types`.

    The result is the chosen accelerator if its type is in `device_types`, or if `device_types` is empty.
    Otherwise the result is the accelerator of the first type.
    """
    chosen = accel_core.get_accelerator()
    if not device_types or chosen.device_type in device_types:
        return chosen
    # The tensors are on another device, such as the CPU between two parts of a model.
    first_type, *_ = device_types
    # A name with an index is a device. Without an index, the name would be a backend's.
    return accel_core.accelerator(f"{first_type}:0")
