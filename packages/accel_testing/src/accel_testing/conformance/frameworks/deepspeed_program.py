"""Train in each rank with DeepSpeed: `python -m …frameworks.deepspeed_program FOLDER PART…`."""

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
    make_batch,
    parameters_of,
    require_claimed,
    require_same,
)
from accel_testing.conformance.parts import run_parts

__all__ = ["PARTS"]

#: Small buffers, and a threshold with which small parameters are partitioned too.
_SMALL = {
    "reduce_bucket_size": 1000,
    "allgather_bucket_size": 1000,
    "stage3_param_persistence_threshold": 0,
}
_OFFLOAD = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
#: The timeout, in seconds, of a collective that a rank does not join.
_COLLECTIVE_TIMEOUT = 60.0


def main(folder: str, *names: str) -> None:
    """Activate DeepSpeed as in docs/howto/deepspeed.md, join the other ranks, and run the parts."""

    def begin() -> tuple[Rank]:
        from accel_train.deepspeed import activate

        rank = Rank.of(activate().accelerator, folder)
        import deepspeed

        rank.accelerator.set_device(rank.device)
        deepspeed.init_distributed(timeout=timedelta(seconds=_COLLECTIVE_TIMEOUT))
        return (rank,)

    run_parts(Path(folder), begin, {name: PARTS[name] for name in names or PARTS})


def _require_activated(rank: Rank) -> None:
    """Require that DeepSpeed uses the accelerator, and that the ranks can communicate."""
    from deepspeed.accelerator import get_accelerator

    activated, expected = get_accelerator(), rank.accelerator
    require(
        activated is expected,
        f"DeepSpeed's get_accelerator() returned {activated!r}; expected {expected!r}",
    )
    size = torch.ones(1, device=expected.device(rank.device))
    torch.distributed.all_reduce(size)
    world = torch.distributed.get_world_size()
    require(
        size.item() == world,
        f"all_reduce of 1 over {world} ranks returned {size.item()}",
    )


class _Training:
    """The training of a network with one of ZeRO's stages."""

    def __init__(
        self,
        rank: Rank,
        stage: int,
        *,
        seed: int = 0,
        offload: bool = False,
        use_own_adam: bool = False,
        **options: Any,
    ) -> None:
        import deepspeed

        self.rank, self.stage = rank, stage
        self.network = Network(seed)
        ranks = torch.distributed.get_world_size()
        zero: dict[str, Any] = {"stage": stage, **_SMALL}
        if offload:
            zero |= _OFFLOAD
        adam = dict(OPTIMIZER)
        # DeepSpeed's Adam must be compiled for some devices, which takes minutes.
        if not use_own_adam:
            adam["torch_adam"] = True
        configuration = {
            "train_micro_batch_size_per_gpu": BATCH // ranks,
            "zero_optimization": zero,
            "optimizer": {"type": "AdamW", "params": adam},
            "gradient_clipping": CLIP,
            "steps_per_print": 1_000_000,
            **options,
        }
        self.engine, *_ = deepspeed.initialize(
            model=self.network,
            model_parameters=list(self.network.parameters()),
            config=configuration,
        )

    def run_steps(self, number: int) -> list[float]:
        """Train for `number` steps, and return the loss of the whole batch before each step."""
        ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
        losses = []
        for _ in range(number):
            loss, _output = self.engine(
                *(part[rank::ranks].to(self.engine.device) for part in make_batch())
            )
            self.engine.backward(loss)
            self.engine.step()
            mean = loss.detach().float().clone()
            torch.distributed.all_reduce(mean)
            losses.append(mean.item() / ranks)
        return losses

    def parameters(self) -> dict[str, torch.Tensor]:
        """Return copies of the parameters, gathered from all ranks with ZeRO 3."""
        import deepspeed

        parameters = list(self.network.parameters())
        with deepspeed.zero.GatheredParameters(parameters, enabled=self.stage == 3):
            return parameters_of(self.network)

    def end(self) -> None:
        """Free the engine, so that the process can start another engine."""
        self.engine.destroy()
        del self.engine
        gc.collect()


def _train_and_save(stage: int) -> Callable[[Rank], None]:
    """Return a part that trains with a stage of ZeRO, and saves a checkpoint during the training."""

    def train(rank: Rank) -> None:
        training = _Training(rank, stage)
        losses = training.run_steps(SAVED_AT)
        checkpoint = rank.folder / f"zero-{stage}"
        training.engine.save_checkpoint(str(checkpoint))
        _save_parameters(training.parameters(), checkpoint)
        losses += training.run_steps(STEPS - SAVED_AT)
        rank.require_trained(training.network, losses, training.parameters())
        training.end()

    return train


def _save_parameters(parameters: dict[str, torch.Tensor], checkpoint: Path) -> None:
    """Save the parameters next to the checkpoint, for `_resume`, and wait for all ranks."""
    if torch.distributed.get_rank() == 0:
        torch.save(parameters, checkpoint / "as-saved.pt")
    torch.distributed.barrier()


def _resume(stage: int) -> Callable[[Rank], None]:
    """Return a part that loads the checkpoint of `_train_and_save`, and trains the remaining steps."""

    def resume(rank: Rank) -> None:
        checkpoint = rank.folder / f"zero-{stage}"
        require(
            (checkpoint / "as-saved.pt").exists(),
            "no checkpoint was saved: see the training's check",
        )
        training = _Training(rank, stage, seed=1)
        loaded, _state = training.engine.load_checkpoint(str(checkpoint))
        require(loaded, "load_checkpoint found no checkpoint")
        saved = torch.load(
            checkpoint / "as-saved.pt", map_location="cpu", weights_only=True
        )
        require_same(
            training.parameters(),
            saved,
            "the parameters of the loaded checkpoint",
        )
        losses = training.run_steps(STEPS - SAVED_AT)
        rank.require_trained(training.network, losses, training.parameters())
        training.end()

    return resume


def _train_in_bfloat16(rank: Rank) -> None:
    """Train with ZeRO 1 in bfloat16."""
    _train_in_short_type(rank, torch.bfloat16, bf16={"enabled": True})


def _train_in_float16(rank: Rank) -> None:
    """Train with ZeRO 1 in float16."""
    # The scale is fixed, because DeepSpeed would skip the first steps to find a scale.
    _train_in_short_type(rank, torch.float16, fp16={"enabled": True, "loss_scale": 128})


def _train_in_short_type(rank: Rank, dtype: torch.dtype, **precision: Any) -> None:
    """Train with ZeRO 1 in `dtype`; skip the part if the accelerator does not claim the type."""
    require_claimed(rank.accelerator, dtype)
    _train_all_steps(_Training(rank, 1, **precision), dtype)


def _train_all_steps(training: _Training, dtype: torch.dtype = torch.float32) -> None:
    """Train all steps, and require the result of the reference training."""
    losses = training.run_steps(STEPS)
    training.rank.require_trained(
        training.network, losses, training.parameters(), dtype
    )
    training.end()


def _train_offloaded(rank: Rank) -> None:
    """Train with ZeRO 2 and the optimizer on the CPU."""
    _train_all_steps(_Training(rank, 2, offload=True, use_own_adam=True))


def _train_with_fused_adam(rank: Rank) -> None:
    """Train with ZeRO 1 and DeepSpeed's Adam."""
    _train_all_steps(_Training(rank, 1, use_own_adam=True))


#: The parts. The order matters: ZeRO 3 replaces `torch.nn.functional.linear` for the rest of the process, and
#: the operators of the last two parts must be compiled for some devices, which takes minutes.
PARTS: dict[str, Callable[[Rank], None]] = {
    "activates": _require_activated,
    "zero_1": _train_and_save(1),
    "zero_1_resumes": _resume(1),
    "zero_in_bfloat16": _train_in_bfloat16,
    "zero_in_float16": _train_in_float16,
    "zero_3": _train_and_save(3),
    "zero_3_resumes": _resume(3),
    "zero_2_offloaded": _train_offloaded,
    "fused_adam": _train_with_fused_adam,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
