"""DeepSpeed's own C++ for the processor is given nothing that would end Python."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from accel_tests import deepspeeds_compiler

pytestmark = pytest.mark.slow

#: What DeepSpeed's operators answer to each call: an error's name and text, or what is left of the weights.
CODE = """
import json, torch
from accel_train.deepspeed import activate
activate()
import deepspeed
from deepspeed.ops.op_builder import CPUAdamBuilder, FusedAdamBuilder
many, one = FusedAdamBuilder().load().multi_tensor_adam, CPUAdamBuilder().load()
assert CPUAdamBuilder().load() is one
homes = {kind.__module__ for kind in (CPUAdamBuilder, FusedAdamBuilder)}
assert homes == {"deepspeed.ops.op_builder.cpu.cpu_adam", "deepspeed.ops.op_builder.cpu.fused_adam"}
flag = torch.zeros(1, dtype=torch.int32)

def ones(count=8, dtype=torch.float32):
    return torch.ones(count, dtype=dtype)

def fused(lists, beta1=0.9, step=1, mode=1, decay=0.0):
    return many(1, flag, lists, 0.1, beta1, 0.999, 1e-8, step, mode, 1, decay)

def lists(**changed):
    return list({**{name: [ones()] for name in "gpmv"}, **changed}.values())

def host(tensors, optimizer_id=5, step=1, beta1=0.9, name="adam_update"):
    return getattr(one, name)(optimizer_id, step, 0.1, beta1, 0.999, 1e-8, 0.0, True, *tensors)

one.create_adam(5, 0.1, 0.9, 0.999, 1e-8, 0.0, True, False)
weight = ones().requires_grad_()
loss = (weight * weight).sum()
strided = torch.ones(4, 6).t()
halves = [ones(), ones(dtype=torch.float16), torch.zeros(8), torch.zeros(8)]
calls = {
    "too short": lambda: fused(lists(g=[])),
    "too few": lambda: fused(lists()[:3]),
    "no lists": lambda: fused([]),
    "not nested": lambda: fused([ones()] * 4),
    "not a tensor": lambda: fused(lists(v=[None])),
    "elements": lambda: fused(lists(g=[ones(4)])),
    "type": lambda: fused(lists(g=[ones(dtype=torch.float64)])),
    "types": lambda: fused(lists(m=[ones(dtype=torch.bfloat16)])),
    "device": lambda: fused(lists(p=[ones().to("meta")])),
    "sparse": lambda: fused(lists(g=[ones().to_sparse()])),
    "second row": lambda: fused([[ones(), ones(3)], [weight, ones()], [ones()] * 2, [ones()] * 2]),
    "mode": lambda: fused(lists(), mode=7),
    "rate": lambda: fused(lists(), beta1=1),
    "decay": lambda: fused(lists(), decay=-1.0),
    "step": lambda: fused(lists(), step=2**40),
    "unknown": lambda: host([ones()] * 4, optimizer_id=77),
    "one: elements": lambda: host([ones(), ones(7), ones(), ones()]),
    "one: types": lambda: host(halves),
    "one: step": lambda: host([ones()] * 4, step=0),
    "one: id": lambda: one.create_adam(2**31, 0.1, 0.9, 0.999, 1e-8, 0.0, True, False),
    "undo: type": lambda: host([ones(dtype=torch.bfloat16)] * 4, name="adam_rollback"),
    "undo: rate": lambda: host([ones()] * 4, name="adam_rollback", beta1=0),
}
said = {}
for name, call in calls.items():
    try:
        said[name] = ["nothing", repr(call())]
    except Exception as error:
        said[name] = [type(error).__name__, str(error)]
untouched = bool((weight == 1).all())
host([weight, ones(), torch.zeros(8), torch.zeros(8)])
moved = bool((weight < 1).all())
try:
    loss.backward()
    loud = False
except RuntimeError as error:
    loud = "modified by an inplace operation" in str(error)
fused([[torch.ones(6, 4)], [strided], [torch.zeros(6, 4)], [torch.zeros(6, 4)]])
fused([[], [], [], []])
one.destroy_adam(5)
try:
    host([ones()] * 4)
except ValueError as error:
    said["destroyed"] = [type(error).__name__, str(error)]
print("ANSWER", json.dumps(dict(said=said, untouched=untouched, moved=moved, loud=loud,
      strided=bool((strided < 1).all()), zenflow=callable(one.zenflow_adam_create))), flush=True)
"""


def test_bad_arguments_are_errors_of_ours_and_change_nothing(on_cpu, extensions, child):
    """Most of these calls ended the process, or changed what was not theirs."""
    # Whoever is first compiles: the trainings use the same folder.
    built = {**deepspeeds_compiler.VARIABLES, "TORCH_EXTENSIONS_DIR": str(extensions), "ACCEL_COMPILE": "1"}
    ended = child(["-c", CODE], {**on_cpu, **built})
    assert ended.returncode == 0, ended.stderr
    (found,) = ended.answers
    said = found.pop("said")
    assert {name: kind for name, (kind, _) in said.items() if kind != "OpInputError"} == {}
    assert all(text.startswith(("fused_adam: ", "cpu_adam: ")) for _, text in said.values())
    assert "optimizer 77 was not created. Call create_adam(77, …)" in said["unknown"][1]
    assert "gradients[1] has 3 elements" in said["second row"][1]
    assert set(found.values()) == {True}, found
