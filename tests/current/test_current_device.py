"""The accelerator of a device: a `torch.device`, its name with an index, or a tensor that is on it."""

from types import SimpleNamespace

import pytest
from accel_tests import plugins

import accel_core
from accel_core.errors import (
    BackendConflictError,
    BackendNotFoundError,
    BackendUnavailableError,
)


def device(kind):
    """What is read of a `torch.device`."""
    return SimpleNamespace(type=kind, index=0)


def each(kind):
    """A device of that type, as it can be given."""
    return [device(kind), f"{kind}:0", SimpleNamespace(device=device(kind))]


def test_the_chosen_one_serves_its_devices(mlu):
    chosen = accel_core.get_accelerator()
    assert [accel_core.accelerator(one) for one in each("mlu")] == [chosen] * 3
    cpu = accel_core.accelerator("cpu")
    assert [accel_core.accelerator(one) for one in each("cpu")] == [cpu] * 3
    assert accel_core.get_accelerator() is chosen


def test_a_name_with_an_index_is_no_backends_name(mlu):
    """`xpu:0` is a device, and `xpu` a backend, of which there may be several for that device."""
    mlu.backend("cloud", 400, device_type="mlu")
    assert accel_core.accelerator("mlu").name == "mlu"
    assert accel_core.accelerator(" MLU:1 ").name == "cloud"


@pytest.fixture
def several_of_a_type(torch_world):
    """The first has no device, the others do."""
    torch_world.backend("aaa", 700, device_type="npu", extra=plugins.NO_DEVICE)
    torch_world.backend("bbb", 600, device_type="npu")
    torch_world.backend("npu", 500)
    return torch_world


def test_without_a_choice_the_highest_ranking_usable_one_serves(several_of_a_type):
    found = [accel_core.accelerator(one) for one in each("npu")]
    assert {acc.name for acc in found} == {"bbb"}
    assert found[0] is accel_core.get_accelerator()
    assert found[1] is accel_core.get_accelerator()


def test_what_ds_accelerator_names_serves_before_it(several_of_a_type, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    assert accel_core.accelerator("npu:0").name == "npu"
    assert accel_core.get_accelerator().name == "npu"


def test_one_that_is_used_for_a_while_serves_its_devices(several_of_a_type):
    assert accel_core.get_accelerator().name == "bbb"
    with accel_core.use_accelerator("npu"):
        assert accel_core.accelerator("npu:0").name == "npu"
        assert accel_core.accelerator("cpu:0").name == "cpu"
    assert accel_core.accelerator("npu:0").name == "bbb"


def test_none_that_is_usable(torch_world):
    torch_world.backend("aaa", 700, device_type="npu", extra=plugins.NO_DEVICE)
    torch_world.backend("npu", 500, extra=plugins.NO_DEVICE)
    with pytest.raises(
        BackendUnavailableError, match=r"(?s)accelerator\('npu:1'\): none .*aaa .*npu "
    ):
        accel_core.accelerator("npu:1")


def test_two_distributions_of_one_name(rivals):
    with pytest.raises(BackendConflictError, match="npu"):
        accel_core.accelerator(device("npu"))


@pytest.mark.parametrize("kind", ["meta", "tpu", ""])
def test_a_type_that_nobody_declares(mlu, kind):
    expected = f"no installed plugin declares a device of type '{kind}', and torch's accelerator is None"
    with pytest.raises(BackendNotFoundError, match=expected):
        accel_core.accelerator(device(kind))


def test_generic_serves_what_torch_alone_knows(torch_world, simulated_torch):
    simulated_torch.foo = SimpleNamespace(device_count=lambda: 3)
    simulated_torch.accelerator.current = "foo"
    with pytest.raises(BackendNotFoundError, match="torch's accelerator is foo"):
        accel_core.accelerator("bar:0")
    found = accel_core.accelerator(device("foo"))
    assert found.name == "generic"
    assert found.device_type == "foo"
    assert found is accel_core.get_accelerator()
    assert accel_core.accelerator("foo:1") is accel_core.get_accelerator()


def test_a_type_whose_only_plugin_is_blocked_says_so(mlu, monkeypatch):
    monkeypatch.setenv("ACCEL_BLOCK", "mlu")
    with pytest.raises(BackendUnavailableError, match="remove mlu from ACCEL_BLOCK"):
        accel_core.accelerator("mlu:0")
