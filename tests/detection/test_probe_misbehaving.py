"""A vendor's package that fails, and a device count that is none, are verdicts with their cause."""

from __future__ import annotations

import sys

import pytest
from accel_tests.asking import counting, judge, vendor
from accel_tests.plugins import hook

from accel_core._support.torch_import import import_torch
from accel_core.backend import Visibility
from accel_core.detection import Status

BROKEN = {
    "ImportError": (
        "raise ImportError('libhccl.so: cannot open shared object file')",
        "ImportError: libhccl.so",
    ),
    "OSError": ("raise OSError('libascend_hal.so: no such file')", "OSError: libascend_hal.so"),
    "AttributeError": (
        "import json; json._autoload",
        "AttributeError: module 'json' has no attribute '_autoload'",
    ),
    "RuntimeError": ("raise RuntimeError('no driver')", "RuntimeError: no driver"),
    "sys.exit": ("import sys; sys.exit(1)", "SystemExit: it tried to end the process with 1"),
}


@pytest.mark.parametrize(("source", "said"), BROKEN.values(), ids=BROKEN)
def test_a_vendor_package_that_fails_is_broken_with_its_cause(torch_world, source, said):
    """USERS 5, 6, 7."""
    vendor(torch_world, source)
    found = judge()
    assert found.status is Status.BROKEN
    assert found.status.is_failure
    assert found.reason.startswith(f"torch_npu failed: {said}")
    assert found.cause.startswith(said)
    assert found.error is not None


def test_the_plugin_explains_its_vendors_errors(torch_world):
    """USERS 7: "source set_env.sh"."""
    extra = hook(
        "accel_explain",
        "backend, error",
        "return f'source set_env.sh ({backend.name}, {type(error).__name__})'",
    )
    vendor(torch_world, "raise ImportError('libhccl.so')", extra=extra)
    assert judge().hint == "source set_env.sh (npu, ImportError)"


@pytest.mark.parametrize(
    "body", ["raise RuntimeError", "return 5", "return None", "import sys; sys.exit()", "print('x')"]
)
def test_an_explanation_that_fails_explains_nothing(torch_world, body, capsys):
    vendor(
        torch_world, "raise ImportError('libhccl.so')", extra=hook("accel_explain", "backend, error", body)
    )
    found = judge()
    assert (found.status, found.hint) == (Status.BROKEN, "")
    assert capsys.readouterr().out == ""


def test_a_vendor_package_that_deletes_torch_leaves_it_where_it_was(torch_world):
    vendor(torch_world, "import sys; del sys.modules['torch']")
    torch = import_torch()
    assert judge().usable
    assert sys.modules["torch"] is torch, "another import of it would be another torch"


def test_the_first_vendor_import_that_works_is_taken(torch_world):
    torch_world.module("new_npu", "raise ImportError('too new')")
    torch_world.module("old_npu", "")
    torch_world.backend("npu", vendor_import=("missing_npu", "new_npu", "old_npu"))
    assert judge().usable
    assert "old_npu" in sys.modules


def test_of_several_broken_vendor_imports_the_first_is_told(torch_world):
    torch_world.module("new_npu", "raise ImportError('too new')")
    torch_world.module("old_npu", "raise ImportError('too old')")
    torch_world.backend("npu", vendor_import=("new_npu", "old_npu"))
    assert judge().cause == "ImportError: too new"


def test_keyboard_interrupt_passes(torch_world):
    vendor(torch_world, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        judge()


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("return -1", "-1 (int)"),
        ("return '2'", "'2' (str)"),
        ("return True", "True (bool)"),
        ("return None", "None (NoneType)"),
        ("return 1.0", "1.0 (float)"),
    ],
)
def test_a_device_count_that_is_no_count_is_invalid(torch_world, body, shown):
    """USERS 34: types are exact."""
    counting(torch_world, body)
    found = judge()
    assert found.status is Status.INVALID
    assert found.reason == f"device_count() gave {shown}, expected an int of 0 or more"
    assert found.hint == "report this to the maintainers of accel-npu"
    assert judge(pinned=True).status is Status.INVALID


@pytest.mark.parametrize(
    "body", ["raise RuntimeError('driver too old')", "import sys; sys.exit('driver too old')"]
)
def test_a_device_count_that_raises_is_broken(torch_world, body):
    counting(torch_world, body)
    found = judge()
    assert found.status is Status.BROKEN
    assert "driver too old" in found.reason


def test_no_device_names_the_variable_that_hides_them(torch_world, monkeypatch):
    """USERS 19."""
    counting(torch_world, "return 0", visibility=Visibility(variables=("NPU_VISIBLE",)))
    assert judge().reason == "the vendor's runtime counts no device"
    monkeypatch.setenv("NPU_VISIBLE", "")
    assert "NPU_VISIBLE" in judge().reason
