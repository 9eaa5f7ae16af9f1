"""NeMo on `acme`, after `register()`: its model trains as on Lightning's own CPU accelerator."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.nightly(
    reason="trains with NeMo on a simulated device: minutes"
)

SCRIPT = Path(__file__).parent / "nemo_model.py"
#: The backend of a device that torch reports and no plugin here knows.
ACME = {"accelerator": "generic", "strategy": "accel", "devices": 1}


@pytest.fixture(scope="module")
def trained(beside, tmp_path_factory):
    """`trained(accelerator="cpu", devices=1)`: what each rank saw."""

    def train(**asked):
        out = tmp_path_factory.mktemp("nemo")
        environ = {
            "ACCEL_SIMULATE_RANDOM": "host"
        }  # dropout draws from the host's generator, as on the CPU
        if asked["accelerator"] == "cpu":
            environ |= {"DS_ACCELERATOR": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        told = json.dumps({"out": str(out), "folder": str(out), **asked})
        beside("nemo", SCRIPT, told, vendor="acme:2", environ=environ)
        return [json.loads(file.read_text()) for file in sorted(out.glob("*.json"))]

    return train


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_model_trains_as_on_the_cpu(ranks, trained):
    several = {"devices": ranks, **({"strategy": "accel_ddp"} if ranks == 2 else {})}
    ours = trained(**{**ACME, **several})
    own = trained(
        accelerator="cpu", devices=ranks, **({"strategy": "ddp"} if ranks == 2 else {})
    )
    assert [answer.pop("devices") for answer in ours] == [
        [f"acme:{rank}"] for rank in range(ranks)
    ]
    assert [answer.pop("devices") for answer in own] == [["cpu"]] * ranks
    assert ours == own
    assert ours[0]["saved"] == ["small.nemo"]
    losses = ours[0]["losses"]  # eight steps, which two ranks share
    assert sum(losses[-4 // ranks :]) < sum(losses[: 4 // ranks])
