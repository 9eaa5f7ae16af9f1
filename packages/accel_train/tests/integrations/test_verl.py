"""verl on `acme`: its platform's contract, its engines, and its fine-tuning equal to the CPU's."""

import importlib
import inspect
import logging
import warnings
from pathlib import Path

import pytest
from accel_tests.forks import forked

pytest.importorskip("torch")


SCRIPT = Path(__file__).parent / "verl_sft.py"
WORKERS = Path(__file__).parent / "verl_workers.py"


@pytest.fixture(scope="session")
def on_verl(home):
    """Variables of a process with verl and two devices."""
    return home("verl", vendor="acme:2")


@forked("verl")
def test_every_member_of_its_platforms_contract():
    import torch
    from verl.plugin.platform import PlatformBase, PlatformRegistry, get_platform

    ours = get_platform()
    # It is verl's without a line written.
    assert list(PlatformRegistry.registered_names()) == [
        "nvidia",
        "huawei",
        "amd",
        "accel",
    ]
    assert type(ours).__name__ == "AccelPlatform"
    assert ours.device_name == "acme"
    assert ours.is_available()
    assert ours.is_platform_available(use_smi_check=True)
    # The contract is the one that we know, and each member can be called as verl's is declared.
    abstract = PlatformBase.__abstractmethods__
    assert len(abstract) == 22
    assert len([n for n in vars(PlatformBase) if not n.startswith("_")]) == 29
    for name in abstract:
        if callable(theirs := getattr(PlatformBase, name)):
            names = [
                parameter
                for parameter in inspect.signature(theirs).parameters
                if parameter != "self"
            ]
            inspect.signature(getattr(ours, name)).bind(*names)
    with ours.nvtx_range("step"):
        pass
    ours.set_device(1)
    assert ours.device_module is torch.acme
    assert ours.current_device() == 1
    assert ours.device_count() == 2
    assert list(ours.get_device_capability()) == [
        9,
        0,
    ]  # what this simulated device reports
    assert ours.communication_backend_name() in ("accl", "staged")
    assert (
        ours.cudart()
        is ours.profiler_start()
        is ours.profiler_stop()
        is ours.empty_cache()
        is None
    )
    assert ours.is_ipc_supported() is False
    # A device that Ray does not know is one of its GPUs, which are what verl counts.
    assert ours.ray_resource_name() == "GPU"
    assert ours.ray_resource_options(2) == {"num_gpus": 2}
    noset = ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]
    assert list(ours.ray_noset_envvars()) == noset
    assert ours.get_device_uuid(0) == "GPU-0"
    assert ours.visible_devices_envvar() is not None
    ours.manual_seed(3)
    first = torch.rand(2, device="acme").tolist()
    ours.manual_seed_all(3)
    ours.synchronize()
    assert torch.rand(2, device="acme").tolist() == first
    # An engine is registered when verl looks for it.
    from verl.workers.engine import EngineRegistry

    found = [
        EngineRegistry.get_engine_cls(kind, "fsdp2")
        for kind in ("language_model", "value_model")
    ]
    assert [cls.__name__ for cls in found] == [
        "FSDPEngineWithLMHead",
        "FSDPEngineWithValueHead",
    ]


def test_its_import_parses_no_settings_without_a_pin(beside):
    script = "import json, sys, verl; print(); print(json.dumps('accel_core.settings' in sys.modules))"
    assert beside("verl", script, environ={"ACCEL_SIMULATE": ""}).answer is False


@forked("verl", DS_ACCELERATOR="nothing")
def test_a_pin_that_cannot_be_followed_is_an_error_and_not_nvidia():
    from accel_core import BackendNotFoundError

    with pytest.raises(BackendNotFoundError, match=r"^DS_ACCELERATOR='nothing'"):
        importlib.import_module(
            "verl.plugin.platform"
        ).get_platform().device_name.upper()


@forked("verl", ACCEL_STRICT="perhaps")
def test_a_setting_that_cannot_be_read_is_a_warning_before_verl_falls_back():
    """Its own log is at INFO, above that error."""
    logging.basicConfig(level=logging.INFO)
    with pytest.warns(match="ACCEL_STRICT='perhaps'.*VERL_PLATFORM=nvidia$"):
        assert (
            importlib.import_module("verl.plugin.platform").get_platform().device_name
            == "cuda"
        )


@forked("verl")
def test_a_newer_contract_is_a_warning_that_names_the_member():
    import abc

    from verl.plugin.platform import PlatformBase, PlatformRegistry

    import accel_train.integrations.verl as adapter

    PlatformBase.newcomer = abc.abstractmethod(lambda self: None)
    abc.update_abstractmethods(PlatformBase)
    PlatformRegistry._platforms.pop("accel")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        adapter.loaded  # noqa: B018 - as an entry point is loaded
    assert "newcomer" in str(seen[0].message)
    assert "accel" not in PlatformRegistry._platforms


@pytest.fixture(scope="module")
def trained(beside, tmp_path_factory):
    """`trained("fsdp2", processes=2)`: losses and norms of gradients, and the platform."""
    folder = tmp_path_factory.mktemp("verl")
    beside("verl", SCRIPT, folder, "make")

    def train(strategy, *, cpu=False, processes=1):
        options = ["trainer.device=cpu"] if cpu else []
        environ = (
            {"DS_ACCELERATOR": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
            if cpu
            else {}
        )
        how = {"environ": environ, "processes": processes}
        return beside("verl", SCRIPT, folder, strategy, *options, **how).answer

    return train


@pytest.mark.nightly(
    reason="fine-tunes with verl on a simulated device, eight trainings: minutes"
)
@pytest.mark.parametrize(
    ("strategy", "ranks"), [("fsdp2", 1), ("fsdp", 1), ("fsdp2", 2), ("fsdp", 2)]
)
def test_fine_tuning_equals_the_cpus(strategy, ranks, trained):
    on_cpu, on_acme = trained("fsdp2", cpu=True), trained(strategy, processes=ranks)
    assert on_acme["platform"] == ["AccelPlatform", "acme"]
    assert len(on_acme["trained"]) == 16
    assert on_acme["trained"][-1][0] < on_acme["trained"][0][0]
    # One rank sums in the CPU's order; FSDP1's flat parameters, and two ranks, in another.
    exactly = (strategy, ranks) == ("fsdp2", 1)
    for ours, theirs in zip(on_acme["trained"], on_cpu["trained"], strict=True):
        assert ours == (theirs if exactly else pytest.approx(theirs, rel=1e-5))


@pytest.mark.nightly(reason="starts Ray, with two workers on simulated devices")
def test_rays_workers_train_each_on_its_device(beside):
    """What PPO does before its first step: count the devices, place the workers, and let each train."""
    report = beside("verl", WORKERS, vendor="acme:2").answer
    assert report["devices"] == ["acme:0", "acme:1"]
    assert report["losses"][0] == report["losses"][1] == report["on the CPU"]
    assert "Total available GPUs 2.0 is less than total desired GPUs 3" in report["3"]
