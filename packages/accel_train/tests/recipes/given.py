"""Give the chosen device to a library's program, and report what it computed there."""

import json

import torch

import accel_core

torch.manual_seed(0)


def device():
    """Return the chosen device."""
    return accel_core.get_accelerator().device()


def step(model, loss):
    """Train a step of plain SGD on the loss, and return the loss."""
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return float(loss.detach())


def report(predicted, loss, model):
    """Print what was predicted before the step, the step's loss and the parameters after it."""
    parameters = [parameter.detach() for parameter in model.parameters()]
    answer = {
        "devices": sorted({str(value.device) for value in (*parameters, predicted)}),
        "predicted": predicted.detach().cpu().double().flatten()[:200].tolist(),
        "loss": loss,
        "parameters": torch.cat(
            [p.cpu().double().flatten()[:20] for p in parameters]
        ).tolist(),
    }
    print(json.dumps(answer))
