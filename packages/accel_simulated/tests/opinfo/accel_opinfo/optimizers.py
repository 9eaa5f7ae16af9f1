"""Each optimizer of torch's `optim_db`: five steps of a small network, by each of its implementations."""

from __future__ import annotations

import copy
from typing import Any

import torch

from accel_opinfo.tally import Tally
from accel_opinfo.transfer import Transfer

__all__ = ["cases", "run"]

_STEPS = 5


def _database() -> dict[str, Any]:
    from torch.testing._internal.common_optimizers import optim_db

    return {optimizer.name: optimizer for optimizer in optim_db}


def cases(dtypes: list[str]) -> list[list[str]]:
    """Give name and dtype of every optimizer; what the CPU cannot do is left out when it is run."""
    return [
        [name, dtype]
        for name, info in _database().items()
        for dtype in dtypes
        if getattr(torch, dtype).is_floating_point
        or (getattr(torch, dtype).is_complex and info.supports_complex)
    ]


def run(name: str, dtype: str, tally: Tally) -> None:
    """Run all inputs of one optimizer with one dtype."""
    info = _database()[name]
    for implementation in ("for-loop", *info.supported_impls):
        if not tally.wants(implementation):
            continue
        for each in info.optim_inputs_func("cpu"):
            settings = dict(each.kwargs)
            if any(settings.get(key) for key in ("foreach", "fused", "differentiable")):
                continue  # asked for below, or above
            if implementation == "for-loop":
                settings["foreach"] = False
                if "foreach" not in info.supported_impls:
                    del settings["foreach"]
            else:
                settings[implementation] = True
            _run(info, settings, getattr(torch, dtype), tally, implementation, each.desc)


def _run(info: Any, settings: dict[str, Any], dtype: torch.dtype, tally: Tally, kind: str, what: str) -> None:
    torch.manual_seed(0)
    # Muon takes matrices only; embeddings alone give the sparse gradients that SparseAdam wants.
    sparse = info.only_supports_sparse_grads
    bias = info.optim_cls.__name__ != "Muon"
    network = torch.nn.Sequential(
        *([torch.nn.Embedding(9, 4, sparse=True)] if sparse else [torch.nn.Linear(6, 4, bias=bias)]),
        *([] if sparse else [torch.nn.Tanh(), torch.nn.Linear(4, 3, bias=bias)]),
    ).to(dtype)
    given = torch.arange(6).reshape(2, 3) if sparse else torch.randn(5, 6, dtype=dtype)

    def call(device: str) -> Any:
        model = copy.deepcopy(network).to(device)
        numbers = Transfer(device)(given)
        moved = {key: Transfer(device)(value) for key, value in settings.items()}
        differentiable = moved.get("differentiable", False)
        parameters = list(model.parameters())
        optimizer = info.optim_cls(parameters, **moved)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            result = model(numbers)
            loss = (result * result.conj()).real.sum() if result.is_complex() else result.square().sum()
            loss.backward()
            return loss

        for _ in range(_STEPS):
            if info.step_requires_closure:
                optimizer.step(closure)
                continue
            closure()
            with torch.set_grad_enabled(bool(differentiable)):
                optimizer.step()
        state = [
            [[key, value] for key, value in optimizer.state[parameter].items() if torch.is_tensor(value)]
            for parameter in parameters
        ]
        # A step's number may be kept on the host, on both sides.
        return [parameters, [[key, value.cpu().to(numbers.device)] for of in state for key, value in of]]

    tally.run(kind, call, what)
