"""Each simulated device does what a real device does: `simulated_checks/life.py` and `networks.py`."""

import pytest

from accel_simulated import OWN_DEVICES

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator, which nobody trains on"
)


@pytest.mark.parametrize("vendor", OWN_DEVICES)
def test_life(vendor, life, the_page_tells):
    """And its column of docs/evidence/simulated-features.md is what it does."""
    answer = life(vendor)
    assert len(answer["problems"]) >= 6
    problems = {
        check: problem for check, problem in answer["problems"].items() if problem
    }
    assert not problems, "\n".join(
        f"{check}: {problem}" for check, problem in problems.items()
    )
    the_page_tells(vendor, answer["rows"], answer["more"])


def test_gaudi_has_graphs_in_lazy_mode_only(simulated):
    code = "import habana_frameworks.torch.hpu as m; print(hasattr(m, 'HPUGraph'), hasattr(m, 'graph'))"
    assert simulated("hpu", code).ended[0].stdout.split() == ["True", "True"]
    eager = simulated("hpu", code, environ={"PT_HPU_LAZY_MODE": "0"})
    assert eager.ended[0].stdout.split() == ["False", "False"]
    refused = simulated(
        "hpu", code, environ={"ACCEL_SIMULATE_STOCK_TORCH": "1"}, check=False
    ).ended[0]
    assert "AssertionError" in refused.stderr
