"""Kernels of CANN's newer library, over single tensors and lists of them; see `newer.c`."""

from stand_in.kernels import newer, torch


def _into(function):
    return lambda *given: given[-1].copy_(function(*given[:-1]))


newer("Add", "Adds")(_into(lambda x, other, alpha: torch.add(x, other, alpha=alpha)))
newer("InplaceAdd", "InplaceAdds")(lambda x, other, alpha: x.add_(other, alpha=alpha))
newer("Mul", "Muls")(_into(lambda x, other: torch.mul(x, other)))
newer("InplaceMul", "InplaceMuls")(lambda x, other: x.mul_(other))
newer("InplaceCopy")(lambda x, other: x.copy_(other))

# --- over lists of tensors: the optimizers' --------------------------------------------------------------


def _each(function, out, *columns):
    """Write `function` of each row into `out`; a number, or a tensor of one, is the same for all rows."""
    for place, target in enumerate(out):
        row = [
            column[place] if isinstance(column, list) else column for column in columns
        ]
        target.copy_(function(*row))


def _over_lists(function):
    return lambda *given: _each(function, given[-1], *given[:-1])


newer("ForeachAddScalar", "ForeachAddScalarV2", "ForeachAddScalarList")(
    _over_lists(lambda x, y: x + y)
)
newer("ForeachMulScalar", "ForeachMulScalarV2", "ForeachMulList")(
    _over_lists(lambda x, y: x * y)
)
newer("ForeachDivScalarV2", "ForeachDivScalarList", "ForeachDivList")(
    _over_lists(lambda x, y: x / y)
)
newer("ForeachSqrt")(_over_lists(lambda x: x.sqrt()))
newer("ForeachAddList", "ForeachAddListV2")(
    _over_lists(lambda x, y, alpha: x + alpha * y)
)
newer("ForeachLerpScalar")(
    _over_lists(lambda x, y, weight: torch.lerp(x, y, float(weight)))
)
newer("ForeachAddcmulScalar", "ForeachAddcmulScalarV2")(
    _over_lists(lambda x, y, z, value: torch.addcmul(x, y, z, value=float(value)))
)
newer("ForeachAddcdivScalarList")(
    _over_lists(lambda x, y, z, value: torch.addcdiv(x, y, z, value=float(value)))
)


@newer("ForeachNonFiniteCheckAndUnscale")
def _unscale(gradients, found_inf, scale):
    for gradient in gradients:
        if not gradient.isfinite().all():
            found_inf.fill_(1.0)
        gradient.mul_(scale)


@newer("AmpUpdateScale")
def _update_scale(scale, tracker, found_inf, growth, backoff, steps, *out):
    torch._amp_update_scale_(scale, tracker, found_inf, growth, backoff, int(steps))
    for target, value in zip(out, (scale, tracker), strict=True):
        target.copy_(value)


@newer("FlashAttentionScore")
def _attention(*given):
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
