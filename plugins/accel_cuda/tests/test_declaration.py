"""The two declarations."""

from __future__ import annotations

import pytest

from accel_cuda import CUDA, ROCM

BOTH = pytest.mark.parametrize("backend", [CUDA, ROCM], ids=["CUDA", "ROCm"])


@BOTH
def test_the_declaration(backend):
    assert (backend.name, backend.device_type) == ("cuda", "cuda")
    assert backend.vendor_imports == ("torch",)
    assert backend.requires == ("torch>=2.6",)
    assert backend.visibility.grammar == "cuda"
    assert "/dev/dxg" in backend.hardware.nodes
    assert "NCCL" in backend.environment.forward
    assert backend.url
    assert backend.install_hint


def test_what_tells_the_two_apart():
    assert (CUDA.priority, ROCM.priority) == (200, 190)
    assert (CUDA.in_torch.builds, ROCM.in_torch.builds) == (("cuda",), ("hip",))
    assert (CUDA.hardware.name, ROCM.hardware.name) == ("NVIDIA GPU", "AMD GPU")
    assert set(CUDA.hardware.pci_ids) == {"10de/03"}
    assert set(ROCM.hardware.pci_ids) == {"1002/03", "1002/12"}
    assert "/dev/nvidia[0-9]*" in CUDA.hardware.nodes
    assert "/dev/kfd" in ROCM.hardware.nodes


@BOTH
@pytest.mark.parametrize("variable", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_which_devices_are_visible_is_not_forwarded_to_other_nodes(backend, variable):
    assert not variable.startswith(backend.environment.forward)


@BOTH
@pytest.mark.parametrize(("platform", "library"), [("linux", "nccl"), ("win32", "gloo")])
def test_the_communication_backend(child, platform, library, backend):
    which = "CUDA" if backend is CUDA else "ROCM"
    code = f"import sys; sys.platform = {platform!r}; import accel_cuda as a; print(a.{which})"
    assert f"communication_backend={library!r}" in child(code)
