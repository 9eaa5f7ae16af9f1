"""What is torch's own and asks much of a device: compiling, sharding over ranks, several devices at once."""

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.nightly(
    reason="torch's own suites on a simulated device: minutes"
)

#: What the two ranks have after gather, scatter, a reduction, a batch, and what has other shapes.
STACKED = [[[0.0, 7.0]], [[1.0, 7.0]]]
MOVED = [
    [
        [[0.0], [1.0]],
        [[5.0]],
        [],
        [[1.0], [1.0, 2.0]],
        [[1.0], STACKED, [[0.0], [14.0]]],
    ],
    [
        [[0.0], [0.0]],
        [[6.0]],
        [[0.5, 4.0]],
        [[1.0], [1.0, 2.0]],
        [[0.0], STACKED, [[2.0], [14.0]]],
    ],
]


def test_compiled_code_runs_on_the_device(simulated):
    told = simulated(
        "acme", "simulated_checks.compiling:everything", "acme", timeout=300
    ).answer
    assert told["inductor differs by"] < 1e-6
    assert told["places"] == ["acme:1"]
    assert told["chosen"] == "inductor"
    assert told["values"] == [1.0, 5.0]
    assert told["aot_eager is eager"] is True
    assert told["waits and streams"] == [[3.0, 2.0]] * 3
    assert "kernel 1 failed (requested)" in told["failed"]
    assert (
        "a kernel of torch.compile's is not permitted while the stream is capturing"
        in told["captured"]
    )


@pytest.mark.parametrize(
    ("vendor", "backend"), [("acme", "acme:accl"), ("cuda", "cuda:nccl")]
)
def test_what_is_sharded_over_two_ranks_is_as_on_the_cpu(vendor, backend, simulated):
    run = simulated(vendor, "simulated_checks.sharded:everything", vendor, processes=2)
    for rank, told in enumerate(run.answers):
        assert told.pop("backend") == backend
        assert told.pop("device") == f"{vendor}:{rank}"
        assert told.pop("moved")["values"] == MOVED[rank]
        assert told == dict.fromkeys(told, True)


def test_data_parallel_copies_among_devices(simulated):
    assert simulated("cuda", PROGRAMS / "data_parallel.py").answer == {
        "output": ["cuda:0", [1.0, 5.0, 9.0, 13.0, 17.0]],
        "gradient": [[20.0, 25.0]],
        "scatter": [["cuda:1", [0.0]], ["cuda:0", [1.0, 2.0]]],
        "scatter into outputs": [["cuda:1", [0.0, 1.0]], ["cuda:0", [2.0]]],
        "broadcast": [["cuda:0", [0.0, 1.0, 2.0]], ["cuda:1", [0.0, 1.0, 2.0]]],
        "broadcast into outputs": [["cuda:1", [0.0, 1.0, 2.0]]],
        "gather": [["cpu", [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]]],
        "gather into an output": [["cpu", [0.0, 1.0, 2.0]]],
    }


def test_code_for_nvcc_is_refused_in_one_sentence(simulated):
    code = "from torch.utils.cpp_extension import load\nload('op', ['op.cu'])"
    said = simulated("cuda", code, check=False).ended[0].stderr
    assert (
        "RuntimeError: op has CUDA code, which cannot be compiled for simulated cuda."
        in said
    )
