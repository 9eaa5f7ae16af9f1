"""What a core promises to plugins, as plain data, and whether a plugin's function fits it.

Run as a program it describes the accel_core that is first on its `sys.path`, another release's: so it imports
nothing of ours but what every release has, `accel_core`'s public names and `accel_core.hookspecs`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["called", "describe", "members", "narrower", "parsed", "written"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)


def describe() -> dict[str, Any]:
    """The file, version, API level, public names, hooks, fields of `Backend` and members of accelerators.

    Functions are written as `written` does; inner members, whose names begin with `_`, are among them. torch
    is not imported.
    """
    import accel_core
    from accel_core import hookspecs

    return {
        "file": str(accel_core.__file__),
        "version": accel_core.__version__,
        "api_level": accel_core.API_LEVEL,
        "names": sorted(vars(accel_core)["__all__"]),
        "hooks": {
            name: written(function)
            for name, function in sorted(vars(hookspecs).items())
            if inspect.isfunction(function) and hasattr(function, "accel_spec")
        },
        "fields": _fields(accel_core.Backend),
        "members": {
            name: written(found)
            for name, found in {
                **members(accel_core.Accelerator),
                **members(accel_core.TorchAccelerator),
            }.items()
        },
    }


def _fields(record: type) -> dict[str, str]:
    """The fields of a dataclass, each with its type and default: not every release's has a signature."""
    defaults = vars(record)
    return {
        name: _annotation(annotation) + (f" = {_value(defaults[name])}" if name in defaults else "")
        for name, annotation in inspect.get_annotations(record).items()
    }


def members(kind: type) -> dict[str, object]:
    """What a class and its bases define, by name and as it stands there; of Python's own names `__init__`.

    Bases that Python brings do not count.
    """
    bases = [
        base for base in kind.__mro__ if base.__module__.partition(".")[0] not in sys.stdlib_module_names
    ]
    names = {name for base in bases for name in vars(base)}
    kept = sorted(name for name in names if name == "__init__" or not name.startswith("__"))
    return {name: inspect.getattr_static(kind, name) for name in kept}


def written(found: object) -> str:
    """A function as `"(self, device_index: Device = None) -> int"`; anything else as `"attribute -> int"`."""
    function = found.__func__ if isinstance(found, staticmethod | classmethod) else found
    if not callable(function) or isinstance(function, type):
        getter = getattr(found, "fget", getattr(found, "func", None))  # of a property, of a cached one
        returns = getattr(getter, "__annotations__", {}).get("return")
        return "attribute" + (f" -> {_annotation(returns)}" if returns else "")
    return called(function)


def called(function: Any) -> str:
    """How a function or a class is called, written in the same way."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # written in C, without saying what it takes
        return "(*args, **kwargs)"
    text = "".join(_list(signature.parameters))
    returns = signature.return_annotation
    return f"({text})" + (f" -> {_annotation(returns)}" if returns is not signature.empty else "")


def _list(parameters: Mapping[str, inspect.Parameter]) -> Iterator[str]:
    """The parameters with the marks between their kinds."""
    before, starred, comma = None, False, ""
    for parameter in parameters.values():
        if before is inspect.Parameter.POSITIONAL_ONLY and parameter.kind is not before:
            yield f"{comma}/"
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            yield f"{comma}*"
            starred, comma = True, ", "
        starred = starred or parameter.kind is inspect.Parameter.VAR_POSITIONAL
        yield f"{comma}{_parameter(parameter)}"
        before, comma = parameter.kind, ", "
    if before is inspect.Parameter.POSITIONAL_ONLY:
        yield ", /"


def _parameter(parameter: inspect.Parameter) -> str:
    stars: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = f"{stars.get(parameter.kind, '')}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    return text if parameter.default is parameter.empty else f"{text} = {_value(parameter.default)}"


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _value(default: object) -> str:
    """The default as Python reads it; `...` for an object that it cannot read."""
    text = repr(default)
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return "..."
    return text


@functools.cache
def parsed(text: str) -> inspect.Signature | None:
    """The signature that `written` wrote, its defaults and annotations as text; `None` for an attribute."""
    if not text.startswith("("):
        return None
    function = ast.parse(f"def _{text}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    places = [*given.posonlyargs, *given.args]
    absent: list[ast.expr | None] = [None] * (len(places) - len(given.defaults))
    found = [
        _read(argument, inspect.Parameter.POSITIONAL_OR_KEYWORD, default)
        for argument, default in zip(places, [*absent, *given.defaults], strict=True)
    ]
    found[: len(given.posonlyargs)] = [
        parameter.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        for parameter in found[: len(given.posonlyargs)]
    ]
    if given.vararg:
        found.append(_read(given.vararg, inspect.Parameter.VAR_POSITIONAL, None))
    found += [
        _read(argument, inspect.Parameter.KEYWORD_ONLY, default)
        for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        found.append(_read(given.kwarg, inspect.Parameter.VAR_KEYWORD, None))
    return inspect.Signature(found)


def _read(argument: ast.arg, kind: Any, default: ast.expr | None) -> inspect.Parameter:
    return inspect.Parameter(
        argument.arg,
        kind,
        default=inspect.Parameter.empty if default is None else ast.unparse(default),
        annotation=ast.unparse(argument.annotation) if argument.annotation else inspect.Parameter.empty,
    )


def narrower(ours: inspect.Signature, theirs: inspect.Signature) -> Iterator[str]:
    """What a function of signature `ours` can be called with, and one of `theirs` cannot."""
    taken = theirs.parameters
    kinds = {parameter.kind for parameter in taken.values()}
    places = [name for name, parameter in taken.items() if parameter.kind in _POSITIONAL]
    for place, (name, parameter) in enumerate(ours.parameters.items()):
        if name == "self":
            continue
        by_place = parameter.kind in _POSITIONAL and inspect.Parameter.VAR_POSITIONAL not in kinds
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            if parameter.kind not in kinds:
                yield f"it does not take {parameter}"
        elif name not in taken:
            if inspect.Parameter.VAR_KEYWORD not in kinds or by_place:
                yield f"it takes no {name}"
        elif parameter.default is not parameter.empty and taken[name].default is inspect.Parameter.empty:
            yield f"{name} has no default"
        elif by_place and places[place : place + 1] != [name]:
            yield f"{name} is not its argument number {place}"
    for name, parameter in taken.items():
        if name not in ours.parameters and parameter.kind in _NAMED and parameter.default is parameter.empty:
            yield f"{name} must be given"


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(describe())}\n")
