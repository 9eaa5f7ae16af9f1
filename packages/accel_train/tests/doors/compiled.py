"""Trainings through torch.compile on a simulated device, and on the CPU: a process for each."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

import accel_core
from accel_train import default_compiler, init_process_group
from accel_train.device_interface import register

warnings.simplefilter("ignore")  # torch's own, of its imports


def trained(device: str, backend: str | None, **options: Any) -> list[Any]:
    """Losses and weights of three steps, in batches of several sizes."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device)
    step = (
        torch.compile(model, **options)
        if backend is None
        else torch.compile(model, backend=backend, **options)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for rows in (2, 3, 4):
        loss = step(torch.arange(8.0 * rows).view(rows, 8).to(device) / 10).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [losses, *(each.tolist() for each in model.parameters())]


def everything(kind: str) -> dict[str, Any]:
    """Each way to the device's compiler, and how it equals the CPU by the same one."""
    acc = accel_core.get_accelerator()
    compiler = acc.get_compile_backend()
    cpu = trained("cpu", compiler)
    answer: dict[str, Any] = {
        "compiler": compiler,
        "equal": {
            "door": trained(kind, "accel", fullgraph=True) == cpu,
            "dynamic": trained(kind, "accel", dynamic=True) == trained("cpu", compiler, dynamic=True),
        },
        "interface": _interface(kind),
        "cpu graph": torch.compile(lambda x: x + 1, backend="accel")(torch.ones(1)).tolist(),
    }
    with default_compiler() as name:
        answer["default"] = [name, torch.compiler.get_default_backend(), trained(kind, None) == cpu]
    answer["after"] = torch.compiler.get_default_backend()
    return answer


def refused(kind: str) -> list[str]:
    """Messages for inductor on a device that it does not know."""
    acc = accel_core.get_accelerator()
    acc.set_compile_backend("inductor")

    def block() -> None:
        with default_compiler():
            pass

    return [_said(block), _said(lambda: trained(kind, "accel")), torch.compiler.get_default_backend()]


def ours(kind: str) -> dict[str, Any]:
    """The generic interface in the place of the device's own: inductor, streams and events."""
    from torch._dynamo import device_interface as dynamo

    acc = accel_core.get_accelerator()
    kept = dynamo.get_interface_for_device(kind)
    register(acc)  # never over one that is there
    stays = dynamo.get_interface_for_device(kind) is kept
    for name in [name for name in dynamo.device_interfaces if name.partition(":")[0] == kind]:
        del dynamo.device_interfaces[name]
    answer = {"stays": stays, "equal": trained(kind, "accel") == trained("cpu", "inductor")}
    interface = dynamo.get_interface_for_device(f"{kind}:1")
    with interface.device(1):
        inside = interface.current_device()
    answer["devices"] = [interface.device_count(), inside, interface.exchange_device(1), acc.current_device()]
    answer["stay"] = [interface.maybe_exchange_device(-1), acc.current_device(), interface.exchange_device(0)]

    def streams(x: torch.Tensor) -> torch.Tensor:
        side = torch.Stream(device=kind)
        with side:
            y = x * 2
        torch.accelerator.current_stream().wait_stream(side)
        torch.accelerator.synchronize()
        return y + 1

    answer["streams"] = torch.compile(streams, backend="accel")(torch.ones(2, device=kind)).tolist()
    return answer


def rank(kind: str) -> list[Any]:
    """One of two ranks, data-parallel, compiled."""
    with init_process_group() as ranks:
        torch.manual_seed(0)
        device = accel_core.get_accelerator().device(ranks.local_rank) if kind != "cpu" else "cpu"
        model = nn.Linear(4, 2).to(device)
        step = torch.compile(nn.parallel.DistributedDataParallel(model), backend="accel")
        loss = step(torch.full((3, 4), 1.0 + ranks.rank, device=device)).pow(2).mean()
        loss.backward()
        return [loss.item(), *(each.grad.tolist() for each in model.parameters())]


def _interface(kind: str) -> list[Any]:
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device(kind)
    return [interface.__module__, interface.device_count(), interface.current_device()]


def _said(action: Any) -> str:
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
