"""Lightning's `Trainer` and `Fabric` on our accelerators in one process: as on its own CPU, to the bit."""

import copy
import csv
import os
import pickle
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("sklearn")

import lightning.pytorch as pl
import torch
from accel_tests.forks import forked
from lightning.fabric import Fabric
from lightning.fabric.accelerators import Accelerator as FabricAccelerator
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.callbacks import DeviceStatsMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning_digits import Digits, fit, fit_with_fabric, told

import accel_core
from accel_train.lightning import accelerator, fabric_options, register, trainer_options

ON_BOTH = pytest.mark.parametrize("device", ["cpu", "acme"])


def own():
    """An epoch on Lightning's own CPU accelerator, but for the device."""
    return trained(fit(accelerator="cpu", devices=1)[0], "cpu")


def trained(model, device):
    """What was trained, on that device."""
    found = told(model)
    assert found.pop("devices") == [device]
    assert found["losses"][-1] < found["losses"][0] / 2
    return found


def refused(words, call, *arguments, **options):
    with pytest.raises(accel_core.IntegrationError, match=words):
        call(*arguments, **options)


@ON_BOTH
@forked()
def test_an_epoch_equals_lightnings_own_cpu(device):
    expected, lightnings = own(), type(AcceleratorRegistry.get("cpu"))
    assert expected["accuracy"] > 0.8
    model, trainer = fit(**trainer_options(devices=1))
    assert trained(model, "cpu" if device == "cpu" else "acme:0") == expected
    assert isinstance(trainer.accelerator, Accelerator)
    assert trainer.accelerator.name() == device
    assert type(trainer.strategy).__mro__[2] is pl.strategies.SingleDeviceStrategy
    # By strings.
    names = register()
    assert register() == names
    assert "cpu" not in names  # Lightning has one, which stays
    assert type(AcceleratorRegistry.get("cpu")) is lightnings
    assert set(names) <= AcceleratorRegistry.available_accelerators()
    assert ("acme" in names) == (device == "acme")
    model, trainer = fit(accelerator=device, devices=1, strategy="accel")
    assert type(trainer.strategy).__module__.startswith("accel_train.")
    assert told(model)["losses"] == expected["losses"]
    if device == "cpu":  # the accelerator alone is enough there
        assert trained(fit(accelerator=accelerator("cpu"))[0], "cpu") == expected
    else:
        assert trained(fit(**trainer_options(devices=[1]))[0], "acme:1") == expected


class _AtEnd(pl.Callback):
    """A checkpoint of Lightning's does not hold the generator's state."""

    def on_train_epoch_end(self, trainer, pl_module):
        self.random = torch.get_rng_state()
        self.places = {value.device.type for value in pl_module.state_dict().values()}


@ON_BOTH
@forked()
def test_training_goes_on_from_a_checkpoint(device, tmp_path):
    through, _ = fit(epochs=2, **trainer_options(devices=1))
    at_end = _AtEnd()
    first, trainer = fit(**trainer_options(devices=1), callbacks=[at_end])
    saved = tmp_path / "saved.ckpt"
    trainer.save_checkpoint(saved)
    state = torch.load(saved, weights_only=False)["state_dict"]
    assert at_end.places == {device}
    loaded = Digits()
    loaded.load_state_dict(state)
    assert told(loaded)["parameters"] == told(first)["parameters"]
    second, trainer = fit(
        epochs=2, resume=saved, random=at_end.random, **trainer_options(devices=1)
    )
    assert trainer.current_epoch == 2
    assert trainer.global_step == 58
    assert second.losses == through.losses[29:]
    assert told(second)["parameters"] == told(through)["parameters"]


@forked("acme")
def test_the_device_stats_monitor_logs_our_numbers(tmp_path):
    logger = CSVLogger(tmp_path)
    fit(
        **trainer_options(devices=1),
        logger=logger,
        callbacks=[DeviceStatsMonitor()],
        log_every_n_steps=10,
    )
    with Path(logger.log_dir, "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    (column,) = [
        c for c in rows[0] if c.endswith("on_train_batch_end/allocated_bytes.all.peak")
    ]
    amounts = [float(row[column]) for row in rows if row[column]]
    assert min(amounts) > 2**14


@ON_BOTH
@forked()
def test_mixed_precision_is_made_for_our_device(device):
    model, trainer = fit(**trainer_options(devices=1), precision="bf16-mixed")
    assert trainer.precision_plugin.device == device
    assert told(model)["dtypes"] == ["torch.bfloat16"]
    assert told(model)["accuracy"] > 0.8


@ON_BOTH
@forked()
def test_fabric_equals_its_own_cpu(device):
    for precision in ("32-true", "bf16-mixed"):
        ours = told(
            fit_with_fabric(Fabric(precision=precision, **fabric_options(devices=1)))
        )
        own = told(
            fit_with_fabric(Fabric(precision=precision, accelerator="cpu", devices=1))
        )
        assert ours.pop("devices") == ["cpu" if device == "cpu" else "acme:0"]
        assert own.pop("devices") == ["cpu"]
        assert ours == own
        assert ours["losses"][-1] < ours["losses"][0] / 2
    assert isinstance(fabric_options(devices=1)["accelerator"], FabricAccelerator)
    os.environ |= {"LT_CLI_USED": "1", "LT_DEVICES": "1"}  # `fabric run`
    assert Fabric(**fabric_options()).device.type == device


@forked("acme")
def test_on_acme_what_would_train_elsewhere_is_refused():
    found = accelerator()
    placed = (
        r"^Lightning's strategy places the model on cpu, but the accelerator is "
        r"acme.*trainer_options\(\)"
    )
    refused(placed, fit, accelerator=found, devices=1)
    refused(placed, fit_with_fabric, Fabric(accelerator=found, devices=1))
    assert found.auto_device_count() == 2
    assert [str(device) for device in found.get_parallel_devices([0, 1])] == [
        "acme:0",
        "acme:1",
    ]
    with pytest.raises(
        ValueError, match=r"^devices=3 is not valid for acme, which has 2 devices"
    ):
        trainer_options(devices=3)
    stats = found.get_device_stats(torch.device("acme", 0))
    assert all(isinstance(value, int) for value in stats.values())


def test_mixed_precision_for_another_device_is_refused():
    words = r"mixed precision is for cuda.*trainer_options"
    refused(words, fit, accelerator=accelerator("cpu"), precision="bf16-mixed")


def test_a_registered_backend_without_a_device_is_reported_by_lightning():
    kind = type(accelerator("cpu"))
    nobodys = type("Nobodys", (kind,), {"backend_name": "nobodys"})
    assert not nobodys.is_available()
    with pytest.raises(
        pl.utilities.exceptions.MisconfigurationException,
        match=r"Nobodys.*not available",
    ):
        pl.Trainer(accelerator=nobodys(), logger=False)


@pytest.mark.parametrize("devices", [2, "2", [0, 1], "0,1"])
def test_processes_share_the_cpu(devices):
    options = trainer_options("cpu", devices=devices)
    assert options["devices"] == 2
    theirs = [
        each
        for each in type(options["strategy"]).__mro__
        if each.__module__.startswith("lightning.")
    ]
    assert theirs[0] is pl.strategies.DDPStrategy
    found = options["accelerator"]
    assert found.get_parallel_devices(options["devices"]) == [torch.device("cpu")] * 2


@pytest.mark.parametrize(
    "devices", [0, -2, "", "many", [], [0, 0], [True], 1.5, None, "0.5,1"]
)
def test_devices_that_mean_nothing_are_refused(devices):
    with pytest.raises(
        ValueError,
        match=r"devices=.*expected a count, a list of different indices, or -1",
    ):
        trainer_options("cpu", devices=devices)


def test_strategies_that_cannot_be_are_refused_with_what_works():
    refused(
        r"strategy='deepspeed' is not supported on cpu.*activate\(\)\.$",
        trainer_options,
        "cpu",
        strategy="deepspeed",
    )
    words = r"does not run on the CPU.*='model_parallel'"
    refused(words, Fabric(**fabric_options("cpu", strategy="fsdp")).launch)
    refused(words, fit, **trainer_options("cpu", strategy="fsdp"))
    with pytest.raises(accel_core.BackendNotFoundError, match="nobodys"):
        accelerator("nobodys")


def test_accelerators_travel_to_spawned_processes():
    found = accelerator("cpu")
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is type(found)
    assert again.core_accelerator() is found.core_accelerator()
    assert type(copy.deepcopy(found)) is type(found)
    for options in (trainer_options, fabric_options):
        strategy = type(options("cpu", strategy="ddp")["strategy"])
        assert pickle.loads(pickle.dumps(strategy)) is strategy


@forked("npu")
def test_numbers_that_the_device_lacks_are_refused_with_those_that_it_has():
    words = (
        "^precision='64-true': npu does not support this number format. "
        "Next step: use '16-mixed' or 'bf16-mixed' or '32-true'.$"
    )
    for kind, options in ((pl.Trainer, trainer_options), (Fabric, fabric_options)):
        refused(words, kind, **options(devices=1), precision="64-true")


OLDER_NAME = """
import json, sys, warnings
warnings.simplefilter("ignore")
import pytorch_lightning as pl
from pytorch_lightning.demos.boring_classes import BoringModel
from accel_train.lightning import fabric_options, register, trainer_options
trainer = pl.Trainer(**trainer_options(devices=1), fast_dev_run=True, enable_progress_bar=False)
trainer.fit(BoringModel())
import lightning_fabric
fabric = fabric_options(devices=2)["strategy"]
print(json.dumps([
    str(trainer.strategy.root_device), isinstance(trainer.strategy, pl.strategies.SingleDeviceStrategy),
    isinstance(fabric, lightning_fabric.strategies.DDPStrategy), "lightning" in sys.modules,
    "acme" in register() and "acme" in pl.accelerators.AcceleratorRegistry,
]))
"""


def test_the_package_under_its_older_name_serves_too(run_on_acme):
    pytest.importorskip("pytorch_lightning")
    assert run_on_acme(OLDER_NAME).answer == ["acme:0", True, True, False, True]


# --- torch.compile: by the compiler of `acme` ----------------------------------

#: Computes on every device what it computes on the CPU.
COMPILER = "aot_eager"


@forked("acme")
def test_lightnings_trainer_compiles_for_the_device_and_puts_torchs_default_back():
    in_force, defaults = torch.compiler.get_default_backend, []

    class Compiled(Digits):
        def configure_model(self):
            defaults.append(in_force())
            self.layers = torch.compile(self.layers)

    warnings.simplefilter("ignore")  # torch's own, of its imports
    accel_core.get_accelerator().set_compile_backend(COMPILER)
    model, _ = fit(kind=Compiled, **trainer_options(devices=1))
    assert model.accuracy > 0.8
    defaults.append(in_force())
    fabric = Fabric(**fabric_options(devices=1))
    fabric.setup(torch.compile(torch.nn.Linear(2, 2)))
    # In the training and after it; Fabric's lasts as long as it.
    assert [*defaults, in_force()] == ["accel", "inductor", "accel"]


@forked("acme")
def test_torch_compile_of_transformers_is_the_accelerators_compiler(tmp_path):
    warnings.simplefilter("ignore")  # torch's own, of its imports
    import hugging_face as hf

    acc = accel_core.get_accelerator()
    acc.set_compile_backend(COMPILER)
    job = hf.Job(False, str(tmp_path), False)
    args = job.arguments(torch_compile=True, save_strategy="no", max_steps=12)
    trainer = hf.Trainer(model=hf.model(), args=args, train_dataset=job.tokens())
    trainer.train()
    assert trainer.args.torch_compile_backend == COMPILER
    assert str(trainer.args.device) == "acme:0"
    assert type(trainer.model_wrapped).__name__ == "OptimizedModule"
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]
    acc.set_compile_backend("eager")
    assert job.arguments(torch_compile_backend="accel").torch_compile_backend == "eager"
    words = "Accelerate's list of compilers \\(DynamoBackend\\) does not contain 'cudagraph_trees'"
    refused(words, job.arguments, torch_compile_backend="cudagraph_trees")
