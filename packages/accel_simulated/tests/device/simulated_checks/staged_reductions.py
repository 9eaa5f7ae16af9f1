"""The staged process group's reductions: each type and operation, the bits of gloo or of plain arithmetic."""

import functools

import torch
import torch.distributed as dist

from simulated_checks.staged import MOVED, OF_GLOO, layouts, same

OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


def reductions(here):
    """All that computes: each type and operation, against gloo, else against arithmetic done here."""
    count = 0
    device, size = here.device, here.size
    for dtype in MOVED:
        for op in OPS:
            if not _has(dtype, op):
                continue
            for shape in ((3, 4), (0,), (size, 2)):
                given = here.values(dtype, *shape)
                expected = _reduced(here, given, op)
                for at in layouts(device).values():
                    tensor = at(given)
                    dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
                    assert same(tensor, expected), f"{dtype} {op} {shape}"
                    count += 1
                if shape[0] == size:
                    for scatter_into in (_scatter_whole, _scatter_list):
                        mine = scatter_into(
                            given.to(device), getattr(dist.ReduceOp, op)
                        )
                        assert same(mine, expected[here.rank : here.rank + 1]), (
                            f"{dtype} {op} scattered"
                        )
                        count += 1
                    root = given.to(device)
                    dist.reduce(root, 1, getattr(dist.ReduceOp, op))
                    assert same(root, expected if here.rank == 1 else given), (
                        f"{dtype} {op} to a root"
                    )
    for dtype in (torch.float32, torch.bfloat16):
        given = here.values(dtype, size, 2)
        scaled = given * 0.3
        dist.all_reduce(scaled, group=here.gloo)
        half = dist._make_nccl_premul_sum(0.3)
        tensor = given.to(device)
        dist.all_reduce(tensor, half)
        assert same(tensor, scaled)
        assert same(
            _scatter_whole(given.to(device), half), scaled[here.rank : here.rank + 1]
        )
    refused = torch.ones(2, device=device)
    for wrong in (dist.ReduceOp.BAND, dist.ReduceOp.BXOR):
        try:
            dist.all_reduce(refused, wrong)
        except (ValueError, RuntimeError) as error:
            assert "BAND" in str(error) or "BXOR" in str(error)
        else:
            raise AssertionError(wrong)
    return count


def _has(dtype, op):
    if op in ("BAND", "BOR", "BXOR"):
        return not (dtype.is_floating_point or dtype.is_complex)
    if dtype.is_complex:
        return op in ("SUM", "AVG")
    return not (dtype is torch.bool and op == "AVG")


def _reduced(here, given, op):
    """What gloo makes of it on the CPU; where gloo has not the type, what integers or NCCL's rules say."""
    dtype = given.dtype
    if dtype in OF_GLOO and not (
        op == "AVG" and not dtype.is_floating_point and not dtype.is_complex
    ):
        expected = given.clone()
        dist.all_reduce(expected, getattr(dist.ReduceOp, op), group=here.gloo)
        return expected
    if dtype.is_floating_point or dtype.is_complex:
        wide = {torch.float8_e4m3fn: torch.float32}.get(dtype, dtype)
        alike = given.to(wide, copy=True)
        dist.all_reduce(
            alike, getattr(dist.ReduceOp, op if op != "AVG" else "SUM"), group=here.gloo
        )
        if op == "AVG":
            alike = alike.to(dtype).to(wide) / here.size
        return alike.to(dtype)
    every = [None] * here.size
    dist.all_gather_object(every, given.to(torch.int64), group=here.gloo)
    is_or = dtype is torch.bool and op == "SUM"
    made = functools.reduce(torch.maximum if is_or else _OF_INTEGERS[op], every).to(
        dtype
    )
    if op != "AVG":
        return made
    parts = [
        abs(total) // here.size * (1 if total >= 0 else -1)
        for total in made.flatten().tolist()
    ]
    return torch.tensor(parts, dtype=dtype).view(made.shape)


_OF_INTEGERS = {
    "SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
    "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
}  # fmt: skip


def _scatter_whole(given, op):
    mine = given[:1].clone()
    dist.reduce_scatter_tensor(mine, given, op)
    return mine


def _scatter_list(given, op):
    mine = given[:1].clone()
    dist.reduce_scatter(mine, list(given.split(1)), op)
    return mine
