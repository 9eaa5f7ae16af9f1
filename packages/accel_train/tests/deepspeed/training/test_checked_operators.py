"""DeepSpeed's own C++ for the processor is given nothing that would end Python."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

from accel_tests import deepspeeds_compiler
from accel_tests.forks import forked
from looks import activated

from accel_core.errors import OpInputError

pytestmark = pytest.mark.slow


@forked("cpu", ACCEL_COMPILE="1", **deepspeeds_compiler.VARIABLES)
def test_bad_arguments_are_errors_of_ours_and_change_nothing(extensions):
    """Most of these calls ended the process, or changed what was not theirs."""
    os.environ["TORCH_EXTENSIONS_DIR"] = extensions  # the trainings use the same: whoever is first compiles
    activated()
    import torch
    from deepspeed.ops.op_builder import CPUAdamBuilder, FusedAdamBuilder

    many, one = FusedAdamBuilder().load().multi_tensor_adam, CPUAdamBuilder().load()
    assert CPUAdamBuilder().load() is one
    homes = {kind.__module__ for kind in (CPUAdamBuilder, FusedAdamBuilder)}
    assert homes == {f"deepspeed.ops.op_builder.cpu.{name}_adam" for name in ("cpu", "fused")}
    flag = torch.zeros(1, dtype=torch.int32)

    def ones(count=8, dtype=torch.float32):
        return torch.ones(count, dtype=dtype)

    def fused(lists=None, beta1=0.9, step=1, mode=1, decay=0.0, **changed):
        given = list({**{name: [ones()] for name in "gpmv"}, **changed}.values()) if lists is None else lists
        return many(1, flag, given, 0.1, beta1, 0.999, 1e-8, step, mode, 1, decay)

    def host(tensors=None, optimizer_id=5, step=1, beta1=0.9, name="adam_update"):
        given = tensors or [ones()] * 4
        return getattr(one, name)(optimizer_id, step, 0.1, beta1, 0.999, 1e-8, 0.0, True, *given)

    def create(optimizer_id):
        one.create_adam(optimizer_id, 0.1, 0.9, 0.999, 1e-8, 0.0, True, False)

    create(5)
    weight = ones().requires_grad_()
    loss = (weight * weight).sum()
    halves = [ones(), ones(dtype=torch.float16), torch.zeros(8), torch.zeros(8)]
    second_row = [[ones(), ones(3)], [weight, ones()], [ones()] * 2, [ones()] * 2]
    for words, call, options in (
        ("fused_adam: ", fused, {"g": []}),
        ("fused_adam: ", fused, {"lists": [[ones()]] * 3}),
        ("fused_adam: ", fused, {"lists": []}),
        ("fused_adam: ", fused, {"lists": [ones()] * 4}),
        ("fused_adam: ", fused, {"v": [None]}),
        ("fused_adam: ", fused, {"g": [ones(4)]}),
        ("fused_adam: ", fused, {"g": [ones(dtype=torch.float64)]}),
        ("fused_adam: ", fused, {"m": [ones(dtype=torch.bfloat16)]}),
        ("fused_adam: ", fused, {"p": [ones().to("meta")]}),
        ("fused_adam: ", fused, {"g": [ones().to_sparse()]}),
        (r"fused_adam: .*gradients\[1\] has 3 elements", fused, {"lists": second_row}),
        ("fused_adam: ", fused, {"mode": 7}),
        ("fused_adam: ", fused, {"beta1": 1}),
        ("fused_adam: ", fused, {"decay": -1.0}),
        ("fused_adam: ", fused, {"step": 2**40}),
        (r"cpu_adam: no optimizer 77 was created; call create_adam\(77, …\)", host, {"optimizer_id": 77}),
        ("cpu_adam: ", host, {"tensors": [ones(), ones(7), ones(), ones()]}),
        ("cpu_adam: ", host, {"tensors": halves}),
        ("cpu_adam: ", host, {"step": 0}),
        ("cpu_adam: ", create, {"optimizer_id": 2**31}),
        ("cpu_adam: ", host, {"tensors": [ones(dtype=torch.bfloat16)] * 4, "name": "adam_rollback"}),
        ("cpu_adam: ", host, {"name": "adam_rollback", "beta1": 0}),
    ):
        with pytest.raises(OpInputError, match=f"^{words}"):
            call(**options)
    assert (weight == 1).all()
    host([weight, ones(), torch.zeros(8), torch.zeros(8)])
    assert (weight < 1).all()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    strided = torch.ones(4, 6).t()
    fused([[torch.ones(6, 4)], [strided], [torch.zeros(6, 4)], [torch.zeros(6, 4)]])
    assert (strided < 1).all()
    fused([[], [], [], []])
    assert callable(one.zenflow_adam_create)
    one.destroy_adam(5)
    with pytest.raises(OpInputError):
        host()
