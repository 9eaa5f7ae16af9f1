"""What is Rebellions' own: its NPUs, its variables, and the next step after its errors.

`tests/contracts/test_probing.py` probes it, `test_real_wheel.py` the real torch-rbln.
"""

from __future__ import annotations

import pytest

from accel_core import hint_for
from accel_rbln import BACKEND

COMPILER = "install rebel-compiler from Rebellions' package index"
MATCHING = "install the rebel-compiler made for your torch-rbln"


def test_the_declaration():
    assert (BACKEND.hardware.nodes, BACKEND.hardware.pci_ids) == (("/dev/rbln[0-9]*",), ("1eff",))
    assert BACKEND.visibility.variables == ("RBLN_DEVICES", "RBLN_VISIBLE_DEVICES")
    assert (BACKEND.communication_backend, BACKEND.compile_backend) == ("rbln-ccl", "rbln")
    assert BACKEND.in_torch.private_use1


def test_a_hosts_own_addresses_are_not_forwarded():
    for variable in ("RBLN_LOCAL_IP", "RBLN_RDMA_IP"):
        assert not variable.startswith(BACKEND.environment.forward)
    for variable in ("RBLN_ROOT_IP", "RBLN_NPUS_PER_DEVICE", "TORCH_RBLN_LOG_LEVEL"):
        assert variable.startswith(BACKEND.environment.forward)


#: The first five came from the real import of 0.12.0: without rebel-compiler, and with libraries made for the
#: test in its place. The others are strings of its libraries.
SEEN = [
    ("Could not find librbln.so. No rebel-compiler distribution is installed for /venv/bin/python", COMPILER),
    ("RBLN ABI mismatch: this torch-rbln was built against rebel ABI 6, and librbln.so no longer", MATCHING),
    ("libc10_rbln.so: undefined symbol: _ZN4rbln23rbln_stream_synchronizeEm", MATCHING),
    ("Failed to load /lib/librbln.so (found via LD_LIBRARY_PATH): /lib/librbln.so: file too short", MATCHING),
    ("libtorch_rbln.so: undefined symbol: _ZN3c1010TensorImpl", "pip check"),
    ("Cannot set_device: the RBLN device runtime is not loaded; install the RBLN SDK/runtime", COMPILER),
    ("torch.register_privateuse1_backend() has already been set! Current: npu", "DS_ACCELERATOR=rbln"),
    ("RBLN_NPUS_PER_DEVICE must be a positive integer, got 0", "unset RBLN_DEVICE_MAP"),
    (
        "Physical NPU 9 out of range (this process has 2 physical NPU(s)). Env RBLN_DEVICE_MAP=[9]",
        "unset RBLN_",
    ),
    ("rbln_register_device_id failed; the device(s) may be in use by another process", "rbln-smi"),
    ("rbln_malloc_lazy failed (rbln:0, 4 bytes); the device may be out of memory", "rbln-smi"),
]


@pytest.mark.parametrize(("message", "hint"), SEEN)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


@pytest.mark.parametrize("message", ["", "list index out of range", "libssl.so.1.1: cannot open"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None
