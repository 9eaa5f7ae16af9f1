"""The training that every framework repeats: a small network, and plain torch's result on the CPU."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from accel_core import Accelerator
from accel_testing.conformance.claims import require, skip_unsupported

__all__ = [
    "BATCH",
    "CLIP",
    "OPTIMIZER",
    "SAVED_AT",
    "STEPS",
    "Network",
    "Rank",
    "make_batch",
    "parameters_of",
    "require_claimed",
    "require_same",
]

#: The number of optimizer steps, the step after which a checkpoint is saved, and the number of samples in the
#: batch. Each step uses the same batch, whose mean does not depend on shuffling or on the number of ranks.
STEPS = 6
SAVED_AT = 3
BATCH = 16
#: Options of AdamW. With torch's default `eps`, the rounding error of a gradient near zero would change the
#: whole step.
OPTIMIZER: dict[str, Any] = {
    "lr": 0.02,
    "betas": (0.9, 0.99),
    "eps": 1e-3,
    "weight_decay": 0.0,
}
#: The norm to which gradients are clipped; the gradients of the first steps are larger.
CLIP = 0.5
#: The tolerance for each type, which allows for the rounding errors of several steps. The error of a loss is
#: relative to the loss, and the error of a parameter's change is relative to the largest change.
_TOLERANCES = {
    torch.float32: (3e-4, 2e-3),
    torch.float16: (1e-2, 0.1),
    torch.bfloat16: (5e-2, 0.4),
}


class Network(nn.Module):
    """Two layers that record the device and the types in which they compute."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(12, 24)
        self.norm = nn.LayerNorm(24)
        self.last = nn.Linear(24, 3)
        self.devices: set[torch.device] = set()
        self.dtypes: set[torch.dtype] = set()

    def forward(
        self, features: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean loss, and three numbers per sample; a sample has 12 features and a label."""
        hidden = self.first(features.to(self.first.weight.dtype))
        output = self.last(self.norm(hidden.tanh()))
        self.devices |= {
            features.device,
            labels.device,
            self.first.weight.device,
            output.device,
        }
        self.dtypes.add(hidden.dtype)
        return functional.cross_entropy(output.float(), labels), output


def make_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features and labels on the CPU."""
    features = torch.randn(BATCH, 12, generator=torch.Generator().manual_seed(3))
    return features, torch.arange(BATCH) % 3


def parameters_of(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of the parameters on the host."""
    return {
        name: tensor.detach().cpu().clone()
        for name, tensor in network.named_parameters()
    }


def require_claimed(accelerator: Accelerator, dtype: torch.dtype) -> None:
    """Skip the part unless the accelerator claims to train in `dtype`."""
    if dtype not in accelerator.supported_dtypes():
        skip_unsupported(
            f"the device does not train in {str(dtype).removeprefix('torch.')}"
        )


def require_same(
    parameters: dict[str, torch.Tensor],
    expected: dict[str, torch.Tensor],
    description: str,
) -> None:
    """Require that the parameters are bit-identical."""
    require(
        parameters.keys() == expected.keys(),
        f"{description} are {sorted(parameters)}; expected {sorted(expected)}",
    )
    for name, tensor in parameters.items():
        error = float((tensor.double() - expected[name].double()).abs().max())
        require(error == 0, f"{description}: {name} differs by {error:.1e}")


class Reference(NamedTuple):
    """The result of training with plain torch, in float32, on the CPU, with the whole batch."""

    #: The loss before each optimizer step.
    losses: list[float]
    start: dict[str, torch.Tensor]
    end: dict[str, torch.Tensor]

    @classmethod
    def train(cls) -> Reference:
        """Train, and return the result; call `train` before a framework has modified torch."""
        network = Network()
        start = parameters_of(network)
        optimizer = torch.optim.AdamW(network.parameters(), **OPTIMIZER)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss, _output = network(*make_batch())
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimizer.step()
            losses.append(float(loss.detach()))
        return cls(losses, start, parameters_of(network))

    def require_trained(
        self,
        losses: list[float],
        end: dict[str, torch.Tensor],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Require that a training gave this result; `losses` are the losses of the training's last steps."""
        problems = [
            *self._loss_problems(losses, _TOLERANCES[dtype][0]),
            *self._parameter_problems(end, _TOLERANCES[dtype][1]),
        ]
        require(not problems, "; ".join(problems))

    def _loss_problems(self, losses: list[float], tolerance: float) -> Iterator[str]:
        """Yield the first loss whose error exceeds the tolerance."""
        expected = self.losses[STEPS - len(losses) :]
        first_step = STEPS - len(losses)
        pairs = zip(losses, expected, strict=True)
        for step, (loss, reference) in enumerate(pairs, first_step):
            is_close = abs(loss - reference) <= tolerance * abs(reference)
            if not is_close:  # this comparison also detects NaN
                yield (
                    f"the loss of step {step} is {loss:.6g}; plain torch on the CPU gives "
                    f"{reference:.6g}"
                )
                return

    def _parameter_problems(
        self, end: dict[str, torch.Tensor], tolerance: float
    ) -> Iterator[str]:
        """Yield the parameter with the largest error, if that error exceeds the tolerance."""
        if end.keys() != self.end.keys():
            yield f"the parameters are {sorted(end)}; expected {sorted(self.end)}"
            return
        largest_change = max(
            float((self.end[name] - self.start[name]).abs().max()) for name in self.end
        )
        errors = {}
        for name, expected in self.end.items():
            error = float((end[name].float() - expected).abs().max()) / largest_change
            errors[name] = float("inf") if math.isnan(error) else error
        worst = max(errors, key=lambda name: errors[name])
        if errors[worst] > tolerance:
            yield (
                f"after {STEPS} steps, {worst} is off by {errors[worst]:.1e} of the largest change that "
                f"plain torch makes on the CPU; the tolerance is {tolerance:.0e}"
            )


class Rank(NamedTuple):
    """The data that the parts of a framework's program need in one rank."""

    accelerator: Accelerator
    #: The index of the rank's device.
    device: int
    reference: Reference
    #: A folder that all ranks share.
    folder: Path

    @classmethod
    def of(cls, accelerator: Accelerator, folder: str) -> Rank:
        """Return the rank of this process, with the device of its local rank."""
        device = int(os.environ["LOCAL_RANK"]) % accelerator.device_count()
        return cls(accelerator, device, Reference.train(), Path(folder))

    def require_trained(
        self,
        network: Network,
        losses: list[float],
        end: dict[str, torch.Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Require that the network was trained on this rank's device with the reference's result.

        `losses` are the losses of the last steps. `end` contains the trained parameters if the network
        contains only a part of them.
        """  # fmt: skip
        # torch's device is used because the accelerator may be wrong; a process may have only one device.
        device_type = self.accelerator.device_type
        expected = torch.empty(0, device=f"{device_type}:{self.device}").device
        devices = sorted(map(str, network.devices))
        require(
            network.devices == {expected},
            f"the network was computed on {devices}; expected {expected}",
        )
        dtypes = sorted(map(str, network.dtypes))
        require(
            network.dtypes == {dtype},
            f"products had the types {dtypes}; expected {dtype}",
        )
        self.reference.require_trained(losses, end or parameters_of(network), dtype)
