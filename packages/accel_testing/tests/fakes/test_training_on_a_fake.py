"""A fake computes: what is trained on it is trained, and what is compiled runs."""

import pytest

import accel_core
from accel_testing import FakeAccelerator, fake, installed

torch = pytest.importorskip("torch")


@pytest.fixture
def acc():
    """A fake of two devices, the second of which is current."""
    with installed(fake("acme", devices=2), isolated=True):
        chosen = accel_core.get_accelerator()
        assert isinstance(chosen, FakeAccelerator)
        chosen.set_device(1)
        yield chosen


def test_a_model_trains_on_a_fake(acc):
    x, y = (
        torch.ones(8, 2, device=acc.device()),
        torch.zeros(8, 1, device=acc.device_name(1)),
    )
    model = torch.nn.Linear(2, 1).to(acc.device(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        acc.synchronize()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 100
    assert [call.member for call in acc.calls].count("synchronize") == 20


def test_the_device_says_that_it_is_a_fake(acc):
    assert "acme (a fake: " in acc.device_properties().name


def test_a_compiled_function_is_traced_and_does_not_call_the_fake(acc):
    acc.calls.clear()

    @torch.compile(fullgraph=True, backend="eager")
    def step(given):
        return given.to(acc.device_name()) + acc.device_count()

    assert step(torch.ones(1)).tolist() == [3.0]
    assert acc.calls == []
