"""oneCCL's bindings on the CPU: imported for a process group, and not needed where the import fails."""

import os

import pytest
from accel_tests.children import clean_environment, run_python

pytest.importorskip("torch")


BINDINGS = """
import torch.distributed
def create(*arguments):
    raise NotImplementedError
torch.distributed.Backend.register_backend("ccl", create, devices=["cpu"])
"""


#: Each package, and what is said of it where gloo serves.
PACKAGES = [
    (BINDINGS, ""),
    (
        "raise OSError('libccl.so.1: cannot open shared object file')",
        "OSError: libccl.so.1",
    ),
    ("raise SystemExit(127)", "SystemExit: 127"),
    ("", "does not register the backend ccl"),
]

#: A fork for each of the folders that are given: torch is imported once.
EACH = """
import json, os, sys, warnings
import torch.distributed
import accel_core
from accel_train.launch.communication import prepare_communication

def asked():
    acc = accel_core.get_accelerator()
    named = acc.communication_backend_name()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ways = [prepare_communication(acc) for _ in range(2)]
    said = [str(w.message) for w in caught if "oneCCL" in str(w.message)]
    if said:
        import accel_train
        os.environ["ACCEL_COMMUNICATION_BACKEND"] = "ccl"  # as accel run, which imports nothing, sets it
        acc._communication_backend_name = ""  # as in a rank
        store = torch.distributed.HashStore()
        with accel_train.init_process_group(rank=0, world_size=1, store=store) as context:
            assert context.backend == "gloo"
    return [named, ways, said, acc.communication_backend_name(),
            torch.distributed.is_backend_available(ways[0])]

for folder in sys.argv[1:]:
    if not (pid := os.fork()):
        sys.path.insert(0, folder)
        print("ANSWER", json.dumps(asked()), flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, folder
"""


@pytest.mark.skipif(
    not hasattr(os, "fork"), reason="needs os.fork; oneCCL is for Linux"
)
def test_oneccls_bindings_are_imported_for_a_process_group_and_gloo_serves_where_they_fail(
    tmp_path,
):
    folders = []
    for place, (source, _) in enumerate(PACKAGES):
        folders.append(tmp_path / str(place))
        folders[-1].mkdir()
        (folders[-1] / "oneccl_bindings_for_pytorch.py").write_text(source)
    ended = run_python(
        ["-c", EACH, *map(str, folders)], clean_environment(DS_ACCELERATOR="cpu")
    ).succeeded()
    for (_, said), answer in zip(PACKAGES, ended.answers, strict=True):
        named, ways, warned, after, there = answer
        way = "gloo" if said else "ccl"
        assert (named, ways, after, there) == ("ccl", [way, way], way, True), said
        assert [said in text for text in warned] == [True] * bool(said), said
