"""What is Moore Threads' own: a build without MCCL, as its S80 and S3000 need.

How it is probed is told in `tests/contracts/test_probing.py`, what its members do by its score card.
"""

from types import SimpleNamespace

import pytest


def test_the_version_of_mccl_where_the_build_has_it():
    pytest.importorskip("torch")
    from accel_musa.accelerator import MUSAAccelerator

    def fails():
        raise AttributeError("module 'torch_musa._MUSAC' has no attribute '_mccl_version'")

    for version, expected in ((lambda: (2, 11, 4, "rc1"), (2, 11, 4)), (fails, None)):
        built = SimpleNamespace(device_module=SimpleNamespace(mccl=SimpleNamespace(version=version)))
        assert MUSAAccelerator.communication_backend_version(built) == expected
