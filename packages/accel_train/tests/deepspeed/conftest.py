"""DeepSpeed in processes of its own: on our CPU, and on a simulated device that it has never heard of."""

from __future__ import annotations

import functools
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.children import clean_environment, run_python

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "training")]

from accel_tests.on_disk import install_real_plugin  # noqa: E402 - found by the line above
from accel_tests.on_simulated import environment  # noqa: E402 - found by the line above
from ds_training import table as training  # noqa: E402
from patched import copied  # noqa: E402

from accel_simulated import DEVICES, CannotBuildError, build  # noqa: E402

#: A plugin as a stranger publishes it: nobody's device type, a collective backend that DeepSpeed knows not.
ACME = """
from accel_core import Backend, Environment, InTorch, Visibility, hookimpl

@hookimpl
def accel_backends():
    return [Backend(name="acme", priority=950, device_type="acme", vendor_import="torch_acme",
                    in_torch=InTorch(private_use1=True), communication_backend="accl",
                    environment=Environment(forward=("ACCEL_SIMULATE",)),
                    visibility=Visibility(("ACME_VISIBLE_DEVICES",), grammar="cuda"))]
"""


#: A device with less than a GPU, whose plugin has neither a class nor a communication backend.
PLAIN = """
from accel_core import Backend, Environment, InTorch, hookimpl

@hookimpl
def accel_backends():
    return [Backend(name="plain", priority=950, device_type="plain", vendor_import="torch_plain",
                    in_torch=InTorch(private_use1=True),
                    environment=Environment(forward=("ACCEL_SIMULATE",)))]
"""


RANK = """
import json, os, sys, time
import torch, deepspeed
import accel_core
theirs = deepspeed.get_accelerator()
# Not deepspeed.init_distributed(): on CPU it compiles an operator first.
torch.distributed.init_process_group(theirs.communication_backend_name())
total = torch.ones(1, device=theirs.current_device_name())
torch.distributed.all_reduce(total)
answer = json.dumps(dict(
    rank=int(os.environ["RANK"]), node=os.environ.get("CROSS_RANK"), name=theirs.name,
    same=theirs is accel_core.get_accelerator(), total=total.item(), arguments=sys.argv[1:],
    backend=torch.distributed.get_backend(), visible=os.environ.get("ACME_VISIBLE_DEVICES"),
    others="CUDA_VISIBLE_DEVICES" in os.environ, activated="accel_train" in sys.modules,
    timeout=os.environ.get("ACCEL_PROBE_TIMEOUT"),
))
sys.stdout.write(f"ANSWER {answer}\\n")  # one write, for the other rank writes too
torch.distributed.destroy_process_group()
# gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
time.sleep(0.2)
"""


def pytest_collection_modifyitems(items):
    """Everything here needs DeepSpeed; the reason is printed with the skips."""
    if find_spec("deepspeed") and find_spec("torch"):
        return
    skip = pytest.mark.skip(reason="deepspeed is not installed; `./dev deepspeed` has an environment with it")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter):
    """What the folders below report: the process of xdist that prints does not look into them."""
    training.pytest_terminal_summary(terminalreporter)
    found = [
        value
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for name, value in report.user_properties
        if name == "deepspeed class"
    ]
    if found:
        terminalreporter.section("DeepSpeed's accelerator classes and ours")
        for row in (("vendor", "members", "cases", "equal", "different", "ours, open"), *sorted(found)):
            terminalreporter.line("".join(f"{cell:>12}" for cell in row))


@pytest.fixture(scope="session")
def acme_plugin(tmp_path_factory):
    """A folder for `sys.path` with the installed distribution `accel-acme`."""
    folder = tmp_path_factory.mktemp("acme")
    groups = {layouts.GROUP: {"acme": "accel_acme"}}
    layouts.dist_info(folder, "accel-acme", "1.0", groups, {"accel_acme": ACME})
    return folder


@pytest.fixture(scope="session")
def on_cpu():
    """Variables of a process in which the CPU is pinned."""
    return _as_users_have_it(clean_environment(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1"))


@pytest.fixture(scope="session")
def simulated(tmp_path_factory):
    """`simulated(device, *path, plugin=False, **more)`: a process with the device, and the real plugin."""

    def variables(device, *path, plugin=False, **more):
        try:
            build(DEVICES[device].kind)
        except CannotBuildError as error:
            pytest.skip(str(error))
        folder = tmp_path_factory.mktemp(device)
        if plugin:
            install_real_plugin(folder, device)
        chosen = {"DS_ACCELERATOR": device, "OMP_NUM_THREADS": "1", **more}
        return _as_users_have_it(environment(device, chosen, path=[folder, *path]))

    return variables


@pytest.fixture(scope="session")
def on_acme(acme_plugin, simulated):
    """Variables of a process that has the simulated device and its plugin, pinned."""
    return simulated("acme", acme_plugin)


@pytest.fixture(scope="session")
def on_plain(tmp_path_factory, simulated):
    """The same for the simulated device without streams, events, page-locked memory and collectives."""
    folder = tmp_path_factory.mktemp("plain-plugin")
    groups = {layouts.GROUP: {"plain": "accel_plain"}}
    layouts.dist_info(folder, "accel-plain", "1.0", groups, {"accel_plain": PLAIN})
    return simulated("plain", folder)


@pytest.fixture(scope="session")
def deepspeed_copy(tmp_path_factory):
    """`deepspeed_copy(patch)`: a folder for `PYTHONPATH` with DeepSpeed, patched by a file of contrib/."""
    return functools.cache(lambda patch: copied(patch, tmp_path_factory.mktemp("patched")))


def _as_users_have_it(variables):
    """Torch's autoload on, whatever the session that runs the tests was given."""
    return {name: value for name, value in variables.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}


@pytest.fixture
def rank_program(tmp_path):
    """A script that starts a process group, adds up, and answers what it has and was given."""
    program = tmp_path / "rank.py"
    program.write_text(RANK)
    return program


@pytest.fixture(scope="session")
def imports():
    """What takes most of the time of `import deepspeed`, which itself chooses an accelerator."""
    return "import pytest, torch, torch._inductor.select_algorithm, pydantic, einops, hjson, msgpack"


@pytest.fixture(scope="session")
def child():
    """`child(arguments, environ)`: run Python with these arguments, and end what is left of it."""
    return run_python
