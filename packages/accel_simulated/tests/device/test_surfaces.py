"""The simulated modules have no name and no parameter that the vendor's surface file has not."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_tests import surfaces
from accel_tests.surfaces import Entry

from accel_simulated import OWN_DEVICES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly(reason="promises of the simulator: the vendors' names and signatures"),
]

#: What torch itself asks of every device module, whether or not a surface file has it.
ASKED_BY_TORCH = {
    "_initialized",
    "_is_in_bad_fork",
    "_lazy_init",
    "get_amp_supported_dtype",
}
#: `inspect`'s words for kinds of parameters.
EITHER_WAY = inspect.Parameter.POSITIONAL_OR_KEYWORD.description
ANY_PLACES = inspect.Parameter.VAR_POSITIONAL.description
ANY_KEYWORDS = inspect.Parameter.VAR_KEYWORD.description
AN_EXPRESSION = "an expression"
OURS = [name for name, vendor in OWN_DEVICES.items() if vendor.package != "torch" and name != "acme"]


@pytest.mark.parametrize("vendor", OURS)
def test_offers_nothing_else(vendor: str, life: Callable[[str], Any]) -> None:
    problems = list(_problems(vendor, life(vendor)["offered"]))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("vendor", ["xpu", "cuda", "mps"])
def test_torchs_own_modules_are_whole(vendor: str, life: Callable[[str], Any]) -> None:
    """Stand-ins lie below torch's Python: nothing of it is lost, and no parameter is another."""
    exposed_as = f"torch.{vendor}"
    told = life(vendor)["offered"][exposed_as]
    names = surfaces.users_names(vendor)[exposed_as]
    functions = {
        name: entry for name, entry in names.items() if entry.kind == "function" and not entry.condition
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
    parameter = {"name": "index", "kind": EITHER_WAY, "default": None}
    told = {"torch.mlu": {"set_device": {"kind": "function", "params": [parameter]}}}
    assert [problem.partition(":")[0] for problem in _problems("mlu", told)] == ["torch.mlu.set_device"]


def _problems(vendor: str, told: dict[str, dict[str, Any]]) -> Iterator[str]:
    modules = surfaces.users_names(vendor)
    for exposed_as, offers in told.items():
        entries = modules[exposed_as]
        for name, offer in offers.items():
            if name in entries:
                yield from _differences(f"{exposed_as}.{name}", offer.get("params"), entries[name])
                yield from _method_differences(
                    f"{exposed_as}.{name}", offer.get("methods", {}), entries[name]
                )
            elif name not in ASKED_BY_TORCH and f"{exposed_as}.{name}" not in modules:
                yield f"{exposed_as}.{name}: not in the surface file"


def _method_differences(name: str, methods: dict[str, Any], entry: Entry) -> Iterator[str]:
    if not entry.members:
        return  # the surface file does not tell this class's methods
    for method, parameters in methods.items():
        if method not in entry.members:
            yield f"{name}.{method}: not in the surface file"
        else:
            yield from _differences(f"{name}.{method}", parameters, entry.members[method])


def _differences(name: str, parameters: list[dict[str, Any]] | None, entry: Entry) -> Iterator[str]:
    if parameters is None:
        return
    if entry.calls:
        for places, keywords in entry.calls:
            if not _takes(parameters, places, keywords):
                yield f"{name}: does not take the call with {places} arguments and {sorted(keywords)}"
    elif entry.signature is not None:
        theirs = [(p.name, p.kind.description, _default(p)) for p in entry.signature.parameters.values()]
        unknown = {name for name, _, default in theirs if default is AN_EXPRESSION}
        ours = [
            (
                p["name"],
                p["kind"],
                AN_EXPRESSION if p["name"] in unknown and p["default"] else _literal(p["default"]),
            )
            for p in parameters
        ]
        if ours != theirs:
            yield f"{name}: has {ours}, the vendor's {theirs}"


def _default(parameter: inspect.Parameter) -> Any:
    """A default of the vendor's; of one that is no literal a surface file tells only that it is there."""
    if parameter.default is parameter.empty:
        return "none given"
    return AN_EXPRESSION if parameter.default is ... else parameter.default


def _literal(source: str | None) -> Any:
    """Our default as a value where it is a literal: it comes as source text."""
    if source is None:
        return "none given"
    try:
        return ast.literal_eval(source)
    except ValueError:
        return AN_EXPRESSION


def _takes(parameters: list[dict[str, Any]], places: int, keywords: frozenset[str]) -> bool:
    """Whether a call with so many arguments and those keywords fits; `**` stands for any keywords."""
    kinds = [parameter["kind"] for parameter in parameters]
    names = {parameter["name"] for parameter in parameters}
    either = [p for p in parameters if p["kind"] == EITHER_WAY]
    needed = {p["name"] for p in either[places:] if p["default"] is None}
    named = keywords - {"**"}
    enough = places <= len(either) or ANY_PLACES in kinds
    return enough and named >= needed and (named <= names or ANY_KEYWORDS in kinds)
