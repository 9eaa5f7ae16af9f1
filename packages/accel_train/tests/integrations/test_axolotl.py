"""axolotl on `acme`: its plugin manager loads ours by itself, and its trainings equal those on the CPU."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")


SCRIPT = Path(__file__).parent / "axolotl_sft.py"
MANAGER = """
import json, warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from axolotl.integrations.base import PluginManager
    manager, cfg = PluginManager.get_instance(), {}
    ours = manager.plugins["accel_train.integrations.axolotl.Plugin"]
    ours.register(cfg)
    mixins = manager.get_training_args_mixin()
said = [str(one.message) for one in seen if "axolotl cannot use" in str(one.message)]
print()
print(json.dumps({"class": type(ours).__name__, "mixins": mixins, "cfg": cfg, "said": said}))
"""
ON_THE_CPU = {"DS_ACCELERATOR": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_its_plugin_manager_loads_ours(beside):
    assert beside("axolotl", MANAGER).answer == {
        "class": "AccelPlugin",
        "mixins": ["accel_train.integrations.axolotl.Arguments"],
        "cfg": {"device_map": {"": "acme:0"}, "bf16": True},
        "said": [],
    }


@pytest.mark.nightly(
    reason="imports axolotl, for what every adapter does without our accelerator"
)
def test_without_our_accelerator_axolotl_goes_on(beside):
    answer = beside(
        "axolotl", MANAGER, environ={**ON_THE_CPU, "DS_ACCELERATOR": "nothing"}
    ).answer
    (said,) = answer.pop("said")
    assert answer == {"class": "AccelPlugin", "mixins": [], "cfg": {}}
    assert said.startswith(
        "axolotl cannot use accel's accelerator: BackendNotFoundError: DS_ACCELERATOR="
    )


def test_it_stands_aside_for_a_device_of_axolotls(beside):
    code = """
import json, accel_core
from accel_train.integrations.axolotl import Members
members, cfg = Members(), {}
members.register(cfg), members.pre_model_load(cfg)
print()
print(json.dumps([accel_core.get_accelerator().name, members.get_training_args_mixin(), cfg]))
"""
    assert beside("axolotl", code, vendor="npu").answer == ["npu", None, {}]


@pytest.fixture(scope="module")
def trained(beside, tmp_path_factory):
    """`trained(processes=2, bf16=False)`: what each rank saw."""
    folder = tmp_path_factory.mktemp("axolotl")
    beside("axolotl", SCRIPT, folder, "make")

    def train(*, cpu=False, processes=1, **options):
        # Without it Accelerate would have each rank on the CPU train by itself.
        environ = {**ON_THE_CPU, "ACCELERATE_USE_CPU": "true"} if cpu else {}
        how = {
            "environ": environ,
            "vendor": f"acme:{processes}",
            "processes": processes,
        }
        return beside("axolotl", SCRIPT, folder, json.dumps(options), **how).answers

    return train


@pytest.mark.nightly(reason="fine-tunes with axolotl on a simulated device: minutes")
@pytest.mark.parametrize("ranks", [1, 2])
def test_fine_tuning_equals_the_cpus(ranks, trained):
    plain = {"bf16": False, "fp16": False}
    on_cpu = trained(cpu=True, processes=ranks, **plain)
    on_acme = trained(processes=ranks, **plain)
    assert [answer["devices"] for answer in on_acme] == [
        [f"acme:{rank}"] for rank in range(ranks)
    ]
    assert [answer["trained"] for answer in on_acme] == [
        answer["trained"] for answer in on_cpu
    ]
    losses = [loss for loss, _ in on_acme[0]["trained"]]
    assert len(losses) == 16
    assert losses[-1] < losses[0] - 1


@pytest.mark.nightly(reason="fine-tunes with axolotl on a simulated device: minutes")
def test_automatic_bfloat16_is_the_devices(trained):
    (answer,) = trained()
    assert answer["dtype"] == "torch.bfloat16"
    assert answer["trained"][-1][0] < answer["trained"][0][0] - 1
