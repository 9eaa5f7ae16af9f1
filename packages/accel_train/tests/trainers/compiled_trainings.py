"""Trainings with Lightning and Transformers that call torch.compile without naming a compiler."""

from __future__ import annotations

from typing import Any

import torch

import accel_core
from accel_train import default_compiler

#: Computes on every device what it computes on the CPU.
COMPILER = "aot_eager"


def lightning() -> dict[str, Any]:
    """On the chosen accelerator, and on the CPU by Lightning's own rules."""
    import lightning.pytorch as pl
    import lightning_digits
    from lightning.fabric import Fabric
    from torch import nn

    from accel_train.lightning import fabric_options, trainer_options

    defaults: list[Any] = []

    class Compiled(lightning_digits.Digits):
        def configure_model(self) -> None:
            defaults.append(torch.compiler.get_default_backend())
            plain = nn.Sequential(self.layers[0], self.layers[1], self.layers[3])  # compiled dropout differs
            self.layers = torch.compile(plain)

    def fit(**options: Any) -> dict[str, Any]:
        torch._dynamo.reset()
        model = Compiled()
        torch.manual_seed(1)
        more = {"logger": False, "enable_checkpointing": False, **lightning_digits.QUIET, **options}
        pl.Trainer(max_epochs=1, **more).fit(
            model, lightning_digits.data(), lightning_digits.data(shuffle=False)
        )
        defaults.append(torch.compiler.get_default_backend())
        told = lightning_digits.told(model)
        return {key: told[key] for key in ("losses", "parameters", "accuracy")}

    accel_core.get_accelerator().set_compile_backend(COMPILER)
    ours = fit(**trainer_options(devices=1))
    cpu = accel_core.accelerator("cpu")
    cpu.set_compile_backend(COMPILER)
    with default_compiler(cpu):
        theirs = fit(accelerator="cpu", devices=1)
    fabric = Fabric(**fabric_options(devices=1))
    fabric.setup(torch.compile(nn.Linear(2, 2)))
    defaults.append(torch.compiler.get_default_backend())
    return {"equal": ours == theirs, "accuracy": ours["accuracy"], "defaults": defaults}


def transformers(folder: str) -> dict[str, Any]:
    """With `torch_compile=True`; and what names a compiler that Accelerate does not know."""
    import trainer_gpt as gpt

    acc = accel_core.get_accelerator()
    acc.set_compile_backend(COMPILER)

    def trainer(**more: Any) -> Any:
        ids = [gpt.tokenizer()(text)["input_ids"] for text in gpt.sentences()]
        data = gpt.Dataset.from_list([{"input_ids": row, "labels": row} for row in ids])
        arguments = gpt.Arguments(**gpt.options("mixin", folder, 1, save_strategy="no", **more))
        return gpt.Trainer(model=gpt.model(), args=arguments, train_dataset=data)

    def refused(**more: Any) -> str:
        try:
            trainer(**more)
        except accel_core.IntegrationError as error:
            return str(error)
        return "nothing"

    made = trainer(torch_compile=True)
    made.train()
    acc.set_compile_backend("eager")
    return {
        "device": str(made.args.device),
        "compiler": made.args.torch_compile_backend,
        "compiled": type(made.model_wrapped).__name__,
        "losses": [line["loss"] for line in made.state.log_history if "loss" in line],
        "accel": trainer(torch_compile_backend="accel").args.torch_compile_backend,
        "refused": refused(torch_compile_backend="cudagraph_trees"),
    }
