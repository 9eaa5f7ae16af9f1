"""DeepSpeed finds its operators through our accelerator, and its optimisers run on the portable ones."""

from __future__ import annotations

import json

import pytest

ANSWER = """
import json, sys
def answer(**values):
    print("ANSWER", json.dumps(values), flush=True)
"""
ACTIVATE = "from accel_train.deepspeed import activate\nactivate()\n"
LIST = """
from deepspeed.ops.op_builder.all_ops import ALL_OPS
import deepspeed.ops.op_builder as package
named = {n: f"{v.__module__}.{v.__name__}" for n, v in vars(package).items() if n.endswith("Builder")}
made = {n: f"{type(v).__module__}.{type(v).__name__}" for n, v in ALL_OPS.items()}
answer(made=made, named=named, compatible=dict(getattr(__import__("deepspeed").ops, "__compatible_ops__")))
"""
PORTABLE = "accel_train.ops.portable"
NOBODY = "accel_core.accelerators.operators.NotImplementedBuilder"

#: Each class of DeepSpeed against torch.optim over 20 steps in float32; its two Lions against each other. The
#: formulas that torch has not are those of packages/accel_train/tests/ops.
OPTIMIZERS = """
import torch, accel_core
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.lamb import FusedLamb
from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

device = accel_core.get_accelerator().current_device_name()
SHAPES = [(7, 3), (1,), (64,), (5, 1, 2)]

def draw(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]

def run(kind, device="cpu", dtype=torch.float32, **options):
    parameters = [torch.nn.Parameter(t.to(device, dtype)) for t in draw(0)]
    optimizer = kind(parameters, **options)
    for step in range(1, 21):
        for p, g in zip(parameters, draw(step)):
            p.grad = g.to(device, dtype)
        optimizer.step()
    return [p.detach().cpu() for p in parameters], optimizer

def apart(kind, other, options, ours, theirs, floor=1e-2):
    # The greatest relative difference, of weights of `floor` and more; below, relative to `floor`.
    mine, _ = run(kind, **options, **ours)
    yours, _ = run(other, **options, **theirs)
    pairs = [(a.double(), b.double()) for a, b in zip(mine, yours)]
    return max(((a - b).abs() / b.abs().clamp(min=floor)).max().item() for a, b in pairs)

here = dict(device=device)
common = dict(lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)
adam = dict(eps=1e-8, **common)
adagrad = dict(lr=1e-2, eps=1e-10, weight_decay=0.1)
single = dict(foreach=False)
# Against a formula that is computed otherwise, weights of size 1 have been rounded 20 times.
rounded = 0.1
from deepspeed.ops import op_builder
# The compiled Adam is DeepSpeed's own to the last bit, which is not torch's.
host = 1e-2 if op_builder.CPUAdamBuilder.__module__ == "accel_train.ops.portable" else rounded
results = {
    "FusedAdam, AdamW": apart(FusedAdam, torch.optim.AdamW, adam, dict(adam_w_mode=True, **here), single),
    "FusedAdam, Adam": apart(FusedAdam, torch.optim.Adam, adam, dict(adam_w_mode=False, **here), single),
    "both Lions": apart(FusedLion, DeepSpeedCPULion, common, here, {}, rounded),
    "CPUAdam, AdamW": apart(DeepSpeedCPUAdam, torch.optim.AdamW, adam, dict(adamw_mode=True), single, host),
    "CPUAdam, Adam": apart(DeepSpeedCPUAdam, torch.optim.Adam, adam, dict(adamw_mode=False), single, host),
    "CPUAdagrad": apart(DeepSpeedCPUAdagrad, torch.optim.Adagrad, adagrad, {}, single),
}
_, lamb = run(FusedLamb, device=device, lr=1e-2)
ratios = lamb.get_lamb_coeffs()
narrow, adam = run(DeepSpeedCPUAdam, dtype=torch.bfloat16, lr=1e-2)
states = {str(s["exp_avg"].dtype) for s in adam.state.values()}
fused, _ = run(FusedAdam, device=device, dtype=torch.bfloat16, lr=1e-2)
finite = all(t.isfinite().all().item() for t in (*narrow, *fused))
where = {n: getattr(op_builder, n).__module__ for n in (
    "FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder", "CPUAdamBuilder", "CPUAdagradBuilder",
    "CPULionBuilder")}
answer(results=results, ratios=ratios, states=sorted(states), finite=finite, where=where)
"""


@pytest.fixture
def without_compiler(on_cpu, tmp_path):
    """On the CPU, where nothing can be compiled, though it is asked for, and nothing is built."""
    nothing = {name: str(tmp_path / name) for name in ("ACCEL_CACHE", "TORCH_EXTENSIONS_DIR")}
    return {**on_cpu, **nothing, "CXX": str(tmp_path / "no-compiler"), "ACCEL_COMPILE": "1"}


def ran(child, code, variables):
    (found,) = child(["-c", ANSWER + code], variables).answers
    return found


def test_on_the_cpu_deepspeed_has_the_operators_that_it_has_alone(child, asked):
    ours = ran(child, ACTIVATE + LIST, asked)
    alone = ran(child, LIST, asked)
    stand_in = "deepspeed_not_implemented"
    assert ours["made"].pop(stand_in) == NOBODY
    alone["made"].pop(stand_in)
    lent = {name: f"{PORTABLE}.Fused{name[6:].capitalize()}Builder" for name in ("fused_lamb", "fused_lion")}
    assert ours["made"] == {**alone["made"], **lent}
    assert ours["compatible"] == {**alone["compatible"], **dict.fromkeys(lent, True)}
    assert set(ours["named"]) == set(alone["named"])
    differ = {n for n, source in alone["named"].items() if ours["named"][n] != source}
    assert {n for n in differ if ours["named"][n] != NOBODY} == {"FusedLambBuilder", "FusedLionBuilder"}
    assert {alone["named"][n].rpartition(".")[2] for n in differ} == {"NotImplementedBuilder"}


def test_a_device_that_deepspeed_does_not_know_has_ours(child, on_acme):
    found = ran(child, ACTIVATE + LIST, on_acme)
    assert set(found["made"]) == {
        "cpu_adagrad", "cpu_adam", "cpu_lion", "fused_adam", "fused_lamb", "fused_lion", "pin_memory",
        "deepspeed_not_implemented",
    }  # fmt: skip
    assert found["compatible"] == {name: name != "deepspeed_not_implemented" for name in found["made"]}
    for name in ("FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder", "CPULionBuilder"):
        assert found["named"][name] == f"{PORTABLE}.{name}"
    assert found["named"]["AsyncIOBuilder"] == found["named"]["NotImplementedBuilder"] == NOBODY


def test_deepspeed_understands_that_an_operator_is_missing(child, on_acme):
    code = """
import deepspeed, deepspeed.comm.ccl, deepspeed.env_report
from deepspeed.comm.torch import build_shm_op
from deepspeed.ops.op_builder import AsyncIOBuilder
deepspeed.env_report.op_report()
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as printed:
    deepspeed.env_report.debug_report()
told = [line for line in printed.getvalue().splitlines() if line.startswith("accelerator ")]
try:
    AsyncIOBuilder().load()
except NotImplementedError as error:
    said = str(error)
answer(ccl=deepspeed.comm.ccl.build_ccl_op(), shm=build_shm_op(), said=said, told=told)
"""
    found = ran(child, ACTIVATE + code, on_acme)
    assert found["ccl"] is found["shm"] is None
    assert found["said"].startswith(
        "acme: no installed distribution provides AsyncIOBuilder; DeepSpeed has none"
    )
    (told,) = found["told"]
    assert told.startswith(f"accelerator {'.' * 22} <")
    assert "'acme'" in told
    assert told.endswith(", by accel-train")


def test_its_optimizers_run_on_a_device_that_it_does_not_know(child, on_acme):
    found = ran(child, ACTIVATE + OPTIMIZERS, on_acme)
    assert {n: apart for n, apart in found["results"].items() if not apart < 1e-6} == {}
    print(f"\non acme, furthest from torch.optim: {found['results']}")
    assert {name: where for name, where in found["where"].items() if where != PORTABLE} in (
        {}, {"CPUAdamBuilder": "accel_train.ops.cpu_adam"},
    )  # fmt: skip
    assert len(found["ratios"]) == 4
    assert all(0.01 <= ratio <= 10 for ratio in found["ratios"])
    assert found["states"] == ["torch.float32"]
    assert found["finite"] is True


def test_where_nothing_can_be_compiled_all_of_them_are_portable(child, without_compiler):
    found = ran(child, ACTIVATE + OPTIMIZERS, without_compiler)
    assert set(found["where"].values()) == {PORTABLE}
    print(f"\nportable, furthest from torch.optim: {found['results']}")
    assert {n: apart for n, apart in found["results"].items() if not apart < 1e-6} == {}
    assert found["states"] == ["torch.float32"]
    assert found["finite"] is True


def test_no_optimizer_compiles_unasked(child, on_cpu, tmp_path):
    """With a compiler that only notes that it was called, and nothing built."""
    note, compiler = tmp_path / "called", tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {note}\nexit 1\n')
    compiler.chmod(0o755)
    nothing = {name: str(tmp_path / name) for name in ("ACCEL_CACHE", "TORCH_EXTENSIONS_DIR")}
    code = """
import torch
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion
moved = {}
for kind in (DeepSpeedCPUAdagrad, DeepSpeedCPUAdam, FusedAdam, DeepSpeedCPULion, FusedLion):
    weight = torch.nn.Parameter(torch.ones(5))
    optimizer = kind([weight], lr=0.1)
    weight.grad = torch.ones(5)
    optimizer.step()
    moved[kind.__name__] = bool((weight < 1).all())
answer(moved=moved)
"""
    found = ran(child, ACTIVATE + code, {**on_cpu, **nothing, "CXX": str(compiler)})
    assert len(found["moved"]) == 5
    assert set(found["moved"].values()) == {True}
    assert not note.exists()


def test_an_operator_can_be_asked_for_before_deepspeed_is_imported(child, asked):
    code = """
import accel_core
acc = accel_core.get_accelerator()
table = dict(acc.op_builders())
assert "deepspeed" not in sys.modules
found = acc.get_op_builder("CPUAdamBuilder")
answer(found=found.__module__, first=table["CPUAdamBuilder"], dir=acc.op_builder_dir(),
       same=found is sys.modules["deepspeed"].ops.op_builder.CPUAdamBuilder,
       ours=sys.modules["deepspeed"].accelerator.get_accelerator() is acc)
"""
    for before in ("", ACTIVATE):
        assert ran(child, before + code, asked) == {
            "found": "deepspeed.ops.op_builder.cpu.cpu_adam",
            "first": "deepspeed.ops.op_builder.cpu.cpu_adam:CPUAdamBuilder",
            "dir": "deepspeed.ops.op_builder.cpu",
            "same": True,
            "ours": True,  # DeepSpeed did not choose for itself, which sets variables on Gaudi
        }


def test_its_files_say_what_its_own_accelerators_find_by_importing(child, on_cpu):
    code = """
from accel_train.deepspeed import op_builders
from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator
cuda = CUDA_Accelerator()
cuda._lazy_init_class_dict()
theirs = {n: f"{c.__module__}:{c.__name__}" for n, c in cuda.class_dict.items()
          if n not in ("NotImplementedBuilder",) and not c.__module__.endswith(".builder")}
answer(theirs=theirs, ours=op_builders.sources("cuda"))
"""
    found = ran(child, code, on_cpu)
    assert found["ours"] == found["theirs"]
    assert len(found["ours"]) > 10


def test_cuda_without_a_toolkit_has_the_portable_operators(child, without_compiler):
    code = """
from accel_core import Backend
from accel_train.deepspeed import op_builders
from accel_core.ops import table
cuda = Backend(name="cuda", priority=1, device_type="cuda", accelerator="accel_cuda.accelerator:CUDA")
from accel_train.ops import provided
asked = [op_builders.accel_op_builders(cuda), *provided.accel_op_builders(cuda)]
lion = table(asked)["FusedLionBuilder"]
first = lion.candidates[0]
answer(used=lion.used.provider, reason=first.reason, first=first.provider)
"""
    found = ran(child, code, without_compiler)
    assert found["first"].startswith("deepspeed 0.")
    assert "must be compiled" in found["reason"]
    assert found["used"] == "accel-train portable"


def test_xpu_without_its_compiler_has_the_portable_operators(child, on_cpu):
    """DeepSpeed's builders for SYCL set CXX to icpx, whatever the user has."""
    code = """
import shutil
from accel_core import Backend
from accel_core.ops import table
from accel_train.deepspeed import op_builders
from accel_train.ops import provided
found = shutil.which
shutil.which = lambda command, *rest: None if command == "icpx" else found(command, *rest)
xpu = Backend(name="xpu", priority=1, device_type="xpu")
asked = [op_builders.accel_op_builders(xpu), *provided.accel_op_builders(xpu)]
adam = table(asked)["FusedAdamBuilder"]
answer(used=adam.used.provider, reason=adam.candidates[0].reason, first=adam.candidates[0].provider)
"""
    found = ran(child, code, on_cpu)
    assert found["first"].startswith("deepspeed 0.")
    assert "icpx is missing: install Intel's DPC++" in found["reason"]
    assert found["used"] == "accel-train portable"


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param("acme", marks=pytest.mark.nightly(reason="the same on a device; by day on the CPU")),
    ],
)
def test_accel_ops_tells_all_of_it_without_noise(child, request, device):
    variables = request.getfixturevalue(f"on_{device}")
    done = child(["-m", "accel_core", "ops", "--json"], variables)
    assert done.returncode == 0, done.stderr
    assert "real_accelerator" not in done.stderr, "DeepSpeed looked for a device by itself"
    document = json.loads(done.stdout)
    assert (document["backend"], document["deepspeed"]) == (device, True)
    kinds = {op["op"]: [c["kind"] for c in op["candidates"]] for op in document["ops"]}
    assert kinds["CPUAdamBuilder"][-2:] == ["compiled", "portable"]
    assert ("AsyncIOBuilder" in kinds) is (kinds["FusedAdamBuilder"][0] == "deepspeed") is (device == "cpu")
    done = child(["-m", "accel_core", "ops", "cpu_adagrad"], variables)
    assert done.returncode == 0, done.stderr
    assert f"CPUAdagradBuilder on {device}: " in done.stdout
