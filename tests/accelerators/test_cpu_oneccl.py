"""oneCCL's bindings on the CPU: imported when a process group is made, and done without where they fail."""

from __future__ import annotations

import os
import warnings

import pytest
import torch.distributed
from accel_tests.forks import forked

import accel_core
import accel_train

BINDINGS = """
import torch.distributed
def create(*arguments):
    raise NotImplementedError
torch.distributed.Backend.register_backend("ccl", create, devices=["cpu"])
"""


#: Each package, and what is said of it where gloo serves.
PACKAGES = [
    (BINDINGS, ""),
    ("raise OSError('libccl.so.1: cannot open shared object file')", "OSError: libccl.so.1"),
    ("raise SystemExit(127)", "SystemExit: 127"),
    ("", "registers no backend ccl"),
]


@pytest.mark.parametrize(("source", "said"), PACKAGES)
@forked("torch", DS_ACCELERATOR="cpu")
def test_oneccls_bindings_are_imported_for_a_process_group_and_gloo_serves_where_they_fail(
    tmp_path, source, said
):
    (tmp_path / "oneccl_bindings_for_pytorch.py").write_text(source)  # the folder is in the path
    cpu, way = accel_core.get_accelerator(), "gloo" if said else "ccl"
    assert cpu.communication_backend_name() == "ccl"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [cpu._prepare_communication() for _ in range(2)] == [way, way]
    told = [str(w.message) for w in caught if "oneCCL" in str(w.message)]
    assert [said in text for text in told] == [True] * bool(said)
    if said:
        os.environ["ACCEL_COMMUNICATION_BACKEND"] = "ccl"  # as accel run, which imports nothing, sets it
        cpu._ccl_works = True
        store = torch.distributed.HashStore()
        with accel_train.init_process_group(rank=0, world_size=1, store=store) as context:
            assert context.backend == "gloo"
    assert cpu.communication_backend_name() == way
    assert torch.distributed.is_backend_available(way)
