"""The fallback to the CPU warns once, with every reason, and only where it is news."""

import warnings

import pytest
from accel_tests import plugins
from accel_tests.asking import counting, fallback_warnings
from accel_tests.plugins import NO_DEVICE

import accel_core
from accel_core.backend import Hardware, Visibility
from accel_core.errors import AcceleratorFallbackWarning
from accel_core.hardware import bus
from accel_core.verdict import How


def test_the_fall_back_warns_once_with_every_reason(torch_world):
    """The CPU is never used silently: one warning a process, at the caller's line, with the reasons."""
    torch_world.backend("npu", extra=NO_DEVICE)
    torch_world.backend(
        "mlu", vendor_import="torch_mlu", install_hint="pip install torch-mlu"
    )
    torch_world.plugin("bad", "raise ImportError('libbad.so')")
    with pytest.warns(AcceleratorFallbackWarning) as caught:
        assert accel_core.get_accelerator().name == "cpu"
    (warning,) = caught
    text = str(warning.message)
    assert text.startswith("No usable accelerator; falling back to the CPU:\n")
    for line in (
        "npu (accel-npu 1.0): no device: nothing on the bus",
        "mlu (accel-mlu 1.0): not installed: torch_mlu is not installed. Next step: pip install torch-mlu",
        (
            "bad (accel-bad 1.0): broken: the plugin failed to load "
            "(entry point bad = 'accel_bad'): ImportError: libbad.so"
        ),
        "Run `accel why`",
        "DS_ACCELERATOR=cpu",
    ):
        assert line in text
    assert "generic" not in text
    assert warning.filename == __file__
    accel_core.set_accelerator(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert accel_core.get_accelerator().name == "cpu"


def test_many_missing_vendor_packages_share_one_line_of_the_warning(torch_world):
    for name in ("mlu", "sdaa", "supa"):
        torch_world.backend(name, vendor_import=f"torch_{name}")
    torch_world.plugin("bad", "raise ImportError('libbad.so')")
    (caught,) = fallback_warnings()
    text = str(caught.message)
    assert "  vendor's package not installed: mlu, sdaa, supa\n" in text
    assert "bad (accel-bad 1.0): broken" in text
    assert text.count("\n") == 3


def test_the_warning_points_at_the_callers_line_from_everywhere(torch_world):
    torch_world.backend("npu", extra=NO_DEVICE)
    for call in (
        lambda: accel_core.get_accelerator(),
        lambda: accel_core.selection(),
    ):
        assert [w.filename for w in fallback_warnings(call)] == [__file__]


def test_a_warning_that_is_an_error_leaves_a_choice_behind(torch_world):
    torch_world.backend("npu", extra=NO_DEVICE)
    with pytest.raises(AcceleratorFallbackWarning):
        accel_core.get_accelerator()
    assert accel_core.get_accelerator().name == "cpu"


def test_nothing_installed_and_nothing_there_is_no_news(torch_world):
    assert accel_core.get_accelerator().name == "cpu"
    assert accel_core.selection().how is How.FALLBACK


def test_a_pinned_cpu_is_no_reason_to_warn(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert fallback_warnings() == []
    assert accel_core.get_accelerator().name == "cpu"


def test_a_backend_that_the_user_blocked_is_no_reason_to_warn(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    monkeypatch.setenv("ACCEL_BLOCK", "npu")
    assert fallback_warnings() == []
    assert accel_core.get_accelerator().name == "cpu"


def test_hidden_devices_are_named_in_the_warning(torch_world, monkeypatch):
    """Ray sets CUDA_VISIBLE_DEVICES='' in actors without a GPU: the warning says what hides the devices."""
    counting(torch_world, "return 0", visibility=Visibility(variables=("NPU_VISIBLE",)))
    monkeypatch.setenv("NPU_VISIBLE", "")
    (caught,) = fallback_warnings()
    assert "NPU_VISIBLE" in str(caught.message)
    assert accel_core.selection().environ["NPU_VISIBLE"] == ""


def test_a_broken_package_that_only_torch_knows_is_in_the_warning(torch_world):
    """The CPU is never used silently because an unclaimed vendor package is broken."""
    torch_world.module("torch_foo", "raise ImportError('libfoo.so')")
    torch_world.distribution(
        "torch-foo", "1.0", {"torch.backends": {"foo": "torch_foo:autoload"}}
    )
    with pytest.warns(
        AcceleratorFallbackWarning,
        match=r"generic .* broken: .*ImportError: libfoo\.so",
    ):
        assert accel_core.get_accelerator().name == "cpu"


def two_ways(world, first, second, **fields):
    """One name declared twice, through one package: what `accel_probe` says of each."""
    reason = f"{first!r} if backend.priority == 2 else {second!r}"
    body = f"return ProbeResult(False, {reason}, 'get one')"
    ways = [plugins.arguments("acme", priority, **fields) for priority in (2, 1)]
    world.plugin(
        "acme",
        plugins.declaring(*ways) + plugins.hook("accel_probe", "backend, others", body),
    )


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("no A", "no B", "no A; no B"),
        ("torch has neither", "torch has neither", "torch has neither"),
    ],
)
def test_two_declarations_of_one_backend_share_a_line(
    torch_world, monkeypatch, caplog, first, second, told
):
    caplog.set_level("DEBUG", "accel_core")  # in full
    two_ways(torch_world, first, second)
    (caught,) = fallback_warnings()
    assert f"\n  acme (accel-acme 1.0): no device: {told}. Next step: get one\n" in str(
        caught.message
    )
    assert str(caught.message).count("acme") == 2  # its name and its distribution
    accel_core.set_accelerator(None)
    monkeypatch.setenv("DS_ACCELERATOR", "acme")
    with pytest.raises(accel_core.BackendUnavailableError) as refused:
        accel_core.get_accelerator()
    assert f"acme (accel-acme 1.0) is not usable: {told}. Next step: get one." in str(
        refused.value
    )


def test_that_one_device_is_missing_is_no_news_beside_the_other(
    torch_world, monkeypatch
):
    two_ways(
        torch_world,
        "its driver is not loaded",
        "no B",
        hardware=Hardware(nodes=("/dev/acme",)),
    )
    seen = {2: bus.Evidence(pci=("fade:0001",)), 1: None}
    monkeypatch.setattr(
        bus, "evidence", lambda backend, root="/": seen.get(backend.priority)
    )
    (caught,) = fallback_warnings()
    text = str(caught.message)
    assert (
        "acme (accel-acme 1.0): no device: its driver is not loaded. Next step: get one\n"
        in text
    )
    assert "no B" not in text
    assert "no B" in str(accel_core.selection())
