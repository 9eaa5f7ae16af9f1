"""Lightning on `acme`, a device that nobody has heard of, in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("sklearn")

from accel_tests.on_simulated import run_on

from accel_simulated import CannotBuildError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(on_acme: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process with the device has to tell."""
    folder = tmp_path_factory.mktemp("checkpoints")
    answer: dict[str, Any] = on_acme("acme_lightning:everything", str(folder)).answer
    return answer


def _trained(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: answer[key] for key in ("losses", "parameters", "accuracy")}


@pytest.mark.parametrize("how", ["chosen", "second device", "strings"])
def test_an_epoch_equals_the_cpus(how: str, runs: dict[str, Any]) -> None:
    assert _trained(runs[how]) == _trained(runs["cpu"])
    assert runs[how]["devices"] == ["acme:1" if how == "second device" else "acme:0"]
    assert runs["cpu"]["devices"] == ["cpu"]
    assert runs["cpu"]["accuracy"] > 0.8


def test_strings_are_lightnings_registry(runs: dict[str, Any]) -> None:
    assert "acme" in runs["strings"]["names"]


def test_mixed_precision_is_the_devices(runs: dict[str, Any]) -> None:
    assert runs["bf16"]["autocast"] == "acme"
    assert runs["bf16"]["dtypes"] == ["torch.bfloat16"]
    assert runs["bf16"]["accuracy"] > 0.8


def test_training_goes_on_from_a_checkpoint(runs: dict[str, Any]) -> None:
    assert runs["checkpoint"] == {"devices": ["acme:0"], "steps": 58, "improved": True}


def test_device_stats_are_the_devices(runs: dict[str, Any]) -> None:
    assert runs["stats"]["allocated_bytes.all.peak"] > 2**14
    assert all(isinstance(value, int) for value in runs["stats"].values())


def test_devices(runs: dict[str, Any]) -> None:
    assert runs["auto"] == 2
    assert runs["devices"] == ["acme:0", "acme:1"]
    assert runs["too many"].startswith("devices=3: acme has 2 devices here")


@pytest.mark.parametrize("who", ["alone", "fabric alone"])
def test_lightnings_own_strategy_is_refused_and_not_trained_on_the_cpu(
    who: str, runs: dict[str, Any]
) -> None:
    assert runs[who].startswith("Lightning's strategy places the model on cpu, and the accelerator is acme")
    assert "trainer_options()" in runs[who]


def test_fabric_equals_the_cpu(runs: dict[str, Any]) -> None:
    ours, cpu = runs["fabric"]
    assert ours.pop("devices") == ["acme:0"]
    assert cpu.pop("devices") == ["cpu"]
    assert ours == cpu


NO_SUCH_NUMBERS = """
import json, warnings
warnings.simplefilter("ignore")
from lightning.fabric import Fabric
from lightning.pytorch import Trainer
from accel_core.errors import IntegrationError
from accel_train.lightning import fabric_options, trainer_options
said = []
for kind, options in ((Trainer, trainer_options), (Fabric, fabric_options)):
    try:
        kind(**options(devices=1), precision="64-true")
    except IntegrationError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_numbers_that_the_device_lacks_are_refused_with_those_that_it_has() -> None:
    try:
        said = run_on("npu", NO_SUCH_NUMBERS).answer
    except CannotBuildError as error:
        pytest.skip(str(error))
    sentence = "precision='64-true': npu has no such numbers. Use '16-mixed' or 'bf16-mixed', or '32-true'"
    assert said == [sentence] * 2


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
print(json.dumps({
    "device": str(trainer.strategy.root_device),
    "strategy": isinstance(trainer.strategy, pl.strategies.SingleDeviceStrategy),
    "fabric": isinstance(fabric, lightning_fabric.strategies.DDPStrategy),
    "registered": "acme" in register() and "acme" in pl.accelerators.AcceleratorRegistry,
    "lightning": "lightning" in sys.modules,
}))
"""


def test_the_package_under_its_older_name_serves_too(on_acme: Callable[..., Any]) -> None:
    pytest.importorskip("pytorch_lightning")
    expected = {"device": "acme:0", "strategy": True, "fabric": True, "registered": True, "lightning": False}
    assert on_acme(OLDER_NAME).answer == expected
