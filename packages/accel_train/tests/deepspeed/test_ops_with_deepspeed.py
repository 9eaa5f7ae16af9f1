"""DeepSpeed's operators through our accelerator: lists, optimisers, a checkout, Intel's extension."""

import contextlib
import importlib
import io
import json
import os
import shutil
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
from accel_tests import deepspeeds_compiler, layouts
from accel_tests.children import executable
from accel_tests.forks import forked
from looks import activated

import accel_core

# ---------------------------------------------------------------------------- ops with deepspeed
# DeepSpeed finds its operators through our accelerator, and its optimisers run on the portable ones.


PORTABLE = "accel_train.ops.portable"
NOBODY = "accel_core.interface.op_builders.NotImplementedBuilder"
SHAPES = [(7, 3), (1,), (64,), (5, 1, 2)]


def full_name(kind):
    return f"{kind.__module__}.{kind.__name__}"


def listed():
    """DeepSpeed's builders: those that it has made, those of its package, and which it calls compatible."""
    import deepspeed
    import deepspeed.ops.op_builder as package
    from deepspeed.ops.op_builder.all_ops import ALL_OPS

    named = {
        name: full_name(kind)
        for name, kind in vars(package).items()
        if name.endswith("Builder")
    }
    made = {name: full_name(type(builder)) for name, builder in ALL_OPS.items()}
    return made, named, dict(deepspeed.ops.__compatible_ops__)


def nothing_built(folder, compiler):
    """Take this compiler, and find nothing that was compiled before."""
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "compiled")
    os.environ["CXX"] = str(folder / compiler)


@forked("cpu")
def test_on_the_cpu_deepspeed_has_the_operators_that_it_has_alone(tmp_path):
    alone = tmp_path / "alone"
    if os.fork() == 0:
        alone.write_text(json.dumps(listed()))
        os._exit(0)
    assert os.wait()[1] == 0
    activated()
    made, named, compatible = listed()
    made_alone, named_alone, compatible_alone = json.loads(alone.read_text())
    lent = {
        name: f"{PORTABLE}.Fused{name[6:].capitalize()}Builder"
        for name in ("fused_lamb", "fused_lion")
    }
    assert made == {**made_alone, **lent, "deepspeed_not_implemented": NOBODY}
    assert compatible == {**compatible_alone, **dict.fromkeys(lent, True)}
    assert set(named) == set(named_alone)
    differ = {name for name, source in named_alone.items() if named[name] != source}
    assert {name for name in differ if named[name] != NOBODY} == {
        "FusedLambBuilder",
        "FusedLionBuilder",
    }
    assert {named_alone[name].rpartition(".")[2] for name in differ} == {
        "NotImplementedBuilder"
    }


@forked("acme")
def test_a_device_that_deepspeed_does_not_know_has_ours():
    activated()
    made, named, compatible = listed()
    assert set(made) == {
        "cpu_adagrad", "cpu_adam", "cpu_lion", "fused_adam", "fused_lamb", "fused_lion", "pin_memory",
    }  # fmt: skip
    missing = {"deepspeed_not_implemented": False}
    assert compatible == dict.fromkeys(made, True) | missing
    for name in (
        "FusedAdamBuilder",
        "FusedLambBuilder",
        "FusedLionBuilder",
        "CPULionBuilder",
    ):
        assert named[name] == f"{PORTABLE}.{name}"
    assert named["AsyncIOBuilder"] == named["NotImplementedBuilder"] == NOBODY


@forked("acme")
def test_deepspeed_understands_that_an_operator_is_missing():
    activated()
    import deepspeed.comm.ccl
    import deepspeed.env_report
    from deepspeed.comm.torch import build_shm_op
    from deepspeed.ops.op_builder import AsyncIOBuilder

    deepspeed.env_report.op_report()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        deepspeed.env_report.debug_report()
    (told,) = [
        line
        for line in printed.getvalue().splitlines()
        if line.startswith("accelerator ")
    ]
    assert told.startswith(f"accelerator {'.' * 22} <")
    assert "'acme'" in told
    assert told.endswith(", by accel-train")
    words = "^acme: no installed distribution provides AsyncIOBuilder; neither DeepSpeed nor"
    with pytest.raises(NotImplementedError, match=words):
        AsyncIOBuilder().load()
    assert deepspeed.comm.ccl.build_ccl_op() is build_shm_op() is None


def stepped(kind, device, dtype, options):
    """Parameters after 20 steps from the same start, and the optimizer."""
    import torch

    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        return [
            torch.randn(shape, generator=generator).to(device, dtype)
            for shape in SHAPES
        ]

    parameters = [torch.nn.Parameter(tensor) for tensor in draw(0)]
    optimizer = kind(parameters, **options)
    for step in range(1, 21):
        for parameter, gradient in zip(parameters, draw(step), strict=True):
            parameter.grad = gradient
        optimizer.step()
    return [parameter.detach().cpu() for parameter in parameters], optimizer


@pytest.mark.parametrize(
    ("device", "compiled"), [("acme", False), ("cpu", False), ("cpu", True)]
)
@forked()
def test_its_optimizers_step_as_torchs_do(device, compiled, tmp_path, extensions):
    """On a device that it does not know, and on the CPU with its own C++, and where nothing can be compiled.

    Each class of DeepSpeed against torch.optim in float32; its two Lions against each other. The formulas
    that torch has not are those of packages/accel_train/tests/ops.
    """
    if compiled:
        os.environ |= {
            **deepspeeds_compiler.VARIABLES,
            "TORCH_EXTENSIONS_DIR": extensions,
        }
    elif device == "cpu":
        nothing_built(tmp_path, "no-compiler")
    activated()
    import torch
    from deepspeed.ops import op_builder
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

    here = accel_core.get_accelerator().current_device_name()
    names = ("FusedAdam", "FusedLamb", "FusedLion", "CPUAdam", "CPUAdagrad", "CPULion")
    homes = {getattr(op_builder, f"{name}Builder").__module__ for name in names}
    theirs = {
        f"deepspeed.ops.op_builder.cpu.{name}"
        for name in ("cpu_adagrad", "cpu_adam", "cpu_lion", "fused_adam")
    }
    assert homes == ({PORTABLE, *theirs} if compiled else {PORTABLE})
    common = {"lr": 1e-2, "betas": (0.9, 0.99), "weight_decay": 0.1}
    adam, adagrad = (
        {"eps": 1e-8, **common},
        {"lr": 1e-2, "eps": 1e-10, "weight_decay": 0.1},
    )
    adam_w, single = torch.optim.AdamW, {"foreach": False}
    # Against a formula that is computed otherwise, weights of size 1 have been rounded 20 times; and
    # DeepSpeed's compiled Adams round otherwise than torch's.
    rounded = 0.1
    host = 1e-2 if op_builder.CPUAdamBuilder.__module__ == PORTABLE else rounded
    fused = 1e-2 if op_builder.FusedAdamBuilder.__module__ == PORTABLE else rounded
    for kind, other, place, options, ours, theirs, floor in (
        (FusedAdam, adam_w, here, adam, {"adam_w_mode": True}, single, fused),
        (
            FusedAdam,
            torch.optim.Adam,
            here,
            adam,
            {"adam_w_mode": False},
            single,
            fused,
        ),
        (FusedLion, DeepSpeedCPULion, here, common, {}, {}, rounded),
        (DeepSpeedCPUAdam, adam_w, "cpu", adam, {"adamw_mode": True}, single, host),
        (
            DeepSpeedCPUAdam,
            torch.optim.Adam,
            "cpu",
            adam,
            {"adamw_mode": False},
            single,
            host,
        ),
        (DeepSpeedCPUAdagrad, torch.optim.Adagrad, "cpu", adagrad, {}, single, 1e-2),
    ):
        mine, _ = stepped(kind, place, torch.float32, options | ours)
        yours, _ = stepped(other, "cpu", torch.float32, options | theirs)
        for a, b in zip(mine, yours, strict=True):
            # Relative to weights of `floor` and more; below, to `floor`.
            off = (a.double() - b.double()).abs() / b.double().abs().clamp(min=floor)
            assert off.max() < 1e-6, (kind, other)
    ratios = stepped(FusedLamb, here, torch.float32, {"lr": 1e-2})[1].get_lamb_coeffs()
    assert len(ratios) == 4
    assert all(0.01 <= ratio <= 10 for ratio in ratios)
    narrow, optimizer = stepped(DeepSpeedCPUAdam, "cpu", torch.bfloat16, {"lr": 1e-2})
    assert {state["exp_avg"].dtype for state in optimizer.state.values()} == {
        torch.float32
    }
    both, _ = stepped(FusedAdam, here, torch.bfloat16, {"lr": 1e-2})
    assert all(tensor.isfinite().all() for tensor in (*narrow, *both))


@pytest.mark.parametrize("first", [False, True])
@forked("cpu")
def test_an_operator_can_be_asked_for_before_deepspeed_is_imported(first):
    if first:
        activated()
    acc = accel_core.get_accelerator()
    table = dict(acc.op_builders())
    assert "deepspeed" not in sys.modules
    found = acc.get_op_builder("CPUAdamBuilder")
    home = "deepspeed.ops.op_builder.cpu"
    assert [acc.op_builder_dir(), found.__module__] == [home, f"{home}.cpu_adam"]
    assert table["CPUAdamBuilder"] == f"{home}.cpu_adam:CPUAdamBuilder"
    deepspeed = sys.modules["deepspeed"]
    assert found is deepspeed.ops.op_builder.CPUAdamBuilder
    # DeepSpeed did not choose for itself, which sets variables on Gaudi.
    assert deepspeed.accelerator.get_accelerator() is acc


@forked("cpu")
def test_its_files_say_what_its_own_accelerators_find_by_importing():
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    from accel_train.deepspeed import op_builders

    cuda = CUDA_Accelerator()
    cuda._lazy_init_class_dict()
    theirs = {
        name: f"{kind.__module__}:{kind.__name__}"
        for name, kind in cuda.class_dict.items()
        if name != "NotImplementedBuilder" and not kind.__module__.endswith(".builder")
    }
    assert op_builders.builder_sources("cuda") == theirs
    assert len(theirs) > 10


WAITING = [
    (
        "cuda",
        {"accelerator": "accel_cuda.accelerator:CUDA"},
        "FusedLionBuilder",
        "must be compiled",
    ),
    # DeepSpeed's builders for SYCL set CXX to icpx, whatever the user has.
    ("xpu", {}, "FusedAdamBuilder", "icpx is missing: install Intel's DPC++"),
]


@pytest.mark.parametrize(("name", "more", "op", "reason"), WAITING)
@forked("cpu")
def test_without_its_compiler_a_device_has_the_portable_operators(
    name, more, op, reason, tmp_path
):
    from accel_core.operators import operators_by_name
    from accel_train.deepspeed import op_builders
    from accel_train.ops import provided

    nothing_built(tmp_path, "no-compiler")
    which = shutil.which
    shutil.which = lambda command, *rest: (
        None if command == "icpx" else which(command, *rest)
    )
    backend = accel_core.Backend(name=name, priority=1, device_type=name, **more)
    asked = [
        op_builders.accel_op_builders(backend),
        provided.accel_op_builders(backend),
    ]
    found = operators_by_name(asked)[op]
    first = found.candidates[0]
    assert first.provider.startswith("deepspeed 0.")
    assert reason in first.reason
    assert found.used.provider == "accel-train portable"


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "acme", marks=pytest.mark.nightly(reason="on a device; by day on the CPU")
        ),
    ],
)
def test_accel_ops_tells_all_of_it_without_noise(child, request, device):
    variables = request.getfixturevalue(f"on_{device}")
    done = child(["-m", "accel_core", "ops", "--json"], variables).succeeded()
    assert "real_accelerator" not in done.stderr, (
        "DeepSpeed looked for a device by itself"
    )
    document = json.loads(done.stdout)
    assert document["backend"] == device
    assert document["deepspeed"] is True
    kinds = {op["op"]: [c["kind"] for c in op["candidates"]] for op in document["ops"]}
    assert kinds["CPUAdamBuilder"][-1] == "portable"
    assert (
        ("AsyncIOBuilder" in kinds)
        is (kinds["FusedAdamBuilder"][0] == "deepspeed")
        is (device == "cpu")
    )


# ---------------------------------------------------------------------------- ops lists
# Whose builders DeepSpeed lists, gives and calls compatible, from a wheel and from a source checkout.


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """DeepSpeed as git has it, made of the installed one: links to its build's packages, and no results."""
    installed = Path(find_spec("deepspeed").origin).parent
    root = tmp_path_factory.mktemp("checkout")
    left_out = shutil.ignore_patterns(
        "__pycache__", "git_version_info_installed.py", "op_builder", "csrc"
    )
    shutil.copytree(installed, root / "deepspeed", ignore=left_out)
    shutil.rmtree(root / "deepspeed" / "accelerator")
    for name, place in (("op_builder", "ops"), ("accelerator", "")):
        shutil.copytree(
            installed / place / name,
            root / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        home = root / "deepspeed" / place
        (home / name).symlink_to(os.path.relpath(root / name, home))
    (root / "deepspeed" / "ops" / "csrc").symlink_to(installed / "ops" / "csrc")
    return root


@pytest.fixture(scope="session")
def on_mlu(simulated):
    """A vendor of DeepSpeed's, with its real plugin."""
    return simulated("mlu", plugin=True)


def kinds_in_use(home):
    """Activate, and give the kind of each operator in use, which DeepSpeed has wherever it may be asked."""
    sys.path.insert(0, home)
    found, _ = activated()
    import deepspeed
    from deepspeed.ops import op_builder
    from deepspeed.ops.op_builder.all_ops import ALL_OPS

    assert Path(deepspeed.__file__).is_relative_to(home)
    bases = ("OpBuilder", "CUDAOpBuilder")
    named = {
        n: kind
        for n, kind in vars(op_builder).items()
        if n.endswith("Builder") and n not in bases
    }
    assert [
        n
        for n, kind in named.items()
        if kind.NAME not in deepspeed.ops.__compatible_ops__
    ] == []
    used = {n: op.used for n, op in found.accelerator.operators().items()}
    there = {
        n: kind for n, kind in named.items() if kind.NAME != "deepspeed_not_implemented"
    }
    assert there == {n: used[n].builder_class for n in there}
    listed = {
        type(builder)
        for name, builder in ALL_OPS.items()
        if name != "deepspeed_not_implemented"
    }
    assert listed == {candidate.builder_class for candidate in used.values()}
    return {n: candidate.kind for n, candidate in used.items()}


@forked("cpu")
def test_every_builder_stands_in_the_lists_and_is_the_accelerators(checkout):
    """Also where DeepSpeed was imported before."""
    sys.path.insert(0, checkout)
    assert importlib.import_module("deepspeed.ops").__compatible_ops__
    kinds = kinds_in_use(checkout)
    assert kinds["CPUAdagradBuilder"] == kinds["FusedAdamBuilder"] == "deepspeed"
    assert kinds["FusedLambBuilder"] == "portable"
    assert importlib.import_module(
        "op_builder"
    ).__deepspeed__  # the package of its build


@forked("mlu")
def test_a_vendor_of_deepspeeds_with_operators_of_ours(checkout):
    assert kinds_in_use(checkout)["FusedLambBuilder"] == "portable"


# ---------------------------------------------------------------------------- ops of intel
# The operators of the real Intel Extension for DeepSpeed, on a simulated xpu.
# `ACCEL_REAL_IDEX` names the folder that it is installed in, as `./dev deepspeed` does. IPEX and oneCCL's
# bindings, which it imports, are empty modules here: they fit no torch that has no GPU of Intel's.


EXTENSION = os.environ.get("ACCEL_REAL_IDEX", "")


@pytest.fixture(scope="session")
def on_xpu(simulated, tmp_path_factory):
    """The simulated xpu, the plugin and the extension."""
    folder = tmp_path_factory.mktemp("extension")
    fitting = version("torch").partition("+")[0]
    for name in ("intel-extension-for-pytorch", "oneccl-bindings-for-pytorch"):
        layouts.dist_info(folder, name, fitting, {}, {name.replace("-", "_"): ""})
    return simulated(
        "xpu", folder, Path(EXTENSION), plugin=True, DS_ACCELERATOR="xpu.external"
    )


@pytest.mark.skipif(
    not EXTENSION, reason="ACCEL_REAL_IDEX names no folder with the extension"
)
@pytest.mark.parametrize("compiler", [False, True])
@forked("xpu")
def test_its_builders_are_used_where_they_can_be_compiled(tmp_path, compiler):
    if compiler:
        icpx = executable(tmp_path / "bin" / "icpx")
        os.environ["PATH"] = f"{icpx.parent}{os.pathsep}{os.environ['PATH']}"
    acc = activated()[0].accelerator
    import deepspeed
    from deepspeed.ops import op_builder

    assert acc.name == "xpu.external"
    only_here = {
        "TransformerBuilder",
        "InferenceBuilder",
        "QuantizerBuilder",
        "UtilsBuilder",
    }
    assert all(
        getattr(op_builder, name) is acc.get_op_builder(name) for name in only_here
    )
    kinds = {
        name: acc.get_op_builder(name) for name in (*only_here, "FusedAdamBuilder")
    }
    home = "intel_extension_for_deepspeed.op_builder."
    own = {name for name, kind in kinds.items() if kind.__module__.startswith(home)}
    assert own == (set(kinds) if compiler else only_here)
    assert all(kind.NAME in deepspeed.ops.__compatible_ops__ for kind in kinds.values())
    (reason,) = {acc.operators()[name].used.reason for name in only_here}
    assert reason == "" if compiler else "icpx is missing" in reason


# ---------------------------------------------------------------------------- precision
# Small trainings: half of the optimizer offloaded, pinned memory by DeepSpeed's operator, Metal.


# ---------------------------------------------------------------------------- precision
# A small training with half of the optimizer offloaded, in a process without MPI.


#: DeepSpeed makes tensors on what it calls `_name`.
SIZES = {
    "sub_group_size": 600,
    "reduce_bucket_size": 5000,
    "stage3_prefetch_bucket_size": 5000,
}
HALF_OFFLOADED = {
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "ratio": 0.5},
        **SIZES,
    },
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
}


@pytest.fixture(scope="session")
def on_generic(simulated):
    """The simulated device and no plugin for it."""
    return simulated("acme", DS_ACCELERATOR="generic")


@forked("generic")
def test_half_of_the_optimizer_stays_on_a_device_that_no_plugin_knows():
    """Without the launcher's variables, for which DeepSpeed asks MPI and wants mpi4py."""
    import torch
    import torch_acme  # noqa: F401 - no plugin imports it

    acc = activated()[0].accelerator
    assert acc.name == "generic"
    assert acc._communication_backend_name == "accl"
    import deepspeed

    torch.manual_seed(0)
    inputs, weights = torch.randn(64, 16), torch.randn(16, 4)
    inputs, wanted = inputs.to("acme"), (inputs @ weights).to("acme")
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
    )
    config = {"train_micro_batch_size_per_gpu": 64, **HALF_OFFLOADED}
    engine, *_ = deepspeed.initialize(model=model, config=config)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.mse_loss(engine(inputs), wanted)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert set(engine.optimizer.subgroup_to_device.values()) == {"acme", "cpu"}


@forked("cpu")
def test_one_of_several_processes_without_mpi4py_is_told_what_is_missing():
    """Also where DeepSpeed was imported first."""
    import deepspeed

    def refused(**variables):
        with (
            mock.patch.dict(os.environ, variables),
            pytest.raises(ImportError) as error,
        ):
            deepspeed.init_distributed(verbose=False)
        return str(error.value)

    of_mpi = {"PMI_RANK": "1", "PMI_SIZE": "4"}
    assert refused(**of_mpi) == "No module named 'mpi4py'"
    activated()
    of_four = refused(**of_mpi)
    assert "WORLD_SIZE=4 shows that this is one of several processes" in of_four
    assert "needs LOCAL_RANK, MASTER_ADDR in each" in of_four
    second = refused(RANK="1", MASTER_ADDR="here")
    assert "RANK=1 shows" in second
    assert "needs LOCAL_RANK, WORLD_SIZE, MASTER_PORT in each" in second
    assert "accel deepspeed" in second


# ---------------------------------------------------------------------------- native pins
# `DS_PIN_MEMORY_BACKEND=native`: DeepSpeed's own pinned memory, by its compiled operator.


@pytest.mark.nightly(reason="it compiles for most of a minute")
@pytest.mark.parametrize("device", ["cpu", "acme"])
@forked(DS_PIN_MEMORY_BACKEND="native")
def test_memory_is_locked_by_deepspeed_and_registered_with_the_accelerator(device):
    """Also for a device that DeepSpeed has never heard of: its operator locks memory of the host."""
    import torch

    acc, calls = activated()[0].accelerator, []
    acc.register_host_memory = lambda address, size: (
        calls.append(("register", size >= 16)) or True
    )
    acc.unregister_host_memory = lambda address: calls.append(("unregister", True))
    source = torch.arange(4.0)
    pinned = acc.pin_memory(source)
    assert pinned is not source
    assert pinned.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert acc.pin_memory(
        source.reshape(2, 2), make_copy=False, match_shape=False
    ).shape == (4,)
    assert acc.pin_empty(2, 2, dtype=torch.float32).shape == (2, 2)
    assert [acc.is_pinned(pinned), acc.is_pinned(source)] == [True, False]
    acc.unpin_memory(pinned)
    assert calls[0] == ("register", True)
    assert calls[-1] == ("unregister", True)


# ---------------------------------------------------------------------------- metal
# DeepSpeed on Metal: what it reports of memory and time, as torch had it before 2.13; its fused Adam.


@pytest.fixture(scope="session")
def on_mps(simulated):
    return simulated("mps", plugin=True, ACCEL_SIMULATE_OLD_METAL="1")


@forked("mps")
def test_memory_and_time_are_reported_and_adam_steps():
    import torch

    acc = activated()[0].accelerator
    from deepspeed.comm import init_distributed
    from deepspeed.comm.torch import _needs_cpu_staging
    from deepspeed.ops.adam import FusedAdam
    from deepspeed.runtime.utils import see_memory_usage
    from deepspeed.utils.timer import SynchronizedWallClockTimer

    assert type(acc).__name__ == "MPSAccelerator"
    with contextlib.redirect_stdout(io.StringIO()):
        see_memory_usage("here", force=True)
    timers = SynchronizedWallClockTimer()
    timers("step").start()
    torch.ones(8, device="mps").sum().item()
    timers("step").stop()
    assert timers("step").elapsed() > 0
    assert "max_mem_allocated" in timers.memory_usage()
    init_distributed(acc.communication_backend_name(), verbose=False)
    assert not _needs_cpu_staging(torch.ones(1, device="mps")), "staged copies them"
    adam = acc.operators()["FusedAdamBuilder"]
    lacks = "lacks the source file csrc/mps/fused_adam.metal: install DeepSpeed from its repository"
    assert adam.candidates[0].reason == f"DeepSpeed's wheel {lacks}"
    assert adam.used.provider == "accel-train portable"
    weight = torch.nn.Parameter(torch.ones(8, device="mps"))
    optimizer = FusedAdam([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    assert weight.detach().cpu()[0].item() == pytest.approx(0.9, abs=5e-4)
