"""What a vendor wants set in every process is set by `activate()`, said once, and left alone where asked."""

from __future__ import annotations

import pytest
from accel_tests import layouts

WANTS = """
from accel_core import Backend, Environment, InTorch, hookimpl

@hookimpl
def accel_backends():
    return Backend(name="acme", priority=951, device_type="acme", vendor_import="torch_acme",
                   in_torch=InTorch(private_use1=True), communication_backend="accl",
                   accelerator="wants:Wants", environment=Environment(set=("ACME_MODE=0", "ACME_KEPT=1")))
"""
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
CODE = """
import json, os, subprocess, sys, accel_core, torch
def answer(**values):
    print("ANSWER", json.dumps(values), flush=True)
def look():
    answer(mode=os.environ.get("ACME_MODE"), kept=os.environ["ACME_KEPT"],
           deterministic=torch.are_deterministic_algorithms_enabled())
accel_core.get_accelerator()
look()
from accel_train.deepspeed import activate
activate(vendor_defaults=WANTED)
activate(vendor_defaults=WANTED)
look()
code = "import deepspeed, torch; print(torch.are_deterministic_algorithms_enabled())"
in_child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
answer(child=in_child.split()[-1])
"""


@pytest.mark.parametrize(
    "wanted",
    [True, pytest.param(False, marks=pytest.mark.nightly(reason="what is left alone; by day what is set"))],
)
def test_what_the_vendor_wants_set_is_set_by_activating_and_said_once(child, on_acme, tmp_path, wanted):
    groups = {layouts.GROUP: {"acme": "accel_wants"}}
    modules = {"accel_wants": WANTS, "wants": ACCELERATOR}
    layouts.dist_info(tmp_path, "accel-wants", "1.0", groups, modules)
    variables = {
        **on_acme,
        "PYTHONPATH": f"{tmp_path}:{on_acme['PYTHONPATH']}",
        "DS_ACCELERATOR": "acme@accel-wants",
        "ACME_KEPT": "mine",
    }
    ended = child(["-c", CODE.replace("WANTED", str(wanted))], variables)
    untouched = {"mode": None, "kept": "mine", "deterministic": False}
    done = {"mode": "0", "kept": "mine", "deterministic": True} if wanted else untouched
    assert ended.answers == [untouched, done, {"child": str(wanted)}], ended.stderr
    assert ended.stderr.count("ACME_MODE=0") == ended.stderr.count("- deterministic") == int(wanted)
