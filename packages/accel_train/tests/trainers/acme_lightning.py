"""Runs with Lightning in one process on the simulated `acme`: each gives what `test_acme` compares."""

from __future__ import annotations

from typing import Any

import torch
from lightning.fabric import Fabric
from lightning_digits import fit, fit_with_fabric, told

import accel_core
from accel_train.lightning import accelerator, fabric_options, register, trainer_options


def everything(folder: str) -> dict[str, Any]:
    """All the runs, since the device is started once a process."""
    assert accel_core.get_accelerator().name == "acme"
    answers: dict[str, Any] = {"cpu": told(fit(accelerator="cpu", devices=1)[0])}
    answers["chosen"] = told(fit(**trainer_options(devices=1))[0])
    answers["second device"] = told(fit(**trainer_options(devices=[1]))[0])
    answers["strings"] = {"names": register()}
    answers["strings"] |= told(fit(accelerator="acme", strategy="accel", devices=1)[0])
    mixed, trainer = fit(**trainer_options(devices=1), precision="bf16-mixed")
    answers["bf16"] = {**told(mixed), "autocast": trainer.precision_plugin.device}
    model, trainer = fit(
        **trainer_options(devices=1), enable_checkpointing=True, default_root_dir=folder, epochs=1
    )
    saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)
    devices = {str(value.device) for value in saved["state_dict"].values()}
    resumed, trainer = fit(
        epochs=2, resume=trainer.checkpoint_callback.best_model_path, **trainer_options(devices=1)
    )
    answers["checkpoint"] = {
        "devices": sorted(devices),
        "steps": trainer.global_step,
        "improved": told(resumed)["accuracy"] > told(model)["accuracy"],
    }
    answers["stats"] = accelerator().get_device_stats(torch.device("acme", 0))
    answers["alone"] = _refused(accelerator=accelerator(), devices=1)
    answers["devices"] = [str(d) for d in accelerator().get_parallel_devices([0, 1])]
    answers["auto"] = accelerator().auto_device_count()
    answers["too many"] = _refused_devices(3)
    answers["fabric"] = [_fabric(**fabric_options(devices=1)), _fabric(accelerator="cpu", devices=1)]
    answers["fabric alone"] = _fabric_refused()
    return answers


def _refused(**trainer: Any) -> str:
    try:
        fit(**trainer)
    except accel_core.IntegrationError as error:
        return str(error)
    return "trained"


def _refused_devices(devices: int) -> str:
    try:
        trainer_options(devices=devices)
    except ValueError as error:
        return str(error)
    return "taken"


def _fabric_refused() -> str:
    try:
        _fabric(accelerator=accelerator(), devices=1)
    except accel_core.IntegrationError as error:
        return str(error)
    return "trained"


def _fabric(**options: Any) -> dict[str, Any]:
    return told(fit_with_fabric(Fabric(**options)))
