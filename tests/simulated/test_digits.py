"""`examples/train_digits.py` on a device that no plugin knows, through accel_core and a small plugin on disk.

The others' devices train through their own plugins: `test_plugins.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_testing.on_disk import install_plugin

from accel_simulated import VENDORS

pytestmark = pytest.mark.slow


def test_equals_cpu(
    tmp_path: Path, digits_on_cpu: dict[str, Any], train_digits: Callable[..., dict[str, Any]]
) -> None:
    name = install_plugin(tmp_path, VENDORS["acme"])
    report = train_digits("acme", name, [tmp_path])
    assert report["backend"] == name
    assert report["parameters_sha256"] == digits_on_cpu["parameters_sha256"]
    assert report["test_accuracy"] == digits_on_cpu["test_accuracy"] > 0.8
    assert report["peak_memory_bytes"] > 0
