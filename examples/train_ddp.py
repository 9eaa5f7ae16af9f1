"""Train a small network on scikit-learn's digits with data parallelism, on any number of ranks and hosts.

    accel run examples/train_ddp.py                                   # a rank for each device of this host
    accel run --nproc-per-node 2 examples/train_ddp.py --checkpoint last.pt

A checkpoint is written every few steps, whole or not at all, and a run that finds one goes on from it, as it
does after a restart by the launcher: bit for bit, when the number of ranks is the same
(docs/howto/multinode.md).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from accel_train import RankContext, init_process_group


class Training:
    """The model on this rank, its optimiser and the step they are at."""

    def __init__(self, rank: RankContext, batch_size: int) -> None:
        self.rank = rank
        self.step = 0
        self.batch_size = batch_size
        images, labels = load_digits(return_X_y=True)
        self.images = torch.tensor(images, dtype=torch.float32) / 16
        self.labels = torch.tensor(labels)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(rank.device)
        device_ids = [rank.device.index] if rank.accelerator.is_accelerator() else None
        self.model = DistributedDataParallel(model, device_ids=device_ids)
        # Thrown away: after its first step DDP packs the gradients anew, in the order in which they came, and
        # that moves them to other places in the ring that adds them up. A run that goes on from a checkpoint
        # must be past that too, or it would differ in the last bit.
        self.model(torch.zeros(1, 64, device=rank.device)).sum().backward()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def train_step(self) -> torch.Tensor:
        """One step on this rank's part of the batch, which depends on the step's number alone; its loss."""
        size = self.batch_size * self.rank.world_size
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(self.step))[:size]
        mine = order[self.rank.rank :: self.rank.world_size]
        images, labels = self.images[mine].to(self.rank.device), self.labels[mine].to(self.rank.device)
        loss = functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def save(self, path: Path) -> None:
        """Write a checkpoint under another name and rename it, so that no reader ever sees half of one."""
        saved = {
            "step": self.step,
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        half = path.with_name(f"{path.name}.{self.rank.host}.{os.getpid()}")
        with half.open("wb") as file:
            torch.save(saved, file)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint. Every rank reads it, from a disk that all hosts share."""
        saved: dict[str, Any] = torch.load(path, map_location=self.rank.device, weights_only=True)
        self.step = saved["step"]
        self.model.module.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])

    def mean(self, loss: torch.Tensor) -> float:
        """The mean of `loss` over all ranks."""
        total = loss.clone()
        torch.distributed.all_reduce(total)
        return total.item() / self.rank.world_size

    def digest(self) -> str:
        """SHA-256 over all parameters: two runs are bit-equal when their digests are."""
        sha = hashlib.sha256()
        for parameter in self.model.module.state_dict().values():
            sha.update(parameter.cpu().numpy().tobytes())
        return sha.hexdigest()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32, help="images a step and rank")
    parser.add_argument("--checkpoint", type=Path, help="write it here, and go on from it when it is there")
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that a collective may take")
    parser.add_argument("--silence", type=float, default=10, help="seconds after which a silent rank is lost")
    parser.add_argument("--pause", type=float, default=0, help="seconds to sleep after each step")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    timeout = timedelta(seconds=arguments.timeout)
    with init_process_group(timeout=timeout, silence=arguments.silence) as rank:
        training = Training(rank, arguments.batch_size)
        path: Path | None = arguments.checkpoint
        if path is not None and path.exists():
            training.load(path)
        print(f"rank {rank.rank} of {rank.world_size} on {rank.host}: from step {training.step}", flush=True)
        loss = torch.full((), torch.nan, device=rank.device)  # what a run that is already at its end reports
        while training.step < arguments.steps:
            loss = training.train_step()
            # All ranks are past this step when one of them is past the barrier that the gradients are.
            if path is not None and training.step % arguments.every == 0:
                if rank.rank == 0:
                    training.save(path)
                    print(f"rank 0: checkpoint at step {training.step}", flush=True)
                torch.distributed.barrier()
            time.sleep(arguments.pause)
        report = {"steps": training.step, "loss": training.mean(loss), "parameters_sha256": training.digest()}
        if rank.rank == 0:
            print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
