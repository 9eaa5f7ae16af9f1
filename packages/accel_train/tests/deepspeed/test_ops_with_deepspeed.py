"""The operators that DeepSpeed gets from each device, and how they step."""

import contextlib
import io
import json
import os
import shutil
import sys

import pytest
from accel_tests import deepspeeds_compiler
from accel_tests.forks import forked
from looks import activated

import accel_core

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


@pytest.mark.parametrize("device", ["acme", "cpu"])
@forked()
def test_its_optimizers_step_as_torchs_do(device, tmp_path):
    check_its_optimizers(device, None, tmp_path)


@pytest.mark.nightly(reason="compiles two operators that no training needs")
@forked("cpu")
def test_its_compiled_optimizers_step_as_torchs_do(tmp_path, all_extensions):
    check_its_optimizers("cpu", all_extensions, tmp_path)


def check_its_optimizers(device, extensions, tmp_path):
    """On a device that it does not know, and on the CPU with its own C++, and where nothing can be compiled.

    Each class of DeepSpeed against torch.optim in float32; its two Lions against each other. The formulas
    that torch has not are those of packages/accel_train/tests/ops.
    """
    if extensions:
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
    assert homes == ({PORTABLE, *theirs} if extensions else {PORTABLE})
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
