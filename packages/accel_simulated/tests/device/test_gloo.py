"""Gloo on simulated CUDA devices: as in CUDA builds of torch, it copies tensors through host memory."""

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")


SUM = ["cuda", [3.0, 3.0]]


@pytest.mark.parametrize("vendor", ["cuda", "klxpu"])
def test_gloo_takes_tensors_on_the_device(vendor, simulated):
    for told in simulated(vendor, PROGRAMS / "gloo_on_cuda.py", processes=2).answers:
        assert told == {
            "SUM": SUM,
            "AVG": ["cuda", [1.5, 1.5]],
            "MAX": ["cuda", [2.0, 2.0]],
            "later": SUM,
            "after a late copy": SUM,
            "reduce_scatter": ["cuda", [3.0]],
            "all_gather": ["cuda", [1.0, 1.0, 2.0, 2.0]],
            "on the host": ["cpu", [3.0, 3.0]],
            "averaged gradient": ["cuda", [1.5, 1.5]],
        }
