"""Train on real images of digits with Hugging Face Accelerate, in one process or several.

`jobs.report` tells how it is started: `own` for Accelerate's own rules, without us; `mixed_precision`;
`checkpoints`, a folder to save the state to and to go back to it.
"""

import torch
from accel_tests import jobs
from accelerate import Accelerator

from accel_train.accelerate import partial_state


def train(own=False, mixed_precision=None, checkpoints=None):
    """An epoch; the batch of 64 is shared among the ranks."""
    if not own:
        partial_state()
    accelerator = Accelerator(cpu=own, mixed_precision=mixed_precision)
    # Without dropout: in several processes each would draw the same mask.
    network = jobs.network()
    loader = jobs.digits(64 // accelerator.num_processes, drop_last=True)
    adam = torch.optim.Adam(network.parameters(), 1e-2)
    model, optimizer, loader = accelerator.prepare(network, adam, loader)
    losses = []

    def step(batch):
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())

    def learned():
        return jobs.digest(accelerator.unwrap_model(model))

    batches = list(loader)
    for batch in batches:
        step(batch)
    trained = learned()
    if checkpoints:
        accelerator.save_state(checkpoints)
        step(batches[0])
        after, first = learned(), losses.pop()
        accelerator.load_state(
            checkpoints, map_location="cpu"
        )  # safetensors knows no other device here
        assert learned() == trained != after
        step(batches[0])
        assert losses.pop() == first
        assert learned() == after
    assert losses[-1] < losses[0] / 2
    mine = torch.tensor([accelerator.process_index], device=accelerator.device)
    accelerator.wait_for_everyone()
    state = accelerator.state
    return {
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


if __name__ == "__main__":
    jobs.report(train)
