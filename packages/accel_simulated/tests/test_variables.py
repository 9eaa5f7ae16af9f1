"""The values of the variables that configure a simulated device."""

import pytest

import accel_core
from accel_simulated import device, faults
from accel_simulated.request import MAX_DEVICES, parse_request
from accel_simulated.vendors import DEVICES


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "tpu",
            "'tpu' cannot be simulated; expected NAME or NAME:COUNT, such as acme:2; the names are",
        ),
        ("acme,cuda", "'acme,cuda' cannot be simulated"),
        (":2", "'' cannot be simulated"),
        (
            "acme:0",
            "'0' is not a valid number of devices; expected a number from 1 to 64. Write acme:2.",
        ),
        ("acme:", "'' is not a valid number"),
        ("acme:-1", "'-1' is not a valid number"),
        ("acme:two", "'two' is not a valid number"),
        ("acme:²", "'²' is not a valid number"),
        (f"acme:{MAX_DEVICES + 1}", "'65' is not a valid number"),
        (
            "mps:2",
            "expected 1, because torch supports only one device of this type. Write mps:1.",
        ),
    ],
)
def test_an_invalid_request_is_rejected(text, problem):
    with pytest.raises(accel_core.SettingError) as caught:
        parse_request(text)
    assert str(caught.value).startswith(f"ACCEL_SIMULATE={text!r}: ")
    assert problem in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "text",
    ["oom@0", "oom=3", "slow", "slow=2.", "count@3", "driver@2", "fire", "oom@1;lost"],
)
def test_an_invalid_fault_is_rejected(text):
    with pytest.raises(
        accel_core.SettingError,
        match=r"is not a fault; expected oom@N, .* such as oom@10,slow=",
    ):
        faults.parse_faults(text)


@pytest.mark.parametrize("text", ["0", "64,x", "64,", "-1", "1048577", "9" * 30, "٣"])
def test_an_invalid_memory_size_is_rejected(text, monkeypatch):
    monkeypatch.setenv("ACCEL_SIMULATE_MEMORY_MB", text)
    with pytest.raises(accel_core.SettingError) as caught:
        device._read_memory_sizes()
    assert repr(text) in str(caught.value)
    assert "1024,64" in str(caught.value)


def test_faults_are_parsed():
    assert faults.parse_faults(" oom@10, slow=2.5,COUNT=1@20,,hang") == {
        "oom": (10, 0), "slow": (1, 2500), "count": (20, 1), "hang": (1, 0),
    }  # fmt: skip


def test_requests_are_parsed():
    assert [str(parse_request(text)) for text in ("acme", " ACME : 3 ", "mps", f"cuda:{MAX_DEVICES}")] == [
        "acme:2", "acme:3", "mps:1", f"cuda:{MAX_DEVICES}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("npu", "0,1", 2), ("npu", "1", 1), ("npu", "1,0", 0), ("npu", "0, 1", 1), ("npu", "0,,1", 1),
        ("npu", "0,5", 1), ("npu", "", 0), ("mlu", "1,0", 2), ("mlu", "1, 1", 1), ("mlu", "5", 0),
        ("mlu", "0,5,1", 2), ("cuda", "1,0", 2), ("cuda", "0,5,1", 1), ("cuda", "-1,0", 0),
    ],
)  # fmt: skip
def test_the_vendors_variable_selects_the_visible_devices(
    name, value, count, monkeypatch
):
    """CANN takes ascending integers alone; accel-npu's tests hold the real torch_npu to the same."""
    vendor = DEVICES[name]
    monkeypatch.setenv(vendor.visible[0], value)
    assert device._count_visible_devices(vendor, 2) == count


def test_the_device_module_lists_its_public_names_at_run_time():
    assert {"load", "prepare", "held"} <= set(device.__all__)
