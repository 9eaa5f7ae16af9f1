"""The fall-back to the CPU warns once, with every reason, and only where it is news."""

import warnings

import pytest
from accel_tests import plugins
from accel_tests.asking import counting
from accel_tests.plugins import NO_DEVICE

import accel_core
from accel_core import current
from accel_core.backend import Hardware, Visibility
from accel_core.detection import How
from accel_core.errors import AcceleratorFallbackWarning
from accel_core.machine import devices


def test_the_fall_back_warns_once_with_every_reason(torch_world):
    """USERS 17, 19, 21: once a process, at the caller's line, saying why."""
    torch_world.backend("npu", extra=NO_DEVICE)
    torch_world.backend("mlu", vendor_import="torch_mlu", install_hint="pip install torch-mlu")
    torch_world.plugin("bad", "raise ImportError('libbad.so')")
    with pytest.warns(AcceleratorFallbackWarning) as caught:
        assert accel_core.get_accelerator().name == "cpu"
    (warning,) = caught
    text = str(warning.message)
    assert text.startswith("No accelerator is usable, so the CPU is used:\n")
    for line in (
        "npu (accel-npu 1.0): no device: nothing on the bus",
        "mlu (accel-mlu 1.0): not installed: torch_mlu is not installed. pip install torch-mlu",
        "bad (accel-bad 1.0): broken: the plugin failed to load: ImportError: libbad.so",
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


def test_the_warning_points_at_the_callers_line_from_everywhere(torch_world):
    torch_world.backend("npu", extra=NO_DEVICE)
    for call in (accel_core.get_accelerator, accel_core.selection):
        assert [w.filename for w in warned(call)] == [__file__]


def test_a_warning_that_is_an_error_leaves_a_choice_behind(torch_world):
    torch_world.backend("npu", extra=NO_DEVICE)
    with pytest.raises(AcceleratorFallbackWarning):
        accel_core.get_accelerator()
    assert accel_core.get_accelerator().name == "cpu"


def test_nothing_installed_and_nothing_there_is_no_news(torch_world):
    assert accel_core.get_accelerator().name == "cpu"
    assert accel_core.selection().how is How.FALLBACK


@pytest.mark.parametrize(("name", "value"), [("DS_ACCELERATOR", "cpu"), ("ACCEL_BLOCK", "npu")])
def test_a_pinned_cpu_and_what_the_user_blocked_are_no_news(torch_world, monkeypatch, name, value):
    torch_world.backend("npu", extra=NO_DEVICE)
    monkeypatch.setenv(name, value)
    assert not warned()
    assert accel_core.get_accelerator().name == "cpu"


def test_hidden_devices_are_named_in_the_warning(torch_world, monkeypatch):
    """USERS 19: CUDA_VISIBLE_DEVICES='' in every Ray actor."""
    counting(torch_world, "return 0", visibility=Visibility(variables=("NPU_VISIBLE",)))
    monkeypatch.setenv("NPU_VISIBLE", "")
    (caught,) = warned()
    assert "NPU_VISIBLE" in str(caught.message)
    assert accel_core.selection().environ["NPU_VISIBLE"] == ""


def test_a_broken_package_that_only_torch_knows_is_in_the_warning(torch_world):
    """USERS 17: no silent CPU because an unclaimed vendor package is broken."""
    torch_world.module("torch_foo", "raise ImportError('libfoo.so')")
    torch_world.distribution("torch-foo", "1.0", {"torch.backends": {"foo": "torch_foo:autoload"}})
    with pytest.warns(AcceleratorFallbackWarning, match=r"generic .* broken: .*ImportError: libfoo\.so"):
        assert accel_core.get_accelerator().name == "cpu"


def two_ways(world, first, second, **fields):
    """One name declared twice, through one package: what `accel_probe` says of each."""
    reason = f"{first!r} if backend.priority == 2 else {second!r}"
    body = f"return ProbeResult(False, {reason}, 'get one')"
    ways = [plugins.arguments("acme", priority, **fields) for priority in (2, 1)]
    world.plugin("acme", plugins.declaring(*ways) + plugins.hook("accel_probe", "backend, others", body))


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [("no A", "no B", "no A; no B"), ("torch has neither", "torch has neither", "torch has neither")],
)
def test_two_declarations_of_one_backend_share_a_line(torch_world, monkeypatch, caplog, first, second, told):
    caplog.set_level("DEBUG", "accel_core")  # in full
    two_ways(torch_world, first, second)
    (caught,) = warned()
    assert f"\n  acme (accel-acme 1.0): no device: {told}. get one\n" in str(caught.message)
    assert str(caught.message).count("acme") == 2  # its name and its distribution
    accel_core.set_accelerator(None)
    monkeypatch.setenv("DS_ACCELERATOR", "acme")
    with pytest.raises(accel_core.BackendUnavailableError) as refused:
        accel_core.get_accelerator()
    assert f"acme (accel-acme 1.0) is not usable: {told}. Next step: get one." in str(refused.value)


def test_that_one_device_is_missing_is_no_news_beside_the_other(torch_world, monkeypatch):
    two_ways(torch_world, "its driver is not loaded", "no B", hardware=Hardware(nodes=("/dev/acme",)))
    seen = {2: devices.Evidence(pci=("fade:0001",)), 1: None}
    monkeypatch.setattr(devices, "evidence", lambda backend: seen.get(backend.priority))
    (caught,) = warned()
    text = str(caught.message)
    assert "acme (accel-acme 1.0): no device: its driver is not loaded. get one\n" in text
    assert "no B" not in text
    assert "no B" in str(accel_core.selection())


# --- how much is said, by whom, and where ---------------------------------------------------------------

HERE, GONE = ("/dev/null",), ("/dev/acme[0-9]*",)


def cards(world, *names, nodes=GONE):
    for name in names:
        card = Hardware(f"{name.capitalize()} GPU", nodes, pci_ids=("fade",))
        world.backend(name, hardware=card, vendor_import="json" if nodes == GONE else f"torch_{name}")


def warned(call=accel_core.get_accelerator):
    accel_core.set_accelerator(None)
    current._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return caught


def test_where_there_merely_is_no_device_one_line_says_so(torch_world, caplog):
    cards(torch_world, "acme", "other")
    for name in ("mlu", "sdaa", "supa"):
        torch_world.backend(name, vendor_import=f"torch_{name}")
    (caught,) = warned()
    assert str(caught.message) == (
        "No accelerator is usable, so the CPU is used: no Acme or Other GPU found. `accel why` says more; "
        "DS_ACCELERATOR=cpu says that the CPU is meant."
    )
    caplog.set_level("DEBUG", "accel_core")
    (caught,) = warned()
    for words in ("/dev/acme[0-9]*", "vendor's package not installed: mlu, sdaa, supa", "other (accel-other"):
        assert words in str(caught.message)


def test_hardware_that_is_here_is_told_first_and_in_full(torch_world):
    cards(torch_world, "acme")
    cards(torch_world, "zebra", nodes=HERE)
    (caught,) = warned()
    _, first, *_ = str(caught.message).splitlines()
    assert first.startswith("  zebra (accel-zebra 1.0): not installed: torch_zebra is not installed, though")


#: RANK and LOCAL_RANK, and how often it is said: of an absent device, and of a broken one beside it.
@pytest.mark.parametrize("row", ["0 0 1 1", "1 1 0 0", "8 0 0 1", "3  0 0", "  1 1", "odd 0 0 1"])
def test_one_rank_speaks_for_its_job_and_one_on_each_host_of_its_hardware(torch_world, monkeypatch, row):
    rank, local, *said = row.split(" ")
    absent, broken = map(int, said)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("LOCAL_RANK", local)
    cards(torch_world, "acme")
    assert len(warned()) == absent
    cards(torch_world, "zebra", nodes=HERE)
    assert len(warned()) == broken


def test_it_points_past_packages_at_the_users_own_line(torch_world, tmp_path):
    torch_world.backend("npu", extra=NO_DEVICE)
    between = torch_world.root / "site-packages" / "framework.py"
    between.write_text("import accel_core\naccel_core.get_accelerator()\n")
    assert "site-packages" in str(between)
    torch_world.plugin("unused", "")
    user = tmp_path / "train.py"
    user.write_text("import warnings\nwarnings.simplefilter('default')\n\nimport framework\n")
    done = torch_world.child(f"import runpy\nrunpy.run_path({str(user)!r})", strict=False)
    assert f"{user}:4: AcceleratorFallbackWarning: No accelerator" in done.stderr
