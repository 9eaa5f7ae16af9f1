"""What is Cambricon's own: which variables count, the next step after its errors, a build without CNCL.

How it is probed is told in `tests/contracts/test_probing.py`, what its members do by its score card.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from accel_core import hint_for
from accel_mlu import BACKEND


def test_the_declaration():
    assert BACKEND.requires == ("torch>=2.6",)
    assert BACKEND.visibility.variables == (
        "CN_VISIBLE_DEVICES",
        "MLU_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
    )
    assert (BACKEND.communication_backend, BACKEND.visibility.grammar) == ("cncl", "mlu")
    assert not "MLU_VISIBLE_DEVICES".startswith(BACKEND.environment.forward)
    assert {"NEUWARE_HOME", "CNCL", "LD_LIBRARY", "PATH"} <= set(BACKEND.environment.forward)


SEEN = [
    ("libcnrt.so: cannot open shared object file: No such file or directory", "NEUWARE_HOME"),
    ("please set NEUWARE_HOME: libcndrv.so", "NEUWARE_HOME"),
    ("libmluops.so: cannot open shared object file", "LD_LIBRARY_PATH"),
    ("torch_mlu/_MLUC.so: undefined symbol: _ZN3c105ErrorC2E", "1.22.0+torch2.4.0 is for torch 2.4.0"),
    ("cannot import name '_MLUC' from 'torch_mlu'", "install the torch_mlu made for your torch"),
    ("torch.register_privateuse1_backend() has already been set! Current: npu", "DS_ACCELERATOR=mlu"),
    ("cninit failed: no driver", "cnmon"),
    ("Can't initialize CNDEV", "cnmon"),
    ("Cannot re-initialize MLU in forked subprocess. To use MLU with multiprocessing", "spawn"),
    ("MLU out of memory. Tried to allocate 20.00 GiB", "cnmon"),
]


@pytest.mark.parametrize(("message", "hint"), SEEN)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


@pytest.mark.parametrize("message", ["", "list index out of range", "libcudart.so.12: cannot open"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None


def test_the_version_of_cncl_where_the_build_has_it():
    pytest.importorskip("torch")
    from accel_mlu.accelerator import MLUAccelerator

    def fails() -> None:
        raise AttributeError("module 'torch_mlu._MLUC' has no attribute '_cncl_version'")

    for version, expected in ((lambda: [1, 20, 1], (1, 20, 1)), (fails, None)):
        built = SimpleNamespace(device_module=SimpleNamespace(cncl=SimpleNamespace(version=version)))
        assert MLUAccelerator.communication_backend_version(built) == expected
