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
    assert backend.visible_devices_grammar == "cuda"
    assert "/dev/dxg" in backend.device_nodes
    assert "NCCL" in backend.export_envs
    assert backend.url
    assert backend.install_hint


def test_what_tells_the_two_apart():
    assert (CUDA.priority, ROCM.priority) == (200, 190)
    assert (CUDA.torch_builds, ROCM.torch_builds) == (("cuda",), ("hip",))
    assert (CUDA.hardware, ROCM.hardware) == ("NVIDIA GPU", "AMD GPU")
    assert set(CUDA.pci_ids) == {"10de/03"}
    assert set(ROCM.pci_ids) == {"1002/03", "1002/12"}
    assert "/dev/nvidia[0-9]*" in CUDA.device_nodes
    assert "/dev/kfd" in ROCM.device_nodes


@BOTH
@pytest.mark.parametrize("variable", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_which_devices_are_visible_is_not_forwarded_to_other_nodes(backend, variable):
    assert not variable.startswith(backend.export_envs)


@BOTH
@pytest.mark.parametrize(("platform", "library"), [("linux", "nccl"), ("win32", "gloo")])
def test_the_communication_backend(child, platform, library, backend):
    which = "CUDA" if backend is CUDA else "ROCM"
    code = f"import sys; sys.platform = {platform!r}; import accel_cuda as a; print(a.{which})"
    assert f"communication_backend={library!r}" in child(code)
