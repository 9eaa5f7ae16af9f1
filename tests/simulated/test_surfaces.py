"""The simulated modules have no name and no parameter that the vendor's surface file has not."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_simulated import VENDORS, surfaces

pytestmark = pytest.mark.slow

#: What torch itself asks of every device module, whether or not a surface file has it.
ASKED_BY_TORCH = {"_initialized", "_is_in_bad_fork", "_lazy_init", "get_amp_supported_dtype"}
KINDS = {
    "arg": "positional or keyword",
    "kwonly": "keyword-only",
    "pos": "positional-only",
    "varargs": "variadic positional",
    "varkw": "variadic keyword",
}
AN_EXPRESSION = "an expression"
OURS = [name for name, vendor in VENDORS.items() if vendor.package != "torch" and name != "acme"]


@pytest.mark.parametrize("vendor", OURS)
def test_offers_nothing_else(vendor: str, simulated: Callable[..., Any]) -> None:
    problems = list(_problems(vendor, _told(simulated, vendor)))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("vendor", ["xpu", "cuda", "mps"])
def test_torchs_own_modules_are_whole(vendor: str, simulated: Callable[..., Any]) -> None:
    """Stand-ins lie below torch's Python: nothing of it is lost, and no parameter is another."""
    exposed_as = f"torch.{vendor}"
    told = _told(simulated, vendor)[exposed_as]
    functions = {
        name: entry
        for name, entry in surfaces.names(vendor, exposed_as).items()
        if entry["kind"] == "function" and "condition" not in entry and "bound_by" not in entry
    }
    assert functions.keys() - told.keys() == set()
    problems = [
        p for name, entry in functions.items() for p in _differences(name, told[name]["params"], entry)
    ]
    assert not problems, "\n".join(problems)


def test_a_wrong_name_is_found() -> None:
    told = {"torch.mlu": {"no_such_name": {"kind": "attribute"}}}
    assert list(_problems("mlu", told)) == ["torch.mlu.no_such_name: not in the surface file"]


def test_a_wrong_parameter_is_found() -> None:
    parameter = {"name": "index", "kind": KINDS["arg"], "default": None}
    told = {"torch.mlu": {"set_device": {"kind": "function", "params": [parameter]}}}
    assert [problem.partition(":")[0] for problem in _problems("mlu", told)] == ["torch.mlu.set_device"]


def _told(simulated: Callable[..., Any], vendor: str) -> Any:
    return simulated(vendor, "accel_simulated.checks.offered:tell", vendor).answer


def _problems(vendor: str, told: dict[str, dict[str, Any]]) -> Iterator[str]:
    for exposed_as, offers in told.items():
        entries = surfaces.names(vendor, exposed_as)
        dotted = {name.partition(".")[0] for name in entries if "." in name}
        for name, offer in offers.items():
            if name in entries:
                yield from _differences(f"{exposed_as}.{name}", offer.get("params"), entries[name])
                yield from _method_differences(
                    f"{exposed_as}.{name}", offer.get("methods", {}), entries[name]
                )
            elif name not in ASKED_BY_TORCH | dotted:
                yield f"{exposed_as}.{name}: not in the surface file"


def _method_differences(name: str, methods: dict[str, Any], entry: dict[str, Any]) -> Iterator[str]:
    known = {method["name"]: method for method in entry.get("methods", [])}
    if not known:
        return  # the surface file does not tell this class's methods
    for method, parameters in methods.items():
        if method not in known:
            yield f"{name}.{method}: not in the surface file"
        else:
            yield from _differences(f"{name}.{method}", parameters, known[method])


def _differences(name: str, parameters: list[dict[str, Any]] | None, entry: dict[str, Any]) -> Iterator[str]:
    if parameters is None:
        return
    if "params" in entry:
        theirs = [(p["name"], KINDS[p["kind"]], _default(p.get("default"))) for p in entry["params"]]
        unknown = {name for name, _, default in theirs if default is AN_EXPRESSION}
        ours = [
            (
                p["name"],
                p["kind"],
                AN_EXPRESSION if p["name"] in unknown and p["default"] else _default(p["default"]),
            )
            for p in parameters
        ]
        if ours != theirs:
            yield f"{name}: has {ours}, the vendor's {theirs}"
    for shape in entry.get("shapes", ()):
        if shape["as"] == "call" and not _takes(parameters, shape):
            yield f"{name}: does not take the call {shape}"


def _default(source: str | None) -> Any:
    """A default as a value where it is a literal: the surface files hold source text."""
    if source is None:
        return "none given"
    try:
        return ast.literal_eval(source)
    except ValueError:
        return AN_EXPRESSION


def _takes(parameters: list[dict[str, Any]], shape: dict[str, Any]) -> bool:
    """Whether a call with so many arguments and those keywords fits; `**` stands for any keywords."""
    kinds = [parameter["kind"] for parameter in parameters]
    names = {parameter["name"] for parameter in parameters}
    places = [p for p in parameters if p["kind"] == KINDS["arg"]]
    needed = [p["name"] for p in places[shape["args"] :] if p["default"] is None]
    keywords = set(shape.get("keywords", ())) - {"**"}
    enough = shape["args"] <= len(places) or KINDS["varargs"] in kinds
    return enough and keywords >= set(needed) and (keywords <= names or KINDS["varkw"] in kinds)
