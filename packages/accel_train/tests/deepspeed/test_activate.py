"""`activate()` before and after `import deepspeed`, and in the processes that an activated one starts."""

import contextlib
import importlib
import inspect
import io
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.children import run_python
from accel_tests.forks import forked
from accel_tests.on_disk import install_strangers
from looks import activated, shared
from patched import with_path

from accel_core import AccelError, BackendNotFoundError, Environment, LaunchError
from accel_train.deepspeed.op_builders import accel_op_builders

# ---------------------------------------------------------------------------- activate
# `activate()` before and after `import deepspeed`: whose accelerator DeepSpeed uses then.


#: On a device by day, on the CPU by night, where DeepSpeed has an accelerator of its own.
BY_NIGHT = pytest.mark.nightly(reason="the same on the CPU; by day on a device")
ON = pytest.mark.parametrize("device", [pytest.param("cpu", marks=BY_NIGHT), "acme"])


@ON
@forked()
def test_before_the_import(device):
    found, _ = activated()
    assert "deepspeed" not in sys.modules, "activating imports nothing of DeepSpeed"
    assert shared() == device
    assert activated()[0] == found, "a second time is the same"
    compiling = inspect.signature(
        sys.modules["deepspeed"].DeepSpeedEngine.compile
    ).parameters["backend"]
    assert compiling.default == {"cpu": "inductor", "acme": "accel"}[device]


@forked("cpu")
def test_after_the_import_deepspeeds_own_is_replaced_everywhere():
    import deepspeed
    from deepspeed.accelerator import set_accelerator
    from deepspeed.ops import op_builder
    from deepspeed.runtime import utils

    import accel_core

    old, before = deepspeed.get_accelerator(), op_builder.FusedLambBuilder
    # docs/howto/deepspeed.md has these words.
    with pytest.raises(AssertionError, match="is not subclass of DeepSpeedAccelerator"):
        set_accelerator(accel_core.get_accelerator())
    assert deepspeed.get_accelerator() is old
    activated()
    assert shared() == "cpu"
    ours = accel_core.get_accelerator()
    set_accelerator(ours)
    assert shared() == "cpu"
    assert (
        op_builder.FusedLambBuilder
        is ours.get_op_builder("FusedLambBuilder")
        is not before
    )
    assert utils.torch_memory_reserved == ours.memory_reserved
    modules = [
        module for name, module in sys.modules.items() if name.startswith("deepspeed.")
    ]
    values = [
        (module.__name__, value)
        for module in modules
        for value in vars(module).values()
    ]
    assert [
        name for name, v in values if v is old or getattr(v, "__self__", None) is old
    ] == []
    assert deepspeed.ops.__compatible_ops__["deepspeed_not_implemented"] is False


@forked("acme", DS_ACCELERATOR="cpu")
def test_another_choice_of_deepspeeds_is_refused_and_explained():
    import deepspeed
    from deepspeed.ops.op_builder import all_ops

    from accel_train.deepspeed import activate

    os.environ["DS_ACCELERATOR"] = "acme"
    words = (
        r"has chosen cpu \(deepspeed.accelerator.cpu_accelerator.CPU_Accelerator\).*accel-core has chosen "
        r"<TorchAccelerator 'acme' \(accel-acme 1.0\), simulated.*before `import deepspeed`.*force=True"
    )
    with pytest.raises(RuntimeError, match=words) as refused:
        activate()
    assert isinstance(refused.value, AccelError)
    assert deepspeed.get_accelerator().device_name() == "cpu", (
        "a refusal changes nothing"
    )
    assert "ACCEL_INTEGRATIONS" not in os.environ
    # LAMB has no builder for the CPU among DeepSpeed's, and a portable one of ours for acme.
    assert "fused_lamb" not in all_ops.ALL_OPS
    activate(force=True)
    assert shared() == "acme"
    assert "fused_lamb" in all_ops.ALL_OPS
    assert deepspeed.ops.__compatible_ops__["fused_lamb"]


@forked("cpu", DS_ACCELERATOR="nope")
def test_a_pin_that_cannot_be_honoured_changes_nothing():
    with pytest.raises(BackendNotFoundError, match="nope"):
        activated()
    assert "ACCEL_INTEGRATIONS" not in os.environ


def test_a_pin_that_cannot_be_honoured_stops_the_import_in_a_child_process(
    child, on_cpu
):
    """There nobody calls `activate()`: DeepSpeed must not fall back to a choice of its own."""
    variables = {**on_cpu, "DS_ACCELERATOR": "nope", "ACCEL_INTEGRATIONS": "deepspeed"}
    ended = child(["-c", "import deepspeed"], variables)
    assert ended.returncode != 0
    assert "BackendNotFoundError" in ended.stderr.splitlines()[-1]


@forked("acme")
def test_the_limits_of_an_unknown_device_are_one_warning():
    import torch

    found, said = activated()
    limits, version, _ = found.limits, found.version, activated()
    assert (
        sum("GPUDirect" in limit or "enable_cuda_graph" in limit for limit in limits)
        == 2
    )
    assert not any("default_generators" in limit for limit in limits)
    assert [said.count(limit) for limit in limits] == [1] * len(limits)
    assert said.count(f"DeepSpeed {version} runs on acme.") == 1
    # It restores the random state for activation checkpointing through what the simulated device has.
    del torch.acme.default_generators
    assert any("default_generators" in limit for limit in activated()[0].limits)


@pytest.mark.parametrize("device", ["acme", "cpu"])
@forked(RANK="1")
def test_other_ranks_and_known_devices_give_no_warning(device):
    if device == "cpu":
        del os.environ["RANK"]
    found, said = activated()
    assert found.limits
    assert "DeepSpeed has these features only on other devices" not in said


@forked("cpu")
def test_members_that_a_newer_deepspeed_asks_for_are_named():
    """Intel's plugin died of 13 new abstract methods; ours starts, and says what may be missing."""
    from deepspeed.accelerator import DeepSpeedAccelerator

    DeepSpeedAccelerator.__abstractmethods__ |= {"from_the_future"}
    assert "from_the_future" in activated()[0].limits[-1]
    assert shared() == "cpu"


@forked("acme")
def test_the_package_that_its_build_imports_is_ours_too(tmp_path):
    """DeepSpeed's setup.py imports the same files as a top-level package `accelerator`."""
    (tmp_path / "accelerator").symlink_to(
        Path(find_spec("deepspeed").origin).parent / "accelerator"
    )
    found, _ = activated()
    assert importlib.import_module("accelerator").get_accelerator() is found.accelerator


@forked("cpu")
def test_a_stranger_of_that_name_is_left_alone(tmp_path):
    (tmp_path / "accelerator").mkdir()
    (tmp_path / "accelerator" / "real_accelerator.py").write_text("speed = 3\n")
    activated()
    real = importlib.import_module("accelerator.real_accelerator")
    assert [name for name in vars(real) if not name.startswith("_")] == ["speed"]


@ON
@forked()
def test_a_torch_npu_that_is_not_chosen_is_not_imported(device, tmp_path):
    """DeepSpeed imports its builders for npu on every machine, and they import torch_npu."""
    (tmp_path / "torch_npu.py").write_text(
        "raise RuntimeError('two accelerators at the same time')"
    )
    if os.fork() == 0:
        os.environ["DS_ACCELERATOR"] = "cpu"
        with pytest.raises(
            RuntimeError, match="two accelerators"
        ):  # the danger is real
            importlib.import_module("deepspeed")
        os._exit(0)
    assert os.wait()[1] == 0
    activated()
    assert shared() == device
    assert "torch_npu" not in sys.modules


@forked("cpu")
def test_reloads_keep_ours_and_the_source_is_still_found():
    """A copy of ours that was loaded anew takes over: two hooks must not ask each other."""
    from accel_train.deepspeed import _install

    first = activated()[0].accelerator
    importlib.reload(_install)
    activated()
    for name in [
        name
        for name in sys.modules
        if name.partition(".")[0] in ("accel_core", "accel_train")
    ]:
        del sys.modules[name]
    assert activated()[0].accelerator is not first
    assert shared() == "cpu"
    real = importlib.import_module("deepspeed.accelerator.real_accelerator")
    assert "def set_accelerator" in inspect.getsource(real)
    importlib.reload(real)
    assert shared() == "cpu"
    assert [type(finder).__name__ for finder in sys.meta_path].count("ImportHook") == 1


@forked("cpu", ACCEL_COMMUNICATION_BACKEND="smoke")
def test_a_communication_backend_that_torch_has_not_is_said_at_activation():
    with pytest.raises(
        LaunchError,
        match=r"torch\.distributed has no communication backend 'smoke' here",
    ):
        activated()


# ---------------------------------------------------------------------------- activate children
# Processes that an activated one starts: spawned workers, forkservers, subprocesses. No code tells them.


MODULE = ["-m", "accel_train.deepspeed"]
ACCEL = ["-m", "accel_core", "deepspeed", "--num_gpus", "2", "nowhere.py"]
WORKER = """
import json, sys
from looks import shared

def look(_=None):
    return shared()

if __name__ == "__main__":
    print("ANSWER", json.dumps([look(), sys.argv, __file__]), flush=True)
"""
MAIN = """
import multiprocessing
from accel_train.deepspeed import activate
from worker import look

if __name__ == "__main__":
    activate()
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        print("ANSWER", '"%s"' % pool.map(look, [None])[0])
"""
LOOK = """import worker; print("ANSWER", '"%s"' % worker.look())"""
THROUGH_US = f"import accel_core\naccel_core.get_accelerator()\n{LOOK}"
by_night = pytest.mark.nightly(
    reason="the same hook in the same entry point, by another way to start"
)


@pytest.fixture
def variables(request, device, folder):
    """Those of the device, with a program that looks."""
    found = request.getfixturevalue(f"on_{device}")
    return with_path(found, folder, Path(__file__).parent)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    return tmp_path


WORKERS = [
    ("acme", ["main.py"], MAIN.format(method="spawn"), {}),
    # Torch's autoload is off, and with it the entry point that would have told of the activation.
    ("acme", ["main.py"], THROUGH_US, {"ACCEL_INTEGRATIONS": "deepspeed"}),
    # A pin alone, which DeepSpeed does not list: a library may import it in any program.
    ("acme", ["main.py"], f"import deepspeed\n{LOOK}", {}),
    pytest.param("cpu", ["main.py"], MAIN.format(method="spawn"), {}, marks=by_night),
    pytest.param(
        "acme", ["main.py"], MAIN.format(method="forkserver"), {}, marks=by_night
    ),
]


@pytest.mark.parametrize(("device", "start", "main", "more"), WORKERS)
def test_workers_use_ours(child, variables, folder, device, start, main, more):
    (folder / "main.py").write_text(main)
    answers = child(start, {**variables, **more}, cwd=folder).answers
    assert [answer if isinstance(answer, str) else answer[0] for answer in answers] == [
        device
    ]


@forked("cpu", ACCEL_INTEGRATIONS="other", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
def test_other_integrations_stay_named_and_autoload_is_missed():
    found, _ = activated()
    assert "Unset TORCH_DEVICE_BACKEND_AUTOLOAD" in found.limits[-1]
    del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
    found, _ = activated()
    assert os.environ["ACCEL_INTEGRATIONS"] == "other,deepspeed"
    assert not any("AUTOLOAD" in limit for limit in found.limits)


# --- python -m accel_train.deepspeed -------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "autoload", "module"), [("acme", "0", False), ("acme", "1", True)]
)
def test_a_script_or_module_runs_as_python_would_run_it(
    child, variables, folder, device, autoload, module
):
    script = str(folder / "worker.py")
    start = ["-m", "worker"] if module else [script]
    (folder / "elsewhere").mkdir()
    environ = {**variables, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    ended = child(
        [*MODULE, *start, "--epochs", "2", "-m"], environ, cwd=folder / "elsewhere"
    )
    assert ended.answers == [[device, [script, "--epochs", "2", "-m"], script]]


@forked("cpu")
def test_a_scripts_status_is_its_own_and_bad_usage_is_told(tmp_path):
    from accel_train.deepspeed.__main__ import main

    (tmp_path / "program.py").write_text("raise SystemExit('7')")
    for arguments, said in (
        (["program.py"], "7"),
        ([], "no script was given"),
        (["-m"], "no module was given"),
        (["--local_rank=0"], "no script was given"),
        (["nowhere.py"], "there is no script 'nowhere.py'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert str(ended.value.code).endswith(said) or said in str(ended.value.code)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(["--help"])
    assert printed.getvalue().startswith("usage:")


# --- DeepSpeed missing, or too old ----------------------------------------------------------------------

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "deepspeed":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
"""


def hide(folder, version):
    """Hide DeepSpeed from processes that have the folder in their path, or give it another version."""
    if version is None:
        (folder / "sitecustomize.py").write_text(HIDE)
    else:
        layouts.dist_info(
            folder, "deepspeed", version, {}, {"deepspeed/__init__": "1 / 0"}
        )


UNFIT = [
    (
        None,
        ACCEL,
        "DeepSpeed is not installed in this environment: pip install deepspeed",
    ),
    (
        "0.15.4",
        [*MODULE, "nowhere.py"],
        "DeepSpeed 0.15.4 is installed, but accel-train needs 0.16 or newer",
    ),
]


@pytest.mark.parametrize(("version", "start", "said"), UNFIT)
def test_a_missing_or_old_deepspeed_is_named_before_any_import(
    child, on_cpu, tmp_path, version, start, said
):
    hide(tmp_path, version)
    ended = child(start, with_path(on_cpu, tmp_path))
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@forked("cpu")
def test_a_version_of_somebodys_own_is_taken_as_it_is(tmp_path):
    from accel_train.deepspeed import _release

    hide(tmp_path, "our-own-build")
    assert _release.require_supported_version() == "our-own-build"


# ---------------------------------------------------------------------------- activate defaults
# What a vendor wants set in every process is set by `activate()`, said once, and left alone where asked.


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


# ---------------------------------------------------------------------------- pins
# Of two packages that no plugin knows DeepSpeed gets the device that is pinned.

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
