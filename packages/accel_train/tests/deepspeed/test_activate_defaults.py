"""What a vendor wants set in every process is set by `activate()`, said once, and left alone where asked."""

import os
import sys

from accel_tests.children import run_python
from accel_tests.forks import forked
from accel_tests.on_disk import install_strangers
from looks import activated

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
IN_CHILD = "import deepspeed, torch; print(torch.are_deterministic_algorithms_enabled())"


@forked("acme", DS_ACCELERATOR="acme@accel-wants", ACME_KEPT="mine")
def test_what_the_vendor_wants_set_is_set_by_activating_and_said_once(tmp_path):
    import torch

    import accel_core

    environment = Environment(set=("ACME_MODE=0", "ACME_KEPT=1"))
    fields = {"communication_backend": "accl", "accelerator": "wants:Wants", "environment": environment}
    install_strangers(tmp_path, "acme", "accel-wants", {"wants": ACCELERATOR}, **fields)

    def look():
        found = [os.environ.get(name) for name in ("ACME_MODE", "ACME_KEPT")]
        return [*found, torch.are_deterministic_algorithms_enabled()]

    accel_op_builders(accel_core.get_accelerator().backend).load("deepspeed.ops.op_builder:CPUAdamBuilder")
    assert ("deepspeed" in sys.modules, *look()) == (True, None, "mine", False)
    said = "".join(activated()[1] for _ in range(2))
    assert look() == ["0", "mine", True]
    assert said.count("ACME_MODE=0") == said.count("- deterministic") == 1
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"}
    assert run_python(["-c", IN_CHILD], environ).succeeded().stdout.split()[-1] == "True"
