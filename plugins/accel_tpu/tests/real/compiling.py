"""Compile on the real TorchTPU, with its own compiler, with ours in its name, and with torch's."""

import json

import torch

import accel_core
from accel_train import default_compiler

acc = accel_core.get_accelerator()


def trained(device, backend):
    """Give the loss and the gradients of one step of a compiled model."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to(device)
    compiled = torch.compile(model, backend=backend)
    loss = compiled(torch.ones(3, 4, device=device)).square().mean()
    loss.backward()
    return [loss.item(), *model.weight.grad.flatten().tolist()]


def error_of(backend):
    """Give the error of a step on the TPU, as a text; what is computed where there is none."""
    try:
        return trained("tpu", backend)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


interface = torch._dynamo.device_interface.get_interface_for_device("tpu")
found = {"interface": interface.__module__}
with default_compiler() as found["default_of_accel"]:
    found["default_of_torch"] = torch.compiler.get_default_backend()
found["error_of_tpu"] = error_of("tpu")
found["error_of_accel"] = error_of("accel")
# XLA's library for the CPU cannot run what TorchTPU compiles; `aot_eager` runs TorchTPU's operators.
acc.set_compile_backend("aot_eager")
found["with_aot_eager"] = trained("tpu", "accel")
found["with_aot_eager_on_cpu"] = trained("cpu", "aot_eager")
acc.set_compile_backend("inductor")
found["error_of_inductor"] = error_of("accel")
print(json.dumps(found))
