"""Train on 1,797 real images of digits with Hugging Face Accelerate, in one process or several.

Its one argument is JSON: `out`, where each rank writes what it saw; `own` for Accelerate's own rules, without
us; `mixed_precision`; `checkpoints`, a folder to save the state to and to go back to it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import accel_core
from accel_train.accelerate import partial_state


def train(
    own: bool = False, mixed_precision: str | None = None, checkpoints: str | None = None
) -> tuple[Accelerator, dict[str, Any]]:
    """An epoch; the batch of 64 is shared among the ranks."""
    if not own:
        partial_state()
    accelerator = Accelerator(cpu=own, mixed_precision=mixed_precision)
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    pairs = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    # Without dropout: in several processes each would draw the same mask.
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    loader = DataLoader(pairs, batch_size=64 // accelerator.num_processes, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(
        network, torch.optim.Adam(network.parameters(), 1e-2), loader
    )
    losses: list[float] = []

    def step(batch: Any) -> None:
        output = model(batch[0])
        loss = nn.functional.cross_entropy(output, batch[1])
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())

    batches = list(loader)
    for batch in batches:
        step(batch)
    trained = digest(accelerator.unwrap_model(model))
    if checkpoints:
        accelerator.save_state(checkpoints)
        step(batches[0])
        after, first = digest(accelerator.unwrap_model(model)), losses.pop()
        accelerator.load_state(checkpoints, map_location="cpu")  # safetensors knows no other device here
        assert digest(accelerator.unwrap_model(model)) == trained != after
        step(batches[0])
        assert losses.pop() == first
        assert digest(accelerator.unwrap_model(model)) == after
    mine = torch.tensor([accelerator.process_index], device=accelerator.device)
    accelerator.wait_for_everyone()
    state = accelerator.state
    return accelerator, {
        "rank": state.process_index,
        "world": state.num_processes,
        "main": accelerator.is_local_main_process,
        "type": state.distributed_type.value,
        "backend": state.backend,
        "device": str(state.device),
        "data": str(batches[0][0].device),
        "wrapped": type(model).__name__,
        "gathered": accelerator.gather(mine).tolist(),
        "losses": losses,
        "parameters": trained,
    }


def digest(model: nn.Module) -> str:
    """The parameters, to the last bit."""
    parts = [tensor.detach().cpu().numpy().tobytes() for tensor in model.state_dict().values()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def too_late() -> str:
    """What is said after Accelerate has chosen by its own rules."""
    Accelerator()
    return refused(partial_state, accel_core.IntegrationError)


def without_enough_devices() -> str:
    """What the second rank of a host is told whose launcher shows each rank one device."""
    return refused(partial_state, accel_core.IntegrationError)


def fp16() -> str:
    """What Accelerate says to fp16 on the chosen device."""
    partial_state()
    return refused(lambda: Accelerator(mixed_precision="fp16"), ValueError)


def refused(call: Callable[[], Any], kind: type[Exception]) -> str:
    """The message of the error that `call` must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    out = Path(asked.pop("out"))
    accelerator, seen = train(**asked)
    (out / f"{seen['rank']}.json").write_text(json.dumps(seen))
    accelerator.end_training()
    # gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
    time.sleep(0.2)
