"""A vendor's package that fails, that changes `sys.modules`, or that has several names."""

import sys

import pytest
from accel_tests.asking import judge, vendor
from accel_tests.plugins import hook

from accel_core.torch_import import import_torch


def test_the_plugin_explains_its_vendors_errors(torch_world):
    """CANN's libraries are not found until set_env.sh is sourced, which only its plugin knows."""
    answer = "return f'source set_env.sh ({backend.name}, {type(error).__name__})'"
    vendor(
        torch_world,
        "raise ImportError('libhccl.so')",
        extra=hook("accel_explain", "backend, error", answer),
    )
    assert judge().hint == "source set_env.sh (npu, ImportError)"


def test_a_vendor_package_that_deletes_torch_leaves_it_where_it_was(torch_world):
    vendor(torch_world, "import sys; del sys.modules['torch']")
    torch = import_torch()
    assert judge().usable
    assert sys.modules["torch"] is torch, "another import of it would be another torch"


@pytest.mark.parametrize(
    ("new", "cause"), [("", ""), ("raise ImportError('x')", "ImportError: x")]
)
def test_the_first_vendor_import_that_is_installed_is_taken(torch_world, new, cause):
    torch_world.module("new_npu", new)
    torch_world.module("old_npu", "")
    torch_world.backend("npu", vendor_import=("missing_npu", "new_npu", "old_npu"))
    found = judge()
    assert found.usable == (not cause)
    assert found.cause == cause
    assert "old_npu" not in sys.modules
