"""DeepSpeed in processes of its own: on our CPU, and on a simulated device that it has never heard of."""

import functools
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests import deepspeeds_compiler
from accel_tests.children import clean_environment, run_python

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "training")]

from accel_tests.on_disk import install_real_plugin, install_strangers  # noqa: E402 - found by the line above
from accel_tests.on_simulated import environment  # noqa: E402 - found by the line above
from ds_training.runs import locked  # noqa: E402
from patched import copied  # noqa: E402

from accel_core import Environment, Visibility  # noqa: E402

#: Of plugins as strangers publish them. Acme has nobody's device type, and collectives that DeepSpeed
#: knows not. Plain has less than a GPU, and its plugin neither a class nor a communication backend.
FORWARDED = Environment(forward=("ACCEL_SIMULATE",))
#: Builds, and so keeps, an operator that DeepSpeed compiles for its CPU accelerator at first use: a minute.
BUILD = """
import sys
from deepspeed.accelerator import get_accelerator
get_accelerator().create_op_builder(f"{sys.argv[1]}Builder").load()
"""
#: The operators that the trainings need: by day, and those that take two minutes to compile, by night.
TRAINED_BY_DAY = ("ShareMemComm",)
TRAINED = (*TRAINED_BY_DAY, "CPUAdam", "FusedAdam")

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


@pytest.fixture(scope="session", autouse=True)
def _needs_deepspeed():
    if not (find_spec("deepspeed") and find_spec("torch")):
        pytest.skip(
            "deepspeed is not installed; `./dev deepspeed` has an environment with it"
        )


@pytest.fixture(scope="session")
def on_cpu():
    """Variables of a process in which the CPU is pinned."""
    return _as_users_have_it(
        clean_environment(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    )


@pytest.fixture(scope="session")
def simulated(tmp_path_factory):
    """`simulated(device, *path, plugin=False, **more)`: a process with the device, and the real plugin."""

    def variables(device, *path, plugin=False, **more):
        folder = tmp_path_factory.mktemp(device)
        if plugin:
            install_real_plugin(folder, device)
        chosen = {"DS_ACCELERATOR": device, "OMP_NUM_THREADS": "1", **more}
        return _as_users_have_it(environment(device, chosen, path=[folder, *path]))

    return variables


@pytest.fixture(scope="session")
def on_acme(simulated, tmp_path_factory):
    """Variables of a process that has the simulated device and its plugin, pinned."""
    mask = Visibility(("ACME_VISIBLE_DEVICES",), grammar="cuda")
    fields = {
        "environment": FORWARDED,
        "communication_backend": "accl",
        "visibility": mask,
    }
    return simulated(
        "acme", install_strangers(tmp_path_factory.mktemp("plugin"), "acme", **fields)
    )


@pytest.fixture(scope="session")
def on_plain(simulated, tmp_path_factory):
    """The same for the simulated device without streams, events, pinned memory and collectives."""
    return simulated(
        "plain",
        install_strangers(tmp_path_factory.mktemp("p"), "plain", environment=FORWARDED),
    )


@pytest.fixture(scope="session")
def extensions(request, on_cpu):
    """The folder, kept between sessions, of the operators that DeepSpeed compiles for its CPU accelerator."""
    is_night = any(item.get_closest_marker("nightly") for item in request.session.items)
    return built_operators(on_cpu, TRAINED if is_night else TRAINED_BY_DAY)


@pytest.fixture(scope="session")
def all_extensions(on_cpu):
    """The same folder, with the operators that no training needs."""
    return built_operators(on_cpu, (*TRAINED, "CPUAdagrad", "CPULion"))


def built_operators(on_cpu, names):
    """Build those of DeepSpeed's operators that are missing, two at a time, and return their folder."""
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "accel-core"
    )
    versions = (
        f"deepspeed-{metadata.version('deepspeed')}-torch-{metadata.version('torch')}"
    )
    ours = cache / "deepspeed-operators" / f"{versions}-{sys.implementation.cache_tag}"
    # A session of noxfile.py has one beside its DeepSpeed, which the other tests use too.
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or ours)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(Path(f"{folder}.lock")):
        for lock in folder.glob(
            "*/lock"
        ):  # of a build that was killed: torch would wait for it for ever
            if time.time() - lock.stat().st_mtime > 900:
                lock.unlink()
        environ = {
            **on_cpu,
            **deepspeeds_compiler.VARIABLES,
            "TORCH_EXTENSIONS_DIR": str(folder),
        }

        def build(name):
            run_python(["-c", BUILD, name], environ, timeout=1200).succeeded()
            (folder / f"built-{name}").touch()

        missing = [name for name in names if not (folder / f"built-{name}").exists()]
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(build, missing))
    return folder


@pytest.fixture(scope="session")
def deepspeed_copy(tmp_path_factory):
    """`deepspeed_copy(patch)`: a folder for `PYTHONPATH`: DeepSpeed with a patch of lab/contrib/."""
    return functools.cache(
        lambda patch: copied(patch, tmp_path_factory.mktemp("patched"))
    )


def _as_users_have_it(variables):
    """Torch's autoload on, whatever the session that runs the tests was given."""
    return {
        name: value
        for name, value in variables.items()
        if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"
    }


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
