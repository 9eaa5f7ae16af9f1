"""One epoch of examples/train_digits.py, without dropout, on the device and on the CPU."""

import importlib.util
import sys
from pathlib import Path

import torch

EXAMPLE = Path(__file__).parents[5] / "examples" / "train_digits.py"


def example():
    spec = importlib.util.spec_from_file_location("train_digits", EXAMPLE)
    module = sys.modules["train_digits"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_an_epoch_is_close_to_the_cpus(acc):
    """Not equal bit for bit.

    A convolution's bias gradient is an operator of its own here, summed in another order.
    """
    import accel_core

    digits = example()
    results = []
    for accelerator in (acc, accel_core.accelerator("cpu")):
        trainer = digits.Trainer(accelerator, torch.float32, seed=0)
        for layer in trainer.model.modules():
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0  # its random numbers are the device's own
        losses = [loss.item() for _, loss in trainer.run_epoch(32)]
        parameters = [p.detach().cpu() for p in trainer.model.parameters()]
        results.append((losses, parameters, trainer.accuracy()))
    (losses, parameters, accuracy), (cpu_losses, cpu_parameters, cpu_accuracy) = results
    assert len(losses) == 45
    assert losses[:2] == cpu_losses[:2]
    assert max(abs(a - b) for a, b in zip(losses, cpu_losses, strict=True)) < 1e-5
    assert (
        max(
            float((a - b).abs().max())
            for a, b in zip(parameters, cpu_parameters, strict=True)
        )
        < 1e-5
    )
    assert abs(accuracy - cpu_accuracy) < 0.01
