"""Each module of torch's `module_db`, trained and evaluated: its results, its gradients, its buffers."""

from __future__ import annotations

import copy
from typing import Any

import torch

from accel_opinfo.settled import settled
from accel_opinfo.tally import Tally
from accel_opinfo.transfer import Transfer, leaves

__all__ = ["cases", "run"]


def _database() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {module.name: module for module in module_db}


def cases(dtypes: list[str]) -> list[list[str]]:
    """Give name and dtype of everything in the database that the CPU supports."""
    return [
        [name, dtype]
        for name, module in _database().items()
        for dtype in dtypes
        if getattr(torch, dtype) in module.supported_dtypes("cpu")
    ]


def run(name: str, dtype: str, tally: Tally) -> None:
    """Run all inputs of one module with one dtype. Raises what making the inputs raises."""
    info = _database()[name]
    wanted = getattr(torch, dtype)
    for training in (True, False):
        torch.manual_seed(0)
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=wanted, requires_grad=training, training=training
        )
        variant = "training" if training else "evaluation"
        if not tally.wants(variant):
            continue
        for number, each in enumerate(inputs):
            if each.forward_input is not None:
                _run(info, each, wanted, training, tally, f"input {number} {each.desc}".strip())


def _run(info: Any, each: Any, dtype: torch.dtype, training: bool, tally: Tally, what: str) -> None:
    made: list[torch.nn.Module] = []

    def call(device: str) -> Any:
        if not made:  # inside: where the CPU cannot make it, there is nothing to hold the device against
            constructor = each.constructor_input
            named = settled(constructor.kwargs, dtype)
            made.append(info.module_cls(*constructor.args, **named).to(dtype).train(training))
        module = copy.deepcopy(made[0]).to(device)
        moved = Transfer(device)
        args, kwargs = moved(each.forward_input.args), moved(each.forward_input.kwargs)
        with torch.set_grad_enabled(training):
            result = module(*args, **kwargs)
        if training:
            outputs = [tensor for tensor in leaves(result) if tensor.requires_grad]
            if outputs:
                torch.autograd.backward(outputs, [torch.ones_like(tensor) for tensor in outputs])
        after = [*module.parameters(), *leaves((args, kwargs))]
        gradients = [tensor.grad for tensor in after if tensor.is_leaf]
        return [result, gradients, list(module.buffers())]

    tally.run("training" if training else "evaluation", call, what)
