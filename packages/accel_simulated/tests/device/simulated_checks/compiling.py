"""`torch.compile` on a simulated device, held against the same work uncompiled."""

import importlib

import torch
from torch import nn

import accel_core
from accel_simulated import VENDORS, device, faults


def everything(vendor):
    """How compiled code differs from eager, and whether the device sees its kernels."""
    importlib.import_module(VENDORS[vendor].package)
    eager = _step(vendor, None)
    aot, inductor = _step(vendor, "aot_eager"), _step(vendor, "inductor")
    return {
        "chosen": accel_core.get_accelerator().get_compile_backend(),
        "aot_eager is eager": all(map(torch.equal, eager, aot)),
        "inductor differs by": max(
            float((one - other).abs().max())
            for one, other in zip(eager, inductor, strict=True)
        ),
        "places": sorted({str(each.device) for each in (*aot, *inductor)}),
        **_kernels(vendor),
        "waits and streams": _waits_and_streams(vendor),
    }


class _Network(nn.Module):
    """A little of what inductor treats in ways of its own: an index, a reduction, random numbers."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 10)

    def forward(self, tokens):
        hidden = nn.functional.gelu(self.norm(self.embedding(tokens)))
        return nn.functional.cross_entropy(
            self.out(hidden).flatten(0, 1), tokens.flatten()
        )


def _step(vendor, backend):
    """A loss and its gradients, on the second device, which is not the current one."""
    torch.manual_seed(0)
    network = _Network()
    tokens = torch.randint(10, (3, 5)).to(f"{vendor}:1")
    network.to(f"{vendor}:1")
    run = network if backend is None else torch.compile(network, backend=backend)
    loss = run(tokens)
    loss.backward()
    return [
        loss.detach(),
        *(each.grad for each in network.parameters() if each.grad is not None),
    ]


def _kernels(vendor):
    """A compiled kernel waits for its stream, can fail, and is refused where a graph is captured."""

    @torch.compile
    def scaled(tensor):
        return nn.functional.dropout(tensor, 0.5) * 2 + 1

    host = torch.ones(1000).pin_memory()
    on_device = torch.zeros(1000, device=vendor)
    scaled(on_device)
    device.sleep(50)
    on_device.copy_(host, non_blocking=True)
    ordered = set(scaled(on_device).tolist())

    def said(action):
        try:
            action()
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return ""

    def fail():
        with faults.injected("kernel@1"):
            scaled(on_device)
            torch.accelerator.synchronize()

    def capture():
        with torch.Stream(device=vendor), torch.accelerator.Graph():
            scaled(on_device)

    return {"values": sorted(ordered), "failed": said(fail), "captured": said(capture)}


def _waits_and_streams(vendor):
    """Values of functions with a wait, an event and a stream of their own, forward and backward."""

    def waits(x):
        y = x * 2
        torch.accelerator.synchronize()
        return y + 1

    def event(x):
        stream, done = torch.accelerator.current_stream(), torch.Event(device=vendor)
        y = x * 2
        done.record(stream)
        stream.wait_event(done)
        return y + 1

    def stream(x):
        side = torch.Stream(device=vendor)
        with side:
            y = x * 2
        torch.accelerator.current_stream().wait_stream(side)
        return y + 1

    values = []
    for function in (waits, event, stream):
        x = torch.ones(1, device=vendor, requires_grad=True)
        out = torch.compile(function, backend="inductor", fullgraph=True)(x)
        out.backward()
        values.append([out.item(), x.grad.item() if x.grad is not None else 0.0])
    return values
