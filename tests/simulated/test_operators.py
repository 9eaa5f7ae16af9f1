"""A slice of torch's own databases on the simulated device: what was wrong there once.

`./dev opinfo` runs all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's databases of operators import expecttest")

pytestmark = pytest.mark.slow

OPINFO = Path(__file__).parents[1] / "opinfo"

CASES = [
    # A result with the strides that the kernel chose, in a new out=; and one that has its own, which stay.
    ["operators", "linalg.inv", "float32"],
    ["operators", "softmax", "float32"],
    # CPU's kernel, and not a composite beside it that rounds or lays out otherwise.
    ["operators", "addr", "float32"],
    ["operators", "linalg.lu_solve", "complex64"],
    ["operators", "linalg.lstsq", "float32"],
    # Composites that know the names of the device types they serve.
    ["operators", "mode", "int64"],
    ["operators", "conj_physical", "complex64"],
    # Results that only look at an argument: conjugated, and with arguments that overlap.
    ["operators", "vdot", "complex64"],
    ["operators", "gather", "float32"],
    # Sparse tensors, of both kinds; one kernel asks whether there will be a backward.
    ["operators", "to_sparse", "float32"],
    ["operators", "sparse.mm.reduce", "float32"],
    ["operators", "sparse.sampled_addmm", "float32"],
    ["optimizers", "SparseAdam", "float32"],
    # Fused on CPU: attention, oneDNN's recurrent layers.
    ["operators", "nn.functional.scaled_dot_product_attention", "bfloat16"],
    ["modules", "nn.LSTM", "float32"],
    ["modules", "nn.GRUCell", "float32"],
    # A nested tensor, for the sake of a mask.
    ["modules", "nn.Transformer", "float32"],
    # Scratch memory that oneDNN asks for by its bare address.
    ["operators", "nn.functional.gelu", "float32"],
]


def test_what_was_wrong_once_equals_the_cpu(simulated: Callable[..., Any]) -> None:
    environ = {"ACCEL_SIMULATE_RANDOM": "host", "OMP_NUM_THREADS": "1"}
    run = simulated("acme", "accel_opinfo.worker:several", "acme", CASES, environ=environ, path=[OPINFO])
    seen = {" ".join(case): answer for case, answer in zip(CASES, run.answer, strict=True)}
    assert not {case: answer["unmade"] for case, answer in seen.items() if "unmade" in answer}
    failures = {
        f"{case}, {variant}": counts["failures"]
        for case, answer in seen.items()
        for variant, counts in answer["variants"].items()
        if counts["same"] != counts["calls"]
    }
    assert not failures
    calls = {
        case: sum(counts["calls"] for counts in each["variants"].values()) for case, each in seen.items()
    }
    assert all(calls.values()), calls
