"""Verdicts with the real TorchTPU installed and no TPU: broken libraries, and no plugin."""

import os

import pytest
from accel_tests.children import run_python
from tpu_card import HERE, variables

from accel_tpu.library import LIBRARY

CHOSEN = (
    "import accel_core, json; acc = accel_core.get_accelerator();"
    "v, = [v for v in accel_core.selection().verdicts if v.name == 'tpu'];"
    "print(json.dumps([acc.name, v.status.value, v.reason, v.hint]))"
)
#: TorchTPU started by the user's own program, which knows nothing of accel: what google-pytorch documents.
STARTED = "import torch, torch_tpu; from torch_tpu import _loader; _loader._init_device('tpu');"
GENERIC = f"""
{STARTED}
import json
from accel_core._support import packages
everything = packages.entry_points
packages.entry_points = lambda group: tuple(e for e in everything(group) if e.name != "tpu")
import accel_core
acc = accel_core.get_accelerator()
model = torch.nn.Linear(4, 1).to(acc.device())
x = torch.ones(2, 4, device=acc.device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
losses = []
for _ in range(3):
    loss = (model(x) - 1).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item())
acc.synchronize()
acc.empty_host_cache()
[getattr(acc, name)() for name in ("device_count", "current_device", "get_rng_state")]
print(json.dumps([acc.name, acc.device_name(), acc.device_count(), acc.get_compile_backend(), losses,
                  sorted(acc.refused)]))
"""


def answer(code, **more):
    environ = {**os.environ, "PYTHONWARNINGS": "ignore", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **more}
    return run_python(["-c", code], environ).answer


def test_installed_without_a_tpu():
    """The processor is chosen; nothing of TorchTPU is imported, and libtpu is not waited for."""
    name, status, reason, _ = answer(CHOSEN)
    assert (name, status) == ("cpu", "no_device")
    assert reason.startswith("this machine has no Google TPU (none of PCI 1ae0:005e")


@pytest.mark.parametrize(
    ("library", "words"),
    [("/nowhere/libpjrt.so", "is no file"), (None, "is no PJRT library: it has no GetPjrtApi")],
)
def test_a_library_that_would_end_the_process(library, words):
    """TorchTPU aborts where it cannot load it; here it is a verdict, and the program goes on."""
    library = library or str(HERE / "conftest.py")
    name, status, reason, hint = answer(CHOSEN, **{LIBRARY: library})
    assert (name, status) == ("cpu", "no_device")
    assert reason == f"{LIBRARY}={library!r} {words}"
    assert "unset TPU_LIBRARY_PATH" in hint


def test_generic_trains_without_the_plugin():
    """torch.accelerator serves what TorchTPU keeps for torch, and the compiler is TorchTPU's."""
    name, device, count, compiler, losses, refused = answer(GENERIC, **variables())
    assert (name, device, count, compiler) == ("generic", "tpu", 4, "tpu")
    assert losses[0] > losses[1] > losses[2]
    assert {"device_count", "get_rng_state"} <= set(refused)


def test_legacy_device_apis_are_not_needed():
    found = answer(GENERIC, **variables(), TORCH_TPU_ALLOW_LEGACY_DEVICE_APIS="1")
    assert found[:4] == ["generic", "tpu", 4, "tpu"]


def test_try_says_what_it_runs_on():
    done = run_python(["-m", "accel_core", "try", "tpu", "--", "accel", "list"], os.environ).succeeded()
    assert done.stderr.startswith("TorchTPU on XLA's CPU library: /")
    words = " ".join(done.stdout.split())
    assert "TorchTPU on libpjrt_cpu.so (TPU_LIBRARY_PATH) in place of libtpu" in words


#: XLA's library for the CPU cannot run what TorchTPU compiles; `aot_eager` runs TorchTPU's operators.
COMPILED = """
import json, torch, accel_core
from accel_train import default_compiler
acc = accel_core.get_accelerator()

def trained(device, backend):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to(device)
    loss = torch.compile(model, backend=backend)(torch.ones(3, 4, device=device)).square().mean()
    loss.backward()
    return [loss.item(), *model.weight.grad.flatten().tolist()]

def said(backend):
    try:
        return trained("tpu", backend)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

with default_compiler() as name:
    default = torch.compiler.get_default_backend()
interface = torch._dynamo.device_interface.get_interface_for_device("tpu").__module__
own, door = said("tpu"), said("accel")
acc.set_compile_backend("aot_eager")
losses = [trained("tpu", "accel"), trained("cpu", "aot_eager")]
acc.set_compile_backend("inductor")
print(json.dumps([name, default, interface, own, door, losses, said("accel")]))
"""


def test_the_door_of_torch_compile_is_torchtpus_compiler():
    name, default, interface, own, door, (ours, cpu), inductor = answer(COMPILED, **variables())
    assert name == default == "tpu"
    assert interface.startswith("torch_tpu.")
    assert own == door == "NotImplementedError: GetOutputMemoryKinds is not supported."
    assert ours == pytest.approx(cpu, rel=1e-5)
    assert "backend='inductor') on TPU is experimental" in inductor
