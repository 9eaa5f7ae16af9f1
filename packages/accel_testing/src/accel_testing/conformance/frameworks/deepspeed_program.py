"""Training of each rank with DeepSpeed: `python -m …frameworks.deepspeed_program FOLDER PART…`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from accel_testing.conformance.claims import require
from accel_testing.conformance.frameworks.training import (
    BATCH,
    CLIP,
    OPTIMIZER,
    SAVED_AT,
    STEPS,
    Network,
    Rank,
    batch,
    parameters_of,
    require_claimed,
    require_same,
)
from accel_testing.conformance.parts import run_parts

__all__ = ["PARTS"]

#: Buffers that no device is too small for, and parameters that are all partitioned, small as they are.
_SMALL = {
    "reduce_bucket_size": 1000,
    "allgather_bucket_size": 1000,
    "stage3_param_persistence_threshold": 0,
}
_OFFLOAD = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
#: Seconds after which a collective that nobody joins is an error.
_PATIENCE = 60.0


def main(folder: str, *names: str) -> None:
    """Activate, as docs/howto/deepspeed.md has it, join the others, and train."""

    def begin() -> tuple[Rank]:
        from accel_train.deepspeed import activate

        rank = Rank.of(activate().accelerator, folder)
        import deepspeed

        rank.accelerator.set_device(rank.device)
        deepspeed.init_distributed(timeout=timedelta(seconds=_PATIENCE))
        return (rank,)

    run_parts(Path(folder), begin, {name: PARTS[name] for name in names or PARTS})


def _activates(rank: Rank) -> None:
    from deepspeed.accelerator import get_accelerator

    found, ours = get_accelerator(), rank.accelerator
    require(
        found is ours,
        f"DeepSpeed's get_accelerator() gives {found!r}; expected {ours!r}",
    )
    size = torch.ones(1, device=ours.device(rank.device))
    torch.distributed.all_reduce(size)
    world = torch.distributed.get_world_size()
    require(
        size.item() == world, f"all_reduce of 1 over {world} ranks gave {size.item()}"
    )


class _Training:
    """An engine of a stage of ZeRO, and its network."""

    def __init__(
        self,
        rank: Rank,
        stage: int,
        *,
        seed: int = 0,
        offload: bool = False,
        own: bool = False,
        **more: Any,
    ) -> None:
        import deepspeed

        self.rank, self.stage = rank, stage
        self.network = Network(seed)
        ranks = torch.distributed.get_world_size()
        configuration = {
            "train_micro_batch_size_per_gpu": BATCH // ranks,
            "zero_optimization": {
                "stage": stage,
                **_SMALL,
                **(_OFFLOAD if offload else {}),
            },
            # torch's but where it is asked for: DeepSpeed's own is compiled for some devices, for minutes.
            "optimizer": {
                "type": "AdamW",
                "params": {**OPTIMIZER, **({} if own else {"torch_adam": True})},
            },
            "gradient_clipping": CLIP,
            "steps_per_print": 1_000_000,
            **more,
        }
        self.engine, *_ = deepspeed.initialize(
            model=self.network,
            model_parameters=list(self.network.parameters()),
            config=configuration,
        )

    def steps(self, number: int) -> list[float]:
        """Train so many steps; the whole batch's loss before each."""
        ranks, place = torch.distributed.get_world_size(), torch.distributed.get_rank()
        losses = []
        for _ in range(number):
            loss, _output = self.engine(
                *(part[place::ranks].to(self.engine.device) for part in batch())
            )
            self.engine.backward(loss)
            self.engine.step()
            mean = loss.detach().float().clone()
            torch.distributed.all_reduce(mean)
            losses.append(mean.item() / ranks)
        return losses

    def parameters(self) -> dict[str, torch.Tensor]:
        """All of them, whole."""
        import deepspeed

        parameters = list(self.network.parameters())
        with deepspeed.zero.GatheredParameters(parameters, enabled=self.stage == 3):
            return parameters_of(self.network)

    def end(self) -> None:
        """Leave the process to the next one."""
        self.engine.destroy()
        del self.engine
        gc.collect()


def _trains(stage: int) -> Callable[[Rank], None]:
    def part(rank: Rank) -> None:
        training = _Training(rank, stage)
        losses = training.steps(SAVED_AT)
        place = rank.folder / f"zero-{stage}"
        training.engine.save_checkpoint(str(place))
        _keep(training.parameters(), place)
        losses += training.steps(STEPS - SAVED_AT)
        rank.require_trained(training.network, losses, training.parameters())
        training.end()

    return part


def _keep(parameters: dict[str, torch.Tensor], place: Path) -> None:
    if torch.distributed.get_rank() == 0:
        torch.save(parameters, place / "as-saved.pt")
    torch.distributed.barrier()


def _resumes(stage: int) -> Callable[[Rank], None]:
    def part(rank: Rank) -> None:
        place = rank.folder / f"zero-{stage}"
        require(
            (place / "as-saved.pt").exists(),
            "no checkpoint was saved: see the check of the training",
        )
        training = _Training(rank, stage, seed=1)
        found, _state = training.engine.load_checkpoint(str(place))
        require(found, "load_checkpoint found no checkpoint")
        saved = torch.load(place / "as-saved.pt", map_location="cpu", weights_only=True)
        require_same(
            training.parameters(),
            saved,
            "parameters of a checkpoint, once it is loaded",
        )
        losses = training.steps(STEPS - SAVED_AT)
        rank.require_trained(training.network, losses, training.parameters())
        training.end()

    return part


def _in_bfloat16(rank: Rank) -> None:
    _mixed(rank, torch.bfloat16, bf16={"enabled": True})


def _in_float16(rank: Rank) -> None:
    # A fixed scale: one that is found by trying would leave the first steps out.
    _mixed(rank, torch.float16, fp16={"enabled": True, "loss_scale": 128})


def _mixed(rank: Rank, dtype: torch.dtype, **precision: Any) -> None:
    require_claimed(rank.accelerator, dtype)
    _trains_at_once(_Training(rank, 1, **precision), dtype)


def _trains_at_once(training: _Training, dtype: torch.dtype = torch.float32) -> None:
    losses = training.steps(STEPS)
    training.rank.require_trained(
        training.network, losses, training.parameters(), dtype
    )
    training.end()


def _offloaded(rank: Rank) -> None:
    _trains_at_once(_Training(rank, 2, offload=True, own=True))


def _fused_adam(rank: Rank) -> None:
    _trains_at_once(_Training(rank, 1, own=True))


#: In this order: ZeRO 3 replaces `torch.nn.functional.linear` in the process, and leaves it so; what the
#: last two use is compiled on some devices, for minutes.
PARTS: dict[str, Callable[[Rank], None]] = {
    "activates": _activates,
    "zero_1": _trains(1),
    "zero_1_resumes": _resumes(1),
    "zero_in_bfloat16": _in_bfloat16,
    "zero_in_float16": _in_float16,
    "zero_3": _trains(3),
    "zero_3_resumes": _resumes(3),
    "zero_2_offloaded": _offloaded,
    "fused_adam": _fused_adam,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
