"""Trainings of children, on the real TorchTPU and on the CPU: `python programs.py NAME ARGUMENTS`."""

import json
import sys
import warnings

warnings.simplefilter("ignore")

STEPS = 4


def _network_and_data():
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 8, generator=generator)
    return network, x, x.sum(1, keepdim=True)


def zero(stage):
    """Train with DeepSpeed's ZeRO of that stage, in one process."""
    import os

    from accel_tests.ports import free_port

    rank = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
    }
    os.environ.update(rank, MASTER_PORT=str(free_port()))
    from accel_train.deepspeed import activate

    device = activate().accelerator.device()
    import deepspeed
    import torch

    deepspeed.init_distributed()
    network, x, y = _network_and_data()
    optimizer = {"type": "Adam", "params": {"lr": 0.05, "torch_adam": True}}
    config = {
        "train_batch_size": 4, "optimizer": optimizer, "zero_optimization": {"stage": int(stage)},
    }  # fmt: skip
    engine, *_ = deepspeed.initialize(
        model=network, model_parameters=network.parameters(), config=config
    )
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.mse_loss(engine(x.to(device)), y.to(device))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def resumed(file):
    """Go on from a checkpoint where there is one, and leave one: two steps."""
    from pathlib import Path

    import torch

    import accel_core

    acc = accel_core.get_accelerator()
    network, x, y = _network_and_data()
    network.to(acc.device())
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    if Path(file).exists():
        state = torch.load(file, map_location="cpu")
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        acc.set_rng_state(state["generator"], strict=False)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(
            network(x.to(acc.device())), y.to(acc.device())
        )
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    states = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**states, "generator": acc.get_rng_state()}, file)
    return losses


def tied():
    """Train two layers that share their weight with Lightning."""
    import torch
    from lightning.pytorch import LightningModule, Trainer

    from accel_train.lightning import trainer_options

    losses = []

    class Tied(LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
            self.last.weight = self.first.weight

        def training_step(self, batch):
            loss = torch.nn.functional.mse_loss(
                self.last(self.first(batch).tanh()), batch
            )
            losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.5)

    rows = torch.randn(4 * STEPS, 8, generator=torch.Generator().manual_seed(1))
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
    }
    trainer = Trainer(
        **trainer_options(devices=1), max_epochs=1, enable_model_summary=False, **quiet
    )
    trainer.fit(Tied(), torch.utils.data.DataLoader(rows, batch_size=4))
    return losses


if __name__ == "__main__":
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(answer))
