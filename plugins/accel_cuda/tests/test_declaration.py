"""The two declarations."""

import pytest

from accel_cuda import CUDA, ROCM

BOTH = pytest.mark.parametrize("backend", [CUDA, ROCM], ids=["CUDA", "ROCm"])


@BOTH
@pytest.mark.parametrize(("platform", "library"), [("linux", "nccl"), ("win32", "gloo")])
def test_the_communication_backend(child, platform, library, backend):
    which = "CUDA" if backend is CUDA else "ROCM"
    code = f"import sys; sys.platform = {platform!r}; import accel_cuda as a; print(a.{which})"
    assert f"communication_backend={library!r}" in child(code)
