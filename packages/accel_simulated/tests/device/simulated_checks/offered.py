"""What simulated modules offer beside the vendors' surface files: each name and parameter that differs."""

import importlib
import inspect
import sys

from accel_tests import surfaces

from accel_simulated import VENDORS

#: What torch itself asks of every device module, whether or not a surface file has it.
ASKED_BY_TORCH = {
    "_initialized",
    "_is_in_bad_fork",
    "_lazy_init",
    "get_amp_supported_dtype",
}


def tell(vendor):
    """What differs, a line each: stand-ins lie below torch's own modules, of which nothing may be lost."""
    importlib.import_module(VENDORS[vendor].package)
    offered = {}
    for exposed_as in surfaces.users_names(vendor):
        module = _resolve(exposed_as)
        if module is not None:
            names = (
                name for name in vars(module) if not name.startswith(("__", "_sim_"))
            )
            offered[exposed_as] = {name: getattr(module, name) for name in names}
    return list(
        (_lost if VENDORS[vendor].package == "torch" else beyond)(vendor, offered)
    )


def _resolve(dotted):
    """The module by attributes, as users reach it: importing that name would run its file again."""
    head, *tail = dotted.split(".")
    found = sys.modules.get(head)
    for name in tail:
        found = getattr(found, name, None)
    return found


def _lost(vendor, offered):
    for name, entry in surfaces.users_names(vendor)[f"torch.{vendor}"].items():
        if entry.kind == "function" and not entry.condition:
            if name in offered[f"torch.{vendor}"]:
                yield from _differences(name, offered[f"torch.{vendor}"][name], entry)
            else:
                yield f"{name}: not there"


def beyond(vendor, offered):
    """What modules offer, by module and name, that the surface file has not, or has otherwise."""
    modules = surfaces.users_names(vendor)
    for exposed_as, values in offered.items():
        for name, value in values.items():
            where, entry = f"{exposed_as}.{name}", modules[exposed_as].get(name)
            if entry is not None:
                yield from _differences(where, value, entry)
                yield from _method_differences(where, value, entry)
            elif name not in ASKED_BY_TORCH and where not in modules:
                yield f"{where}: not in the surface file"


def _method_differences(where, value, entry):
    """Of the methods that we wrote: torch's base classes have more, as the vendors' have."""
    if not inspect.isclass(value) or not entry.members:
        return  # or the surface file does not tell this class's methods
    ours = [
        base
        for base in value.__mro__
        if base.__module__.partition(".")[0] not in ("torch", "builtins")
    ]
    methods = {
        name: method for base in reversed(ours) for name, method in vars(base).items()
    }
    for name, method in methods.items():
        if not inspect.isfunction(method) or name.startswith("_"):
            continue
        if name in entry.members:
            yield from _differences(
                f"{where}.{name}", method, entry.members[name], skipped=1
            )
        else:
            yield f"{where}.{name}: not in the surface file"


def _differences(name, value, entry, skipped=0):
    try:
        parameters = list(inspect.signature(value).parameters.values())[skipped:]
    except (TypeError, ValueError):
        return
    for places, keywords in entry.calls:
        try:
            inspect.Signature(parameters).bind(
                *[None] * places, **dict.fromkeys(keywords - {"**"})
            )
        except TypeError as error:
            yield f"{name}: does not take the call with {places} arguments and {sorted(keywords)}: {error}"
    if not entry.calls and entry.signature is not None:
        theirs = entry.signature.parameters
        # Of a default that is no literal a surface file tells only that it is there.
        unknown = [each.name for each in theirs.values() if each.default is ...]
        ours = [
            (
                p.name,
                p.kind,
                ... if p.name in unknown and p.default is not p.empty else p.default,
            )
            for p in parameters
        ]
        if ours != [(p.name, p.kind, p.default) for p in theirs.values()]:
            yield f"{name}: has {ours}, the vendor's {entry.signature}"
