"""Lightning's `Trainer` and `Fabric` on our CPU accelerator: the same as on its own, to the last bit."""

from __future__ import annotations

import copy
import csv
import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("sklearn")

import lightning.pytorch as pl
import torch
from lightning.fabric import Fabric
from lightning.fabric.accelerators import Accelerator as FabricAccelerator
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.callbacks import DeviceStatsMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning_digits import Digits, fit, fit_with_fabric, told

import accel_core
from accel_train.lightning import accelerator, fabric_options, register, trainer_options

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lightnings_own() -> dict[str, Any]:
    """An epoch on Lightning's own CPU accelerator."""
    return told(fit(accelerator="cpu", devices=1)[0])


def test_an_epoch_equals_lightnings_own_cpu(lightnings_own: dict[str, Any]) -> None:
    model, trainer = fit(**trainer_options("cpu"))
    assert told(model) == lightnings_own
    assert len(model.losses) == 29
    assert lightnings_own["accuracy"] > 0.8
    assert isinstance(trainer.accelerator, Accelerator)
    assert trainer.accelerator.name() == "cpu"
    assert type(trainer.strategy).__mro__[2] is pl.strategies.SingleDeviceStrategy


def test_the_accelerator_alone_is_enough_on_the_cpu(lightnings_own: dict[str, Any]) -> None:
    model, _ = fit(accelerator=accelerator("cpu"))
    assert told(model) == lightnings_own


def test_without_a_name_the_choice_of_this_process_is_meant() -> None:
    with accel_core.use_accelerator("cpu") as chosen:
        assert trainer_options()["accelerator"].ours() is chosen


def test_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    through, _ = fit(epochs=2, **trainer_options("cpu"))
    at_end = _AtEnd()  # a checkpoint of Lightning's does not hold the generator's state
    first, trainer = fit(**trainer_options("cpu"), callbacks=[at_end])
    saved = tmp_path / "saved.ckpt"
    trainer.save_checkpoint(saved)
    loaded = Digits()
    loaded.load_state_dict(torch.load(saved, weights_only=False)["state_dict"])
    assert told(loaded)["parameters"] == told(first)["parameters"]
    second, trainer = fit(epochs=2, resume=saved, random=at_end.random, **trainer_options("cpu"))
    assert trainer.current_epoch == 2
    assert second.losses == through.losses[29:]
    assert told(second)["parameters"] == told(through)["parameters"]


class _AtEnd(pl.Callback):
    random: torch.Tensor

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.random = torch.get_rng_state()


def test_the_device_stats_monitor_logs_our_numbers(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    fit(**trainer_options("cpu"), logger=logger, callbacks=[DeviceStatsMonitor()], log_every_n_steps=10)
    with Path(logger.log_dir, "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    (column,) = [c for c in rows[0] if c.endswith("on_train_batch_end/allocated_bytes.all.current")]
    amounts = [float(row[column]) for row in rows if row[column]]
    assert amounts
    assert all(amount > 2**20 for amount in amounts)


def test_mixed_precision_is_made_for_our_device() -> None:
    model, trainer = fit(**trainer_options("cpu"), precision="bf16-mixed")
    assert trainer.precision_plugin.device == "cpu"
    assert told(model)["dtypes"] == ["torch.bfloat16"]
    assert told(model)["accuracy"] > 0.8


def test_mixed_precision_for_another_device_is_refused() -> None:
    with pytest.raises(accel_core.IntegrationError, match=r"mixed precision is for cuda.*trainer_options"):
        fit(accelerator=accelerator("cpu"), precision="bf16-mixed")


def test_lightning_finds_a_registered_backend_by_string(lightnings_own: dict[str, Any]) -> None:
    lightnings = AcceleratorRegistry["cpu"]["accelerator"]
    names = register()
    assert register() == names
    assert "cpu" not in names  # Lightning has one, which stays
    assert AcceleratorRegistry["cpu"]["accelerator"] is lightnings
    assert set(names) <= AcceleratorRegistry.available_accelerators()
    model, trainer = fit(accelerator="cpu", devices=1, strategy="accel")
    assert type(trainer.strategy).__module__.startswith("accel_train.")
    assert told(model) == lightnings_own


def test_a_registered_backend_without_a_device_is_reported_by_lightning() -> None:
    class Registry(dict[str, Any]):
        def register(self, name: str, kind: Any, description: str) -> None:
            self[name] = kind

    registry = Registry()
    kind = type(accelerator("cpu"))
    kind.register_accelerators(registry)
    assert registry == {"cpu": kind}
    nobodys = type("Nobodys", (kind,), {"backend_name": "nobodys"})
    assert not nobodys.is_available()
    with pytest.raises(pl.utilities.exceptions.MisconfigurationException, match=r"Nobodys.*not available"):
        pl.Trainer(accelerator=nobodys(), logger=False)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_fabric_equals_its_own_cpu(precision: str) -> None:
    ours = told(fit_with_fabric(Fabric(precision=precision, **fabric_options("cpu"))))
    assert ours == told(fit_with_fabric(Fabric(precision=precision, accelerator="cpu", devices=1)))
    assert ours["losses"][-1] < ours["losses"][0] / 2
    assert isinstance(fabric_options("cpu")["accelerator"], FabricAccelerator)


@pytest.mark.parametrize("devices", [2, "2", [0, 1], "0,1"])
def test_processes_share_the_cpu(devices: Any) -> None:
    options = trainer_options("cpu", devices=devices)
    assert options["devices"] == 2
    theirs = [each for each in type(options["strategy"]).__mro__ if each.__module__.startswith("lightning.")]
    assert theirs[0] is pl.strategies.DDPStrategy
    found = options["accelerator"]
    assert found.get_parallel_devices(options["devices"]) == [torch.device("cpu")] * 2


@pytest.mark.parametrize("devices", [0, -2, "", "many", [], [0, 0], [True], 1.5, None, "0.5,1"])
def test_devices_that_mean_nothing_are_refused(devices: Any) -> None:
    with pytest.raises(ValueError, match=r"devices=.*expected a count, a list of different indices, or -1"):
        trainer_options("cpu", devices=devices)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(accel_core.IntegrationError, match=r"strategy='deepspeed': on cpu.*activate\(\)$"):
        trainer_options("cpu", strategy="deepspeed")


def test_fsdp_on_the_cpu_is_refused_with_what_works() -> None:
    fabric = Fabric(**fabric_options("cpu", strategy="fsdp"))
    for start in (fabric.launch, lambda: fit(**trainer_options("cpu", strategy="fsdp"))):
        with pytest.raises(accel_core.IntegrationError, match=r"does not run on the CPU.*='model_parallel'"):
            start()


def test_accelerators_travel_to_spawned_processes() -> None:
    found = accelerator("cpu")
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is type(found)
    assert again.ours() is found.ours()
    assert type(copy.deepcopy(found)) is type(found)
    for options in (trainer_options, fabric_options):
        strategy = type(options("cpu", strategy="ddp")["strategy"])
        assert pickle.loads(pickle.dumps(strategy)) is strategy


def test_a_name_that_is_no_backend_is_refused_as_elsewhere() -> None:
    with pytest.raises(accel_core.BackendNotFoundError, match="nobodys"):
        accelerator("nobodys")
