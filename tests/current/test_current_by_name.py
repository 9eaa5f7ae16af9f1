"""An accelerator that is asked for by name."""

import pytest
from accel_tests import plugins

import accel_core
from accel_core.errors import (
    BackendConflictError,
    BackendNotFoundError,
    BackendUnavailableError,
    InvalidAcceleratorError,
    SettingError,
)


def test_an_accelerator_by_name_is_one_object_and_no_choice(mlu):
    """A program may use two accelerators: one is current, the others can be had by name."""
    cpu = accel_core.accelerator("cpu")
    assert accel_core.accelerator(" CPU ") is cpu
    assert accel_core.accelerator("cpu@accel-core") is cpu
    assert accel_core.get_accelerator().name == "mlu"
    assert accel_core.accelerator("mlu") is accel_core.get_accelerator()
    assert accel_core.accelerator("cpu") is cpu


def test_a_name_may_have_no_device(torch_world):
    torch_world.module("none_device", plugins.ACCELERATOR.format(count="return 0"))
    torch_world.backend("npu", accelerator="none_device:Simulated")
    assert accel_core.accelerator("npu").device_count() == 0


@pytest.mark.parametrize("name", [3, None, 1.5, ["mlu"], "", "npu@", "@x", "  "])
def test_what_names_neither_a_backend_nor_a_device_is_refused(mlu, name):
    with pytest.raises(
        InvalidAcceleratorError,
        match=r"expected a backend's name .*, a device .* or a tensor$",
    ):
        accel_core.accelerator(name)


def test_a_name_that_is_not_installed_or_not_usable_raises_as_a_pin_does(mlu):
    with pytest.raises(
        BackendNotFoundError,
        match=r"accelerator\('tpu'\): no installed distribution declares tpu",
    ):
        accel_core.accelerator("tpu")
    mlu.backend("npu", vendor_import="torch_npu")
    with pytest.raises(
        BackendUnavailableError,
        match=r"npu \(accel-npu 1.0\) is not usable: torch_npu is not installed",
    ):
        accel_core.accelerator("npu")


def test_a_list_is_not_a_name_even_if_it_names_installed_backends(mlu):
    """Unlike in DS_ACCELERATOR, where a list is tried in its order."""
    with pytest.raises(BackendNotFoundError):
        accel_core.accelerator("mlu,cpu")


def test_two_distributions_of_one_name_are_two_objects(rivals):
    one, two = (
        accel_core.accelerator("npu@accel-npu"),
        accel_core.accelerator("npu@better-npu"),
    )
    assert one is not two
    assert [a.backend.distribution for a in (one, two)] == ["accel-npu", "better-npu"]
    with pytest.raises(BackendConflictError):
        accel_core.accelerator("npu")


def test_two_backends_of_one_distribution_and_name_are_two_objects(
    torch_world, monkeypatch
):
    torch_world.module("none_device", plugins.ACCELERATOR.format(count="return 0"))
    torch_world.plugin(
        "xpu",
        plugins.declaring(
            plugins.arguments("xpu", 800, accelerator="none_device:Simulated"),
            plugins.arguments("xpu", 790),
        ),
    )
    by_name = accel_core.accelerator("xpu")  # a name may have no device
    assert by_name.backend.priority == 800
    assert accel_core.get_accelerator().backend.priority == 790


def test_a_pinned_distribution_is_what_its_name_means(rivals, monkeypatch):
    """A pickle holds the name alone, and a worker process has the same environment."""
    monkeypatch.setenv("DS_ACCELERATOR", "npu@better-npu")
    assert accel_core.accelerator("npu").backend.distribution == "better-npu"
    assert accel_core.accelerator("npu@accel-npu").backend.distribution == "accel-npu"


def test_a_setting_that_is_malformed_stops_a_name_too(mlu, monkeypatch):
    monkeypatch.setenv("ACCEL_STRICT", "perhaps")
    with pytest.raises(SettingError):
        accel_core.accelerator("mlu")
