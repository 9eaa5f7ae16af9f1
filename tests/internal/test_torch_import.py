"""torch is imported without its autoload."""

import builtins
import os
import sys
import threading
import time

import pytest
from accel_tests import processes

import accel_core
from accel_core.errors import BackendUnavailableError
from accel_core.torch_import import import_torch

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


@pytest.mark.parametrize("before", [None, "1", "0", ""])
def test_autoload_is_off_while_torch_is_imported_and_then_as_it_was(
    torch_world, monkeypatch, before
):
    monkeypatch.delenv(AUTOLOAD, raising=False)
    if before is not None:
        monkeypatch.setenv(AUTOLOAD, before)
    assert import_torch().autoload_was == "0"
    assert os.environ.get(AUTOLOAD) == before


def test_a_torch_that_is_there_is_taken_as_it_is(torch_world, simulated_torch):
    assert simulated_torch.autoload_was is None
    assert import_torch() is simulated_torch


def test_a_hook_of_a_vendors_sees_torch_before_torchs_own_imports(
    torch_world, monkeypatch
):
    """Kunlunxin's replaces `builtins.__import__`, and prepares its runtime at the first name of torch's."""
    usual, begun = builtins.__import__, []

    def watched(name, *arguments, **named):
        if name.partition(".")[0] == "torch":
            begun.append("torch" in sys.modules)
        return usual(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", watched)
    import_torch()
    assert begun[0] is False


def test_a_missing_torch_says_what_to_install(world):
    with pytest.raises(BackendUnavailableError) as caught:
        import_torch()
    assert str(caught.value) == "torch is not installed: run `accel setup`"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "import absent_dependency",
            "torch fails to import: ModuleNotFoundError: No module named 'absent_dependency'",
        ),
        (
            "raise OSError('libtorch_cpu.so: cannot open')",
            "torch fails to import: OSError: libtorch_cpu.so",
        ),
        (
            "raise RuntimeError('Failed to load the backend extension: foo')",
            "torch fails to import: RuntimeError: Failed",
        ),
        (  # torch's own words, which name the package: torch is not to blame, nor to be installed again
            f"raise RuntimeError('Failed to load the backend extension: {AUTOLOAD}=0.') from OSError('x')",
            f"Failed to load the backend extension: {AUTOLOAD}=0. x",
        ),
    ],
)
def test_a_broken_torch_keeps_its_cause(world, monkeypatch, source, said):
    monkeypatch.delenv(AUTOLOAD, raising=False)
    world.module("torch", source)
    with pytest.raises(BackendUnavailableError) as caught:
        import_torch()
    assert str(caught.value).startswith(said)
    assert caught.value.__cause__ is not None
    assert AUTOLOAD not in os.environ


def test_a_torch_whose_import_was_interrupted_is_not_imported_again(world):
    """Half of torch's compiled part would end the process."""
    world.module("torch.begun", "")
    world.module("torch.__init__", "import torch.begun\nraise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        accel_core.get_accelerator()
    again = "an `import torch` in this process failed or was interrupted, and torch cannot be imported twice"
    with pytest.raises(BackendUnavailableError, match=again):
        accel_core.get_accelerator()


def test_a_folder_named_torch_is_not_pytorch(world):
    (world.site / "torch").mkdir()
    world.set_path([world.site])
    with pytest.raises(
        BackendUnavailableError,
        match=r"the module torch that Python finds is not PyTorch: .*site-packages",
    ):
        import_torch()


def test_a_torch_that_another_thread_is_importing_is_waited_for(torch_world):
    """Half a torch must not come out, and neither thread may hang on the other's lock."""
    torch_world.module(
        "torch.__init__",
        "import threading, sys\nclass Tensor: ...\n"
        "entered = sys.modules['__main__'].__dict__.setdefault('torch_entered', threading.Event())\n"
        "entered.set()\nimport time; time.sleep(0.3)\nfinished = True\n",
    )
    entered = sys.modules["__main__"].__dict__.setdefault(
        "torch_entered", threading.Event()
    )
    try:
        with processes.in_threads(lambda: __import__("torch")):
            assert entered.wait(10)
            assert import_torch().finished
    finally:
        del sys.modules["__main__"].__dict__["torch_entered"]


def test_a_package_that_torch_loads_may_come_here_while_another_thread_waits(
    torch_world,
):
    torch_world.module(
        "torch.__init__",
        "class Tensor: ...\nimport time; time.sleep(0.2)\n"
        "from accel_core.torch_import import import_torch\nassert import_torch().Tensor is Tensor\n",
    )
    with processes.in_threads(lambda: __import__("torch")):
        time.sleep(0.05)
        with processes.in_threads(import_torch):
            pass
