"""A fake computes: what is trained on it is trained."""

import pytest

import accel_core
from accel_testing import FakeAccelerator, fake, installed

torch = pytest.importorskip("torch")


@installed(fake("acme", devices=2), isolated=True)
def test_a_model_trains_on_a_fake_and_compiles_with_it():
    acc = accel_core.get_accelerator()
    assert isinstance(acc, FakeAccelerator)
    acc.set_device(1)
    x, y = torch.ones(8, 2, device=acc.device()), torch.zeros(8, 1, device=acc.device_name(1))
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
    assert "acme (a fake: " in acc.device_properties().name
    acc.calls.clear()

    @torch.compile(fullgraph=True, backend="eager")
    def step(given):
        return given.to(acc.device_name()) + acc.device_count()

    assert step(torch.ones(1)).tolist() == [3.0]
    assert acc.calls == []  # it was traced, and not called
