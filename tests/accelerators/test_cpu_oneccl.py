"""oneCCL's bindings on the CPU: imported when a process group is made, and done without where they fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_testing.children import clean_environment, run_python

BINDINGS = """
import torch.distributed
def create(*arguments):
    raise NotImplementedError
torch.distributed.Backend.register_backend("ccl", create, devices=["cpu"])
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (BINDINGS, ""),
        ("raise OSError('libccl.so.1: cannot open shared object file')", "OSError: libccl.so.1"),
        ("raise SystemExit(127)", "SystemExit: 127"),
        ("", "registers no backend ccl"),
    ],
)
def test_oneccls_bindings_are_imported_for_a_process_group_and_gloo_serves_where_they_fail(
    tmp_path: Path, source: str, said: str
) -> None:
    (tmp_path / "oneccl_bindings_for_pytorch.py").write_text(source)
    code = """
import json, os, sys, warnings
import accel_core
acc = accel_core.get_accelerator()
named = acc.communication_backend_name()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    ways = [acc._prepare_communication() for _ in range(2)]
said = [str(w.message) for w in caught if "oneCCL" in str(w.message)]
import torch
if said:
    from accel_core import distributed
    os.environ["ACCEL_COMMUNICATION_BACKEND"] = "ccl"  # as accel run, which imports nothing, sets it
    acc._ccl_works = True
    store = torch.distributed.HashStore()
    with distributed.init_process_group(rank=0, world_size=1, store=store) as context:
        assert context.backend == "gloo"
print("ANSWER", json.dumps([named, ways, said, acc.communication_backend_name(),
                            torch.distributed.is_backend_available(ways[0])]), flush=True)
"""
    variables = clean_environment(DS_ACCELERATOR="cpu", PYTHONPATH=str(tmp_path))
    ended = run_python(["-c", code], variables)
    assert ended.returncode == 0, ended.stderr
    ((named, ways, warned, after, there),) = ended.answers
    way = "gloo" if said else "ccl"
    assert (named, ways, after, there) == ("ccl", [way, way], way, True)
    assert [said in text for text in warned] == [True] * bool(said)
