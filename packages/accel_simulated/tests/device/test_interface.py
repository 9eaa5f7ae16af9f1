"""accel_core's `TorchAccelerator` on a simulated device that no plugin knows."""

import pytest
from accel_tests.tools import TREE

pytest.importorskip("torch")
if not (TREE / "tools").is_dir():
    pytest.skip("an sdist has no tools", allow_module_level=True)

pytestmark = pytest.mark.slow


def test_what_is_known_and_torchs_names(simulated):
    """Exact answers, also beside torch.accelerator's; what every device promises is in `test_cards.py`."""
    answers = simulated("acme", "simulated_checks.known:of_torch_accelerator", "acme", timeout=300).answer
    assert len(answers) > 30
    assert {member: problem for member, problem in answers.items() if problem} == {}
