"""How a result on the device differs from CPU's: to the bit, with its shape, strides, type and layout."""

import math

import torch

#: How a difference begins that is a wrong value.
WRONG = "wrong value"
#: The same, within what torch allows two correct results of a dtype (`torch.testing.assert_close`), or this
#: part of the largest element, which sums and products are rounded by.
ROUNDED = "rounded otherwise"
_ENOUGH = 1e-5


def difference(host, device, kind, *, values=True, exact=True):
    """Say how `device`, which must be on the device type `kind`, differs from `host`; None if it does not.

    With `values=False` only what describes the tensors is compared; with `exact=False` rounding may differ,
    and a wrong value is named before a stride.
    """
    if isinstance(host, torch.Tensor):
        if not isinstance(device, torch.Tensor):
            return f"{type(device).__name__} in the place of a tensor"
        return _tensors(host.detach(), device.detach(), kind, values, exact)
    if isinstance(host, dict):
        if list(host) != list(device):
            return f"keys {list(device)} in the place of {list(host)}"
        return difference(
            list(host.values()), list(device.values()), kind, values=values, exact=exact
        )
    if isinstance(host, (list, tuple)):
        if len(host) != len(device):
            return f"{len(device)} results in the place of {len(host)}"
        pairs = zip(host, device, strict=True)
        found = (difference(a, b, kind, values=values, exact=exact) for a, b in pairs)
        return next(filter(None, found), None)
    if isinstance(host, float) and math.isnan(host):
        return (
            None if math.isnan(device) else f"{WRONG}: {device!r} in the place of nan"
        )
    if isinstance(host, torch.device):
        return None
    if (
        not exact
        and isinstance(host, float)
        and math.isclose(host, device, rel_tol=1.3e-6, abs_tol=1e-5)
    ):
        return None
    return (
        None
        if not values or host == device
        else f"{WRONG}: {device!r} in the place of {host!r}"
    )


def _tensors(host, device, kind, values, exact):
    if device.device.type != kind and host.device.type == "cpu":
        return f"the result is on {device.device.type}"
    described = None
    for what in (
        "dtype",
        "layout",
        "shape",
        "is_coalesced",
        "stride",
        "is_conj",
        "is_neg",
    ):
        a, b = (_asked(tensor, what) for tensor in (host, device))
        if a != b:
            described = f"{what} {b} in the place of {a}"
            if exact or what != "stride":
                return described
    said = _values(host, device.cpu()) if values else None
    return (
        described if said is None or (said.startswith(ROUNDED) and not exact) else said
    )


def _asked(tensor, what):
    if what == "is_coalesced" and tensor.layout != torch.sparse_coo:
        return None
    if what == "stride" and (tensor.layout != torch.strided or not tensor.numel()):
        return None
    asked = getattr(tensor, what)
    return asked() if callable(asked) else asked


def _values(a, b):
    if a.layout == torch.sparse_coo:
        return _values(a._indices(), b._indices()) or _values(a._values(), b._values())
    if a.layout in (torch.sparse_csr, torch.sparse_bsr):
        pairs = (
            (a.crow_indices(), b.crow_indices()),
            (a.col_indices(), b.col_indices()),
        )
    elif a.layout in (torch.sparse_csc, torch.sparse_bsc):
        pairs = (
            (a.ccol_indices(), b.ccol_indices()),
            (a.row_indices(), b.row_indices()),
        )
    else:
        return _plain(a, b)
    found = (_values(x, y) for x, y in (*pairs, (a.values(), b.values())))
    return next(filter(None, found), None)


def _plain(a, b):
    if a.is_complex():
        # Clones: the values of a sparse tensor are a view of it, and torch makes no view of that.
        a, b = (
            torch.view_as_real(each.clone().resolve_conj().resolve_neg())
            for each in (a, b)
        )
    if torch.equal(a, b):
        return None
    if a.is_floating_point():
        same = (a == b) | (a.isnan() & b.isnan())
    else:
        same = a == b
    wrong = int((~same).sum())
    if not wrong:
        return None
    widest = (a.double() - b.double()).abs()[~same].max().item()
    try:
        torch.testing.assert_close(b, a, equal_nan=True)
        kind = ROUNDED
    except AssertionError:
        kind = (
            ROUNDED
            if a.is_floating_point() and widest <= _ENOUGH * _largest(a)
            else WRONG
        )
    return f"{kind}: {wrong} of {same.numel()} elements, by up to {widest:.3g}"


def _largest(tensor):
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0
