"""An error of IPEX's that is none: the process ends."""

from accel_core import hint_for
from accel_xpu import IPEX


def test_ipex_2_1_ends_the_process_with_an_exception():
    assert "accel setup xpu" in hint_for(SystemExit(127), IPEX.hints)
