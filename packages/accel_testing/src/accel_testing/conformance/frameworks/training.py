"""Training for every framework: a small network, and plain torch's result on the CPU."""

from __future__ import annotations

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
    "batch",
    "parameters_of",
    "require_claimed",
    "require_same",
]

#: Steps of the optimizer, after how many of them is saved, and samples in the batch, which is the same in
#: each step: whoever shuffles it, or shares it among ranks, has the same mean.
STEPS = 6
SAVED_AT = 3
BATCH = 16
#: For AdamW. With torch's own `eps` a gradient near zero would be as good as its sign, and rounding the step.
OPTIMIZER: dict[str, Any] = {
    "lr": 0.02,
    "betas": (0.9, 0.99),
    "eps": 1e-3,
    "weight_decay": 0.0,
}
#: The norm that gradients are clipped to, which the first steps' are above.
CLIP = 0.5
#: How far losses may be off, relatively, and what training has changed of the parameters, as a share of the
#: largest change: what each type rounds, several steps on.
_BOUNDS = {
    torch.float32: (3e-4, 2e-3),
    torch.float16: (1e-2, 0.1),
    torch.bfloat16: (5e-2, 0.4),
}


class Network(nn.Module):
    """Two layers that record on which device, and in which types, they compute."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.norm, self.last = (
            nn.Linear(12, 24),
            nn.LayerNorm(24),
            nn.Linear(24, 3),
        )
        self.devices: set[torch.device] = set()
        self.dtypes: set[torch.dtype] = set()

    def forward(
        self, features: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(samples, 12) numbers and (samples,) classes to the mean loss and (samples, 3) numbers."""
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


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return features and labels, on the host."""
    features = torch.randn(BATCH, 12, generator=torch.Generator().manual_seed(3))
    return features, torch.arange(BATCH) % 3


def parameters_of(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of the parameters on the host."""
    return {
        name: tensor.detach().cpu().clone()
        for name, tensor in network.named_parameters()
    }


def require_claimed(accelerator: Accelerator, dtype: torch.dtype) -> None:
    """End the part unless the accelerator says that it trains in that type."""
    if dtype not in accelerator.supported_dtypes():
        skip_unsupported(f"no training in {str(dtype).removeprefix('torch.')}")


def require_same(
    given: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], what: str
) -> None:
    """Check that the parameters are bit-identical."""
    require(
        given.keys() == expected.keys(),
        f"{what}: {sorted(given)} instead of {sorted(expected)}",
    )
    for name, tensor in given.items():
        far = float((tensor.double() - expected[name].double()).abs().max())
        require(far == 0, f"{what}: {name} is off by {far:.1e}")


class Reference(NamedTuple):
    """Plain torch, in float32 on the processor, with the whole batch."""

    #: The loss of each step, before it.
    losses: list[float]
    start: dict[str, torch.Tensor]
    end: dict[str, torch.Tensor]

    @classmethod
    def made(cls) -> Reference:
        """Train it: take this before a framework has changed what torch does."""
        network = Network()
        start = parameters_of(network)
        optimizer = torch.optim.AdamW(network.parameters(), **OPTIMIZER)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss, _output = network(*batch())
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
        """Check that a training ended as this one; `losses` are those of its last steps."""
        faults = [
            *self._of_losses(losses, _BOUNDS[dtype][0]),
            *self._of_parameters(end, _BOUNDS[dtype][1]),
        ]
        require(not faults, "; ".join(faults))

    def _of_losses(self, losses: list[float], bound: float) -> Iterator[str]:
        expected = self.losses[STEPS - len(losses) :]
        for step, (ours, theirs) in enumerate(
            zip(losses, expected, strict=True), STEPS - len(losses)
        ):
            # Not `> bound`: that a number is missing, NaN, is a fault too.
            if not abs(ours - theirs) <= bound * abs(theirs):
                yield f"the loss of step {step} is {ours:.6g}; plain torch on the processor has {theirs:.6g}"
                return

    def _of_parameters(
        self, end: dict[str, torch.Tensor], bound: float
    ) -> Iterator[str]:
        if end.keys() != self.end.keys():
            yield f"the parameters are {sorted(end)} instead of {sorted(self.end)}"
            return
        changed = max(
            float((self.end[name] - self.start[name]).abs().max()) for name in self.end
        )
        far = {
            name: float((end[name].float() - self.end[name]).abs().max()) / changed
            for name in self.end
        }
        name = max(
            far, key=lambda each: float("inf") if far[each] != far[each] else far[each]
        )
        if not far[name] <= bound:
            yield (
                f"after {STEPS} steps {name} is off by {far[name]:.1e} of what plain torch changes on the "
                f"processor, bound {bound:.0e}"
            )


class Rank(NamedTuple):
    """A rank of a framework's program: what its parts need."""

    accelerator: Accelerator
    #: The index of its device.
    device: int
    reference: Reference
    #: Shared by the ranks.
    folder: Path

    @classmethod
    def of(cls, accelerator: Accelerator, folder: str) -> Rank:
        """Return this process, on the device that its place among the ranks gives it."""
        device = int(os.environ["LOCAL_RANK"]) % accelerator.device_count()
        return cls(accelerator, device, Reference.made(), Path(folder))

    def require_trained(
        self,
        network: Network,
        losses: list[float],
        end: dict[str, torch.Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Check that the network was trained on this rank's device, with the reference's result.

        `losses` are those of its last steps; `end` its parameters, where they are not whole in it.
        """  # fmt: skip
        # Of torch, as the accelerator may be wrong; a process may have one device, for any index.
        kind = self.accelerator.device_type
        expected = torch.empty(0, device=f"{kind}:{self.device}").device
        found = sorted(map(str, network.devices))
        require(
            network.devices == {expected},
            f"the network was computed on {found}; expected {expected}",
        )
        products = sorted(map(str, network.dtypes))
        require(
            network.dtypes == {dtype}, f"products were of {products}; expected {dtype}"
        )
        self.reference.require_trained(losses, end or parameters_of(network), dtype)
