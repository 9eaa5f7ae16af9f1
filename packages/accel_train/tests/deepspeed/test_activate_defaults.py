"""What `activate()` sets for the vendor, and which of two devices DeepSpeed gets."""

import os
import sys

import pytest
from accel_tests import layouts
from accel_tests.children import run_python
from accel_tests.forks import forked
from accel_tests.on_disk import install_strangers
from looks import activated
from patched import with_path

from accel_core import Environment
from accel_train.deepspeed.op_builders import accel_op_builders

ACCELERATOR = """
from accel_core import TorchAccelerator

class Wants(TorchAccelerator):
    def apply_vendor_defaults(self):
        changed = super().apply_vendor_defaults()
        if self._torch.are_deterministic_algorithms_enabled():
            return changed
        self._torch.use_deterministic_algorithms(True)
        return (*changed, "deterministic")
"""
IN_CHILD = (
    "import deepspeed, torch; print(torch.are_deterministic_algorithms_enabled())"
)


@forked("acme", DS_ACCELERATOR="acme@accel-wants", ACME_KEPT="mine")
def test_what_the_vendor_wants_set_is_set_by_activating_and_said_once(tmp_path):
    import torch

    import accel_core

    environment = Environment(defaults=("ACME_MODE=0", "ACME_KEPT=1"))
    fields = {
        "communication_backend": "accl",
        "accelerator": "wants:Wants",
        "environment": environment,
    }
    install_strangers(tmp_path, "acme", "accel-wants", {"wants": ACCELERATOR}, **fields)

    def look():
        found = [os.environ.get(name) for name in ("ACME_MODE", "ACME_KEPT")]
        return [*found, torch.are_deterministic_algorithms_enabled()]

    accel_op_builders(accel_core.get_accelerator().backend).load(
        "deepspeed.ops.op_builder:CPUAdamBuilder"
    )
    assert ("deepspeed" in sys.modules, *look()) == (True, None, "mine", False)
    said = "".join(activated()[1] for _ in range(2))
    assert look() == ["0", "mine", True]
    assert said.count("ACME_MODE=0") == said.count("- deterministic") == 1
    in_child = run_python(["-c", IN_CHILD], with_path(os.environ, tmp_path)).succeeded()
    assert in_child.stdout.split()[-1] == "True"


BRINGS = """
def _autoload():
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
    _setup_privateuseone_for_python_backend("{device}")
"""
GETS = """
from accel_train.deepspeed import activate
activate()
import deepspeed
accelerator = deepspeed.get_accelerator()
print(accelerator.device_name(), accelerator.device().type)
"""


@pytest.mark.parametrize("pin", ["foo", "bar", "generic@torch-bar"])
def test_of_two_unknown_devices_deepspeed_gets_the_pinned_one(tmp_path, pin):
    for device in ("foo", "bar"):
        announced = {"torch.backends": {device: f"torch_{device}:_autoload"}}
        modules = {f"torch_{device}": BRINGS.format(device=device)}
        layouts.dist_info(tmp_path, f"torch-{device}", "1.0", announced, modules)
    environ = with_path({**os.environ, "DS_ACCELERATOR": pin}, tmp_path)
    ended = run_python(["-c", GETS], environ).succeeded()
    device = pin.rpartition("-")[2]
    assert ended.stdout.split()[-2:] == [device, device]
