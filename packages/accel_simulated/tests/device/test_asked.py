"""A process that was asked to simulate: what it says, which device it has, and what its forks may do."""

import json

import pytest
from accel_tests import layouts
from accel_tests.children import clean_environment, run_python
from accel_tests.plugins import declaring

# ---------------------------------------------------------------------------- asked
# A process that was asked to simulate says so wherever an accelerator is shown, and chooses the device.


TOLD = """
import json, accel_core
acc = accel_core.get_accelerator()
made = accel_core.selection()
print(json.dumps([acc.name, str(acc.device(2)), acc.device_name(0), acc.device_properties(0).name, repr(acc),
                  acc.backend.description, made.environ["ACCEL_SIMULATE"], "ACCEL_SIMULATE=" in str(made)]))
"""


@pytest.mark.parametrize(
    ("device", "name", "product"),
    [("acme", "generic", "Simulated ACME"), ("cuda", "cuda", "Simulated CUDA")],
)
def test_the_command_gives_the_device_to_all_that_it_starts(
    device, name, product, built
):
    """Chosen without a pin, though this machine has no sign of such hardware."""
    built(device)
    words = ["-m", "accel_core", "simulate", f"{device}:3", "--", "python", "-c", TOLD]
    ended = run_python(words, clean_environment()).succeeded()
    chosen, last, shown, called, text, described, *told = json.loads(ended.stdout)
    assert (chosen, last, shown) == (name, f"{device}:2", f"{device}:0")
    assert called == product
    assert text.endswith(f", simulated: {device}:3 by accel-simulated 0.1.0>")
    assert described.endswith(f"; simulated, no real device: {device}:3")
    assert told == [f"{device}:3", True]


TAKEN = """
import torch
torch.utils.rename_privateuse1_backend("tpu")
try: import torch_acme
except RuntimeError as error: print(type(error).__name__, error)
"""


def test_another_package_has_torchs_one_place(simulated):
    said = (
        simulated("acme", TAKEN, environ={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
        .ended[0]
        .stdout
    )
    assert said.startswith(
        "BackendConflictError ACCEL_SIMULATE='acme:2': another package has registered its "
    )
    assert "(tpu)" in said


# ---------------------------------------------------------------------------- declared
# A device that only an installed plugin knows is simulated under the names of its declaration.


#: Name and device type differ, the package lies in another, and its distribution is required.
DECLARED = (
    "name='zing', priority=500, device_type='zpu', vendor_import='zing_sdk.torch', "
    "torch_integration=TorchIntegration(private_use1=True), requires=('zing-sdk>=1.2,<2', 'torch>=2.6'), "
    "visibility=Visibility(variables=('ZING_DEVICES',)), "
    "communication_backend='zccl'"
)

SAID = """
import json, os, sys, accel_core
from importlib.metadata import version
acc = accel_core.get_accelerator()
import torch, torch.distributed
print(json.dumps([acc.name, acc.device_type, acc.device_count(), torch.ones(2, device="zpu:1").sum().item(),
                  repr(acc), "zing_sdk.torch" in sys.modules, version("zing-sdk"),
                  "zccl" in torch.distributed.Backend.backend_list, os.environ["ACCEL_SIMULATE"]]))
"""


def test_it_has_the_names_of_the_declaration(tmp_path, built):
    built("acme")
    plugin = layouts.dist_info(
        tmp_path, "accel-zing", "1.0", {"accel.backends": {"zing": "accel_zing"}},
        {"accel_zing": declaring(DECLARED)},
    )  # fmt: skip
    environ = clean_environment(PYTHONPATH=str(plugin), ZING_DEVICES="0,2")
    words = ["-m", "accel_core", "simulate", "zing:3", "--", "python", "-c", SAID]
    ended = run_python(words, environ).succeeded()
    name, kind, count, total, text, imported, version, collective, asked = json.loads(
        ended.stdout
    )
    assert (name, kind, count, total) == ("zing", "zpu", 2, 2.0)
    assert text.endswith(", simulated: zpu:3 by accel-simulated 0.1.0>")
    assert (imported, version, collective, asked) == (True, "1.2", True, "zpu:3")
    # It is listed with the others, and one that ends its process hides neither it nor them.
    layouts.dist_info(
        tmp_path, "accel-dead", "1.0", {"accel.backends": {"dead": "accel_dead"}},
        {"accel_dead": "import os; os._exit(3)"},
    )  # fmt: skip
    listed = run_python(["-m", "accel_core", "simulate", "--list"], environ).stdout
    assert "zing    built" in listed
    assert "as an installed plugin declares it" in listed
    more = DECLARED.replace("zing", "more") + ", accelerator='accel_more.own:Own'"
    # One that imports more of its vendor's package than is simulated is not listed.
    layouts.dist_info(
        tmp_path, "accel-more", "1.0", {"accel.backends": {"more": "accel_more"}},
        {"accel_more.__init__": declaring(more),
         "accel_more.own": "def start():\n    from more_sdk.torch import _loader"},
    )  # fmt: skip
    assert (
        "more "
        not in run_python(["-m", "accel_core", "simulate", "--list"], environ).stdout
    )
    ended = run_python(["-m", "accel_core", "simulate", "--build", "zing"], environ)
    assert (ended.returncode, ended.stdout[:6]) == (0, "zing: ")


# ---------------------------------------------------------------------------- forks
# A process that is forked after its parent has used the device is refused, as by vendors' runtimes.


CODE = """
import json, torch, accel_core
from accel_testing.conformance.forks import run_in_fork

there = accel_core.get_accelerator().device()
ones = lambda: torch.ones(2, device=there)
use = lambda: str(ones().sum().item())
print(json.dumps([run_in_fork(use, 60)[0], ones().sum().item(), run_in_fork(use, 60)[0]]))
"""


@pytest.mark.parametrize(
    ("vendor", "name"), [("acme", "ACME"), ("cuda", "CUDA"), ("npu", "NPU")]
)
def test_a_child_that_uses_the_device_after_its_parent_is_refused(
    simulated, vendor, name
):
    before, own, after = simulated(vendor, CODE).answer
    assert (before, own) == ("2.0", 2.0)  # the parent had not used it yet
    assert f"Cannot re-initialize {name} in forked subprocess" in after
    assert "you must use the 'spawn' start method" in after


# ---------------------------------------------------------------------------- dtypes
# What can be computed in: as far as the device tells, and no further.


#: acme's module has no word on float16, and no plugin has: the product is tried.
WHILE_FULL = """
import json, warnings
import torch, torch_acme
import accel_core
from accel_simulated import device

def ask():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return [acc.is_fp16_supported(), [str(warning.message) for warning in caught]]

acc = accel_core.accelerator("generic")
full = torch.empty(4096, dtype=torch.uint8, device="acme")
before, _ = device.memory, device.set_memory_limit(4096)
first = ask()
device.set_memory_limit(before)
print(json.dumps([first, ask(), 0 if device.set_memory_limit(4096) else ask()]))
"""


def test_a_device_without_memory_left_is_asked_again(simulated):
    first, second, remembered = simulated("acme", WHILE_FULL).answer
    assert first[0] is False
    assert "acme" in first[1][0] or "generic" in first[1][0]
    assert "the trial of" in first[1][0]
    assert "OutOfMemoryError" in first[1][0]
    assert "ACCEL_SIMULATE_MEMORY_MB=" in first[1][0]
    assert second == remembered == [True, []]
