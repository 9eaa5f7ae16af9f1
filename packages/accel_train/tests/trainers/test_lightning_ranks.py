"""Lightning in two ranks, from each launcher: the same as with Lightning's own strategy on the CPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("sklearn")

pytestmark = pytest.mark.slow


def _trained(answer):
    return {key: answer[key] for key in ("losses", "parameters", "accuracy")}


@pytest.fixture(scope="module")
def lightnings_ddp(ranks):
    """Two ranks on Lightning's own CPU accelerator and DDP strategy."""
    return ranks("ddp_lightning.py", own=True, environ={"DS_ACCELERATOR": "cpu"}, devices=2)


@pytest.mark.parametrize(
    ("asked", "backend", "devices"),
    [
        ({"environ": {"DS_ACCELERATOR": "cpu"}, "devices": 2}, "gloo", ["cpu", "cpu"]),
        ({"devices": "auto"}, "accl", ["acme:0", "acme:1"]),
        (
            {"devices": 2, "torchrun": True, "environ": {"ACCEL_SIMULATE": "acme:1"}},
            "accl",
            ["acme:0", "acme:0"],
        ),
    ],
    ids=["cpu", "acme", "acme by torchrun that shows each rank one device"],
)
def test_two_ranks_equal_lightnings_own(asked, backend, devices, ranks, lightnings_ddp):
    answers = ranks("ddp_lightning.py", **asked)
    assert [answer["rank"] for answer in answers] == [0, 1]
    assert [answer["devices"] for answer in answers] == [[device] for device in devices]
    assert {answer["backend"] for answer in answers} == {backend}
    assert {answer["world"] for answer in answers} == {2}
    assert list(map(_trained, answers)) == list(map(_trained, lightnings_ddp))


def test_two_ranks_of_fabric_equal_lightnings_own(ranks):
    own = ranks("ddp_lightning.py", fabric=True, own=True, environ={"DS_ACCELERATOR": "cpu"}, devices=2)
    ours = ranks("ddp_lightning.py", fabric=True, devices=2)
    assert [answer.pop("devices") for answer in own] == [["cpu"], ["cpu"]]
    assert [answer.pop("devices") for answer in ours] == [["acme:0"], ["acme:1"]]
    assert ours == own
    assert len({answer["parameters"] for answer in ours}) == 1
    assert {answer["mean"] for answer in ours} == {0.5}
