"""What is Cambricon's own: which variables count, the next step after its errors, a build without CNCL.

What its members do is told by its score card.
"""

from types import SimpleNamespace

import pytest


def test_the_version_of_cncl_where_the_build_has_it():
    pytest.importorskip("torch")
    from accel_mlu.accelerator import MLUAccelerator

    def fails():
        raise AttributeError("module 'torch_mlu._MLUC' has no attribute '_cncl_version'")

    for version, expected in ((lambda: [1, 20, 1], (1, 20, 1)), (fails, None)):
        built = SimpleNamespace(device_module=SimpleNamespace(cncl=SimpleNamespace(version=version)))
        assert MLUAccelerator.communication_backend_version(built) == expected
