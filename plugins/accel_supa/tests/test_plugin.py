"""What is Biren's own: which releases it needs, the next step after its errors, the version of BCCL.

How it is probed is told in `tests/contracts/test_probing.py`, what its members do by its score card.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from accel_core import hint_for
from accel_supa import BACKEND

SET_ENV = "brsw_set_env.sh"


def test_the_declaration():
    assert BACKEND.in_torch.impersonates == "cuda"
    assert BACKEND.visibility.variables == ("SUPA_VISIBLE_DEVICES",)
    assert BACKEND.communication_backend == "bccl"
    assert {"BCCL", "BIREN", "SUPA", "BRTB", "LD_LIBRARY", "PATH"} == set(BACKEND.environment.forward)


@pytest.mark.parametrize(
    ("distribution", "version", "fits"),
    [
        ("torch", "2.4.0", False),
        ("torch", "2.6.0", True),
        ("torch-supa", "1.0.0.20501+br2xx", False),
        ("torch-supa", "1.0.0.20600", True),
        ("torch-supa", "1.0.0.21000+br2xx.isa", True),
        ("torch-supa", "1.0.0.20900+git68fb624", True),
        ("torch-supa", "1.1.0.20800", True),
    ],
)
def test_which_releases_it_needs(distribution, version, fits):
    needed = {found.name: found for found in map(Requirement, BACKEND.requires)}
    assert needed[distribution].specifier.contains(version, prereleases=True) is fits


SEEN = [
    ("libsupa-runtime.so: cannot open shared object file", SET_ENV),
    ("libcudart.so.12: cannot open shared object file", SET_ENV),
    ("libsupart functions unavailable.", SET_ENV),
    ("libbccl.so: cannot open shared object file", SET_ENV),
    ("libsudnn.so.1: cannot open shared object file", SET_ENV),
    ("libsublas.so: cannot open shared object file", SET_ENV),
    ("torch_supa/lib/libtorch_supa.so: undefined symbol: _ZN2at", "1.0.0.21000 is for torch 2.10.0"),
    ("torch.register_privateuse1_backend() has already been set! Current: mlu", "DS_ACCELERATOR=supa"),
    ("SUPA out of memory. Tried to allocate 20.00 GiB", "brsmi"),
]


@pytest.mark.parametrize(("message", "hint"), SEEN)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


@pytest.mark.parametrize("message", ["", "list index out of range", "libssl.so.1.1: cannot open"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None


def test_the_version_of_bccl_where_the_build_has_one():
    pytest.importorskip("torch")
    from accel_supa.accelerator import SUPAAccelerator

    def fails() -> None:
        raise AttributeError("module 'torch_supa._C' has no attribute '_bccl_version'")

    def asked(**bccl: object) -> tuple[int, ...] | None:
        built = SimpleNamespace(device_module=SimpleNamespace(bccl=SimpleNamespace(**bccl)))
        return SUPAAccelerator.communication_backend_version(built)

    assert asked(version=lambda: (1, 3, 0, "rc2")) == (1, 3, 0)
    assert asked(version=fails) is None
    assert asked() is None
