"""torch.compile on simulated devices, with the compiler of the device."""

import warnings

import pytest

pytest.importorskip("torch")

import torch
from accel_tests.forks import forked
from torch import nn

import accel_core
from accel_core.errors import UnsupportedError
from accel_train import default_compiler
from accel_train.device_interface import register_device_interface

settable = pytest.mark.skipif(
    not hasattr(torch.compiler, "set_default_backend"),
    reason="this torch has no default to set: before 2.13",
)
BY_NIGHT = pytest.mark.nightly(
    reason="inductor compiles C++ for each graph, in each process"
)


@pytest.fixture(scope="session")
def imports():
    return "import pytest, torch, torch._dynamo, torch._inductor.select_algorithm"


def trained(device, backend=None, **options):
    """Losses and weights of three steps, in batches of several sizes."""
    warnings.simplefilter("ignore")  # torch's own, of its imports
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device)
    step = torch.compile(model, **({"backend": backend} if backend else {}), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for rows in (2, 3, 4):
        loss = (
            step(torch.arange(8.0 * rows).view(rows, 8).to(device) / 10).pow(2).mean()
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [losses, *(each.tolist() for each in model.parameters())]


WAYS = [
    ("plain", "aot_eager", "accel_train.device_interface"),
    pytest.param("acme", "inductor", "accel_simulated.inductor", marks=BY_NIGHT),
]


@settable
@pytest.mark.parametrize(("device", "compiler", "interface"), WAYS)
@forked()
def test_each_way_trains_as_the_cpu_does_by_the_same_compiler(
    device, compiler, interface
):
    from torch._dynamo.device_interface import get_interface_for_device

    assert accel_core.get_accelerator().get_compile_backend() == compiler
    cpu = trained("cpu", compiler)
    assert trained(device, "accel", fullgraph=True) == cpu
    assert trained(device, "accel", dynamic=True) == trained(
        "cpu", compiler, dynamic=True
    )
    found = get_interface_for_device(device)
    assert found.__module__ == interface
    assert found.current_device() == 0
    assert torch.compile(lambda x: x + 1, backend="accel")(torch.ones(1)).tolist() == [
        2.0
    ]
    with default_compiler() as name:
        assert name == torch.compiler.get_default_backend() == compiler
        assert trained(device) == cpu
    assert torch.compiler.get_default_backend() == "inductor"


@settable
@forked("plain")
def test_inductor_where_it_has_no_code_is_one_sentence_before_compiling():
    accel_core.get_accelerator().set_compile_backend("inductor")
    sentence = (
        "inductor cannot generate code for device type 'plain', because neither torch nor the "
        "vendor registers a code generator. "
        "Next step: use the compiler aot_eager, which supports every device: "
    )
    with pytest.raises(UnsupportedError, match=f"^{sentence}"), default_compiler():
        pass
    words = f"^backend='accel' raised:\nUnsupportedError: {sentence}"
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=words):
        trained("plain", "accel")
    assert torch.compiler.get_default_backend() == "inductor"


@BY_NIGHT
@settable
@forked("acme")
def test_the_generic_interface_serves_inductor_and_streams():
    """In the place of the device's own."""
    from torch._dynamo import device_interface as dynamo

    acc = accel_core.get_accelerator()
    kept = dynamo.get_interface_for_device("acme")
    register_device_interface(acc)  # never over one that is there
    assert dynamo.get_interface_for_device("acme") is kept
    for name in [
        name for name in dynamo.device_interfaces if name.partition(":")[0] == "acme"
    ]:
        del dynamo.device_interfaces[name]
    assert trained("acme", "accel") == trained("cpu", "inductor")
    interface = dynamo.get_interface_for_device("acme:1")
    with interface.device(1):
        assert interface.current_device() == 1
    assert interface.device_count() == 2
    assert interface.exchange_device(1) == 0
    assert acc.current_device() == 1
    seen = (
        interface.maybe_exchange_device(-1),
        acc.current_device(),
        interface.exchange_device(0),
    )
    assert seen == (1, 1, 1)

    def streams(x):
        side = torch.Stream(device="acme")
        with side:
            y = x * 2
        torch.accelerator.current_stream().wait_stream(side)
        torch.accelerator.synchronize()
        return y + 1

    assert torch.compile(streams, backend="accel")(
        torch.ones(2, device="acme")
    ).tolist() == [3.0, 3.0]
