"""The declaration, and that finding the plugin costs and changes nothing."""

from __future__ import annotations

import json

import pluggy
import pytest

import accel_core
import accel_cuda
from accel_core import hookspecs
from accel_cuda import BACKEND


def test_the_declaration():
    assert (BACKEND.name, BACKEND.priority, BACKEND.device_type) == ("cuda", 200, "cuda")
    assert BACKEND.vendor_imports == ("torch",)
    assert BACKEND.requires == ("torch>=2.6",)
    assert BACKEND.visible_devices_grammar == "cuda"
    assert {"10de/03", "1002/03", "1002/12"} == set(BACKEND.pci_ids)
    assert {"/dev/nvidia[0-9]*", "/dev/dxg", "/dev/kfd"} <= set(BACKEND.device_nodes)
    assert "NCCL" in BACKEND.export_envs
    assert BACKEND.url
    assert BACKEND.install_hint


def test_which_devices_are_visible_is_not_forwarded_to_other_nodes():
    assert not "CUDA_VISIBLE_DEVICES".startswith(BACKEND.export_envs)


@pytest.mark.parametrize(("platform", "backend"), [("linux", "nccl"), ("win32", "gloo")])
def test_the_communication_backend(child, platform, backend):
    code = f"import sys; sys.platform = {platform!r}; import accel_cuda as a; print(a.BACKEND)"
    assert f"communication_backend={backend!r}" in child(code)


def test_the_hooks_fit_the_specifications():
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(accel_cuda)
    manager.check_pending()
    assert manager.hook.accel_backends() == [BACKEND]
    error = RuntimeError("Found no NVIDIA driver on your system.")
    assert "nvidia-smi" in manager.hook.accel_explain(backend=BACKEND, error=error)
    answer = manager.hook.accel_probe(backend=BACKEND, others=())
    assert answer is None or isinstance(answer, accel_core.ProbeResult)


def test_importing_it_and_probing_are_inert(child):
    code = (
        "import json, os, sys, threading\n"
        "before = dict(os.environ)\n"
        "import accel_cuda\n"
        "accel_cuda.accel_probe(accel_cuda.BACKEND)\n"
        "accel_cuda.accel_explain(accel_cuda.BACKEND, OSError('x'))\n"
        "heavy = ('torch', 'pynvml', 'nvtx', 'amdsmi', 'numpy', 'accel_cuda.accelerator')\n"
        "print(json.dumps([[m for m in heavy if m in sys.modules], before == dict(os.environ),"
        " threading.active_count()]))\n"
    )
    assert json.loads(child(code)) == [[], True, 1]
