"""Kernels of CANN's newer library, over single tensors and lists of them; see `newer.c`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stand_in.kernels import newer, torch

__all__: list[str] = []


@newer("Add", "Adds")
def _add(x: Any, other: Any, alpha: Any, out: Any) -> None:
    out.copy_(torch.add(x, other, alpha=alpha))


@newer("InplaceAdd", "InplaceAdds")
def _add_(x: Any, other: Any, alpha: Any) -> None:
    x.add_(other, alpha=alpha)


@newer("Mul", "Muls")
def _mul(x: Any, other: Any, out: Any) -> None:
    out.copy_(torch.mul(x, other))


@newer("InplaceMul", "InplaceMuls")
def _mul_(x: Any, other: Any) -> None:
    x.mul_(other)


@newer("InplaceCopy")
def _copy_(x: Any, other: Any) -> None:
    x.copy_(other)


# --- over lists of tensors: the optimizers' --------------------------------------------------------------


def _each(function: Callable[..., Any], out: Sequence[Any], *columns: Any) -> None:
    """Write `function` of each row into `out`; a number, or a tensor of one, is the same for all rows."""
    for place, target in enumerate(out):
        row = [column[place] if isinstance(column, list) else column for column in columns]
        target.copy_(function(*row))


def _over_lists(function: Callable[..., Any]) -> Callable[..., None]:
    return lambda *given: _each(function, given[-1], *given[:-1])


newer("ForeachAddScalar", "ForeachAddScalarV2", "ForeachAddScalarList")(_over_lists(lambda x, y: x + y))
newer("ForeachMulScalar", "ForeachMulScalarV2", "ForeachMulList")(_over_lists(lambda x, y: x * y))
newer("ForeachDivScalarV2", "ForeachDivScalarList", "ForeachDivList")(_over_lists(lambda x, y: x / y))
newer("ForeachSqrt")(_over_lists(lambda x: x.sqrt()))
newer("ForeachAddList", "ForeachAddListV2")(_over_lists(lambda x, y, alpha: x + alpha * y))
newer("ForeachLerpScalar")(_over_lists(lambda x, y, weight: torch.lerp(x, y, float(weight))))
newer("ForeachAddcmulScalar", "ForeachAddcmulScalarV2")(
    _over_lists(lambda x, y, z, value: torch.addcmul(x, y, z, value=float(value)))
)
newer("ForeachAddcdivScalarList")(
    _over_lists(lambda x, y, z, value: torch.addcdiv(x, y, z, value=float(value)))
)


@newer("ForeachNonFiniteCheckAndUnscale")
def _unscale(gradients: Sequence[Any], found_inf: Any, scale: Any) -> None:
    for gradient in gradients:
        if not gradient.isfinite().all():
            found_inf.fill_(1.0)
        gradient.mul_(scale)


@newer("AmpUpdateScale")
def _update_scale(
    scale: Any, tracker: Any, found_inf: Any, growth: float, backoff: float, steps: float, *out: Any
) -> None:
    torch._amp_update_scale_(scale, tracker, found_inf, growth, backoff, int(steps))
    for target, value in zip(out, (scale, tracker), strict=True):
        target.copy_(value)


@newer("FlashAttentionScore")
def _attention(*given: Any) -> None:
    query, key, value, _, dropped, _, mask, _, scale, keep, _, _, layout = given[:13]
    largest, total, _, out = given[13:]
    if layout != "BNSD" or dropped is not None or keep != 1:
        raise NotImplementedError(f"attention in the layout {layout}, keeping {keep}")
    scores = query.float() @ key.float().transpose(-1, -2) * scale
    if mask is not None:
        scores.masked_fill_(mask.bool(), float("-inf"))
    out.copy_(scores.softmax(-1) @ value.float())
    highest = scores.amax(-1, keepdim=True)
    largest.copy_(highest.expand(largest.shape))
    total.copy_((scores - highest).exp().sum(-1, keepdim=True).expand(total.shape))
