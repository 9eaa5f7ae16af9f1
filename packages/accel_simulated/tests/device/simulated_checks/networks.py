"""What a simulated device can do for training: graphs, layers, optimizers, checkpoints."""

import torch
from torch import nn

from simulated_checks import Checks
from simulated_checks.life import fails

acc = torch.accelerator
CHECKS = Checks()


@CHECKS.add
def graphs(vendor):
    """What the kit's checks leave: new random numbers in each replay, and what no graph can do."""
    graph = torch.accelerator.Graph()
    with torch.Stream(device=vendor), graph:
        noise = torch.rand(4, device=vendor)
        fails(RuntimeError, noise.sum().item, "capturing")
    drawn = []
    for _ in range(2):
        graph.replay()
        acc.synchronize()
        drawn.append(noise.tolist())
    assert drawn[0] != drawn[1]
    fails(RuntimeError, torch.accelerator.Graph().replay)


@CHECKS.add
def graph_joins_streams(vendor):
    x = torch.zeros(4, device=vendor)
    graph, main, side = (
        torch.accelerator.Graph(),
        torch.Stream(device=vendor),
        torch.Stream(device=vendor),
    )
    with main, graph:
        x.add_(1)
        side.wait_event(main.record_event())
        with side:
            y = x * 3
        main.wait_event(side.record_event())
        z = y + 1
    graph.replay()
    acc.synchronize()
    assert z.tolist() == [4] * 4
    with side:
        x.add_(1)  # the side stream is free again
    side.synchronize()
    assert x.tolist() == [2] * 4


@CHECKS.add
def graph_of_training(vendor):
    def made():
        torch.manual_seed(0)
        layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)
        ).to(vendor)
        return layers, torch.optim.SGD(layers.parameters(), lr=0.1, momentum=0.9)

    data = torch.randn(3, 5, 1, 8, 8)
    eager, optimizer = made()
    for batch in data:
        optimizer.zero_grad(set_to_none=False)
        eager(batch.to(vendor)).pow(2).sum().backward()
        optimizer.step()
    captured, optimizer = made()
    batch = torch.zeros(5, 1, 8, 8, device=vendor)
    for parameter in captured.parameters():
        parameter.grad = torch.zeros_like(parameter)
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    graph = torch.accelerator.Graph()
    with torch.Stream(device=vendor), graph:
        optimizer.zero_grad(set_to_none=False)
        captured(batch).pow(2).sum().backward()
        optimizer.step()
    for values in data:
        batch.copy_(values)
        graph.replay()
        acc.synchronize()
    for (name, ours), theirs in zip(
        captured.state_dict().items(), eager.state_dict().values(), strict=True
    ):
        assert torch.equal(ours.cpu(), theirs.cpu()), name


@CHECKS.add
def moving_a_module_keeps_its_parameters(vendor):
    model = nn.Linear(3, 2)
    held = list(model.parameters())  # as an optimizer made before does
    model.to(vendor)
    assert all(
        ours is theirs for ours, theirs in zip(held, model.parameters(), strict=True)
    )
    assert {each.device.type for each in held} == {vendor}
    held[0].data = torch.empty(0)
    assert (model.weight.device.type, model.weight.shape) == ("cpu", (0,))


@CHECKS.add
def dropout_rounds_as_on_cpu(vendor):
    given = torch.randn(1000, dtype=torch.bfloat16, device=vendor, requires_grad=True)
    arriving = torch.randn(1000, dtype=torch.bfloat16)
    out = nn.functional.dropout(given, 0.1)
    out.backward(arriving.to(vendor))
    mask = (out != 0).cpu().to(torch.bfloat16).div(1 - 0.1)
    assert torch.equal(out.detach().cpu(), given.detach().cpu() * mask)
    assert torch.equal(given.grad.cpu(), arriving * mask)
