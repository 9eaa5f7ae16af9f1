"""verl on `acme`: its platform's contract, its engines, and its fine-tuning equal to the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def platform(beside: Callable[..., Any]) -> dict[str, Any]:
    """What the platform says of itself."""
    answer: dict[str, Any] = beside("verl", "verl_platform:platform", vendor="acme:2").answer
    return answer


def test_it_is_verls_without_a_line_written(platform: dict[str, Any]) -> None:
    assert platform["registered"] == ["nvidia", "huawei", "amd", "accel"]
    assert platform["class"] == "AccelPlatform"
    assert platform["device_name"] == "acme"
    assert platform["available"] == [True, True]


def test_the_contract_is_the_one_that_we_know(platform: dict[str, Any]) -> None:
    assert (platform["abstract"], len(platform["members"])) == (22, 29)
    assert platform["unlike"] == []


def test_devices_are_the_accelerators(platform: dict[str, Any]) -> None:
    assert platform["device_module"]
    assert (platform["current_device"], platform["device_count"]) == (1, 2)
    assert platform["seeded"]
    assert platform["capability"] == [9, 0]  # what this simulated device reports
    assert platform["communication"] in ("accl", "staged")
    assert platform["none"] == [None] * 4
    assert platform["ipc"] is False


def test_ray_has_a_custom_resource_for_a_device_that_it_does_not_know(platform: dict[str, Any]) -> None:
    name = platform["ray"][0]
    assert platform["ray"][1:] == [[], {"resources": {name: 2}}]
    assert platform["uuid"] == f"{name}-0"


def test_an_engine_is_registered_when_verl_looks_for_it(beside: Callable[..., Any]) -> None:
    found = beside("verl", "verl_platform:engine").answer
    assert found == ["FSDPEngineWithLMHead", "FSDPEngineWithValueHead"]


def test_a_pin_that_cannot_be_followed_is_an_error_and_not_nvidia(beside: Callable[..., Any]) -> None:
    said = beside("verl", "verl_platform:failing", environ={"DS_ACCELERATOR": "nothing"}).answer
    assert said[0].startswith("BackendNotFoundError: DS_ACCELERATOR='nothing'")


def test_a_setting_that_cannot_be_read_is_a_warning_before_verl_falls_back(
    beside: Callable[..., Any],
) -> None:
    name, *said, _ = beside("verl", "verl_platform:failing", environ={"ACCEL_STRICT": "perhaps"}).answer
    assert name == "cuda"  # verl's own last resort
    assert said
    assert all("ACCEL_STRICT='perhaps'" in one and one.endswith("VERL_PLATFORM=nvidia") for one in said)


def test_a_newer_contract_is_a_warning_that_names_the_member(beside: Callable[..., Any]) -> None:
    said, *registered = beside("verl", "verl_platform:contract_changed").answer
    assert "newcomer" in said
    assert "accel" not in registered


@pytest.fixture(scope="module")
def trained(beside: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`trained("fsdp2", processes=2)`: losses and norms of gradients, and the platform."""
    folder = tmp_path_factory.mktemp("verl")
    beside("verl", HERE / "verl_sft.py", folder, "make")

    def train(strategy: str, *, cpu: bool = False, processes: int = 1) -> Any:
        options = ["trainer.device=cpu"] if cpu else []
        environ = {"DS_ACCELERATOR": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if cpu else {}
        run = beside(
            "verl", HERE / "verl_sft.py", folder, strategy, *options, environ=environ, processes=processes
        )
        return run.answer

    return train


@pytest.mark.nightly(reason="fine-tunes with verl on a simulated device, eight trainings: minutes")
@pytest.mark.parametrize(("strategy", "ranks"), [("fsdp2", 1), ("fsdp", 1), ("fsdp2", 2), ("fsdp", 2)])
def test_fine_tuning_equals_the_cpus(strategy: str, ranks: int, trained: Callable[..., Any]) -> None:
    on_cpu, on_acme = trained("fsdp2", cpu=True), trained(strategy, processes=ranks)
    assert on_acme["platform"] == ["AccelPlatform", "acme"]
    assert len(on_acme["trained"]) == 16
    assert on_acme["trained"][-1][0] < on_acme["trained"][0][0]
    # One rank sums in the CPU's order; FSDP1's flat parameters, and two ranks, in another.
    exactly = (strategy, ranks) == ("fsdp2", 1)
    for ours, theirs in zip(on_acme["trained"], on_cpu["trained"], strict=True):
        assert ours == (theirs if exactly else pytest.approx(theirs, rel=1e-5))
