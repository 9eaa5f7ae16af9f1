"""Write the surfaces of accel-simulated from the surface files that `extract_surface.py` made: names and
signatures only.

    python lab/compact_surfaces.py ../shared/vendor_surfaces

Of several versions of one module the first, newest one is kept.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

HERE = (
    Path(__file__).parents[1] / "packages/accel_simulated/src/accel_simulated/surfaces"
)
#: torch's own `torch.cpu`, which no plugin drives.
LEFT_OUT = ("cpu",)


def compact(full: dict[str, Any]) -> dict[str, Any]:
    """One surface file in the form that `accel_tests.surfaces` reads."""
    header = full["header"]
    usage = header["evidence"] == "usage"
    modules: dict[str, Any] = {}
    for module in full["modules"]:
        path = module["exposed_as"].partition(" ")[
            0
        ]  # "torch.mlu (r1.22)" is an older version
        names = _merged(_usage(e) if usage else _entry(e) for e in module["names"])
        if module.get(
            "bases"
        ):  # a class that stands in the file as if it were a module
            path, _, kind = path.rpartition(".")
            names = {kind: {"class": "?", "open": True, "methods": names}}
        kept = modules.setdefault(path, {"names": {}})
        if not kept["names"]:
            kept["names"] = names
            if module["module"] != path and not module.get("bases"):
                kept["also"] = module["module"]
    for path in list(modules):
        _resolve_aliases(modules[path]["names"])
        _nest(modules, path)
    keys = ("vendor", "package", "version", "commit", "evidence")
    return {"source": {k: header[k] for k in keys if header.get(k)}, "modules": modules}


def _merged(entries: Any) -> dict[str, Any]:
    """By name; of several under conditions, one that is always there, else the last."""
    found: dict[str, Any] = {}
    for item in entries:
        if item and ("if" not in item[1] or "if" in found.get(item[0], ("if",))):
            found[item[0]] = item[1]
    return dict(sorted((name, _short(value)) for name, value in found.items()))


def _short(entry: dict[str, Any]) -> Any:
    """A name that has nothing but its signature or kind is written as that."""
    return (
        next(iter(entry.values())) if set(entry) in ({"function"}, {"kind"}) else entry
    )


def _entry(entry: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    if entry.get("imported", "at import") != "at import":
        return None  # a submodule that nobody has imported is no attribute
    kind = entry["kind"]
    short: dict[str, Any]
    if entry.get("property"):
        short = {"kind": "attribute"}
    elif kind == "function":
        short = {"function": _signature(entry)}
    elif kind == "class":
        short = {"class": _signature(entry)}
        if entry.get("alias_of"):
            short["alias"] = entry["alias_of"]
        if entry.get("bases", ["object"]) != ["object"] or not (
            "params" in entry or entry.get("methods")
        ):
            short["open"] = True  # what the base brings is not in the file
        if entry.get("methods"):
            short["methods"] = {m["name"]: _method(m) for m in entry["methods"]}
    else:
        short = {"kind": kind}
    if entry.get("condition"):
        short["if"] = entry["condition"]
    if entry.get("deprecated"):
        short["deprecated"] = True
    return entry["name"], short


def _method(method: dict[str, Any]) -> str:
    if "params" not in method:
        return "attribute"
    bound = next(
        (word for word in ("static", "class") if method.get(f"{word}method")), ""
    )
    return f"{bound}{_signature(method)}"


def _signature(entry: dict[str, Any]) -> str:
    if "params" not in entry:
        return "?"
    parts: list[str] = []
    before = ""
    for parameter in entry["params"]:
        kind = parameter["kind"]
        if before == "pos" and kind != "pos":
            parts.append("/")
        if kind == "kwonly" and before not in ("kwonly", "varargs"):
            parts.append("*")
        star = {"varargs": "*", "varkw": "**"}.get(kind, "")
        parts.append(
            f"{star}{parameter['name']}"
            + (f"={_default(parameter)}" if "default" in parameter else "")
        )
        before = kind
    return f"({', '.join(parts + ['/'] * (before == 'pos'))})"


def _default(parameter: dict[str, Any]) -> str:
    """The default where it is plain; of an expression only that there is one."""
    try:
        return repr(ast.literal_eval(parameter["default"]))
    except (ValueError, SyntaxError):
        return "..."


def _usage(entry: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """What calls have been seen of a function whose source nobody has read."""
    calls = [shape for shape in entry["shapes"] if shape["as"] == "call"]
    if not calls:
        used = any(shape["as"] == "attribute" for shape in entry["shapes"])
        return (entry["name"], {"kind": "attribute"}) if used else None
    keywords = sorted(
        {word for call in calls for word in call.get("keywords", ())} - {"**"}
    )
    parts = [
        f"a{place}=..." for place in range(1, max(call["args"] for call in calls) + 1)
    ]
    parts += (
        ["/"] * bool(parts)
        + ["*"] * bool(keywords)
        + [f"{word}=..." for word in keywords]
    )
    if any("**" in call.get("keywords", ()) for call in calls):
        parts.append("**kwargs")
    seen = [[call["args"], *sorted(call.get("keywords", ()))] for call in calls]
    each = {
        "calls": [call for place, call in enumerate(seen) if call not in seen[:place]]
    }
    if entry["kind"] == "class":
        return entry["name"], {"class": "?", "open": True, **each}
    return entry["name"], {"function": f"({', '.join(parts)})", **each}


def _resolve_aliases(names: dict[str, Any]) -> None:
    for name, entry in names.items():
        if isinstance(entry, dict) and (target := entry.pop("alias", None)) in names:
            names[name] = names[target]


def _nest(modules: dict[str, Any], path: str) -> None:
    """`amp.GradScaler` in `torch.sdaa` is `GradScaler` in `torch.sdaa.amp`."""
    names = modules[path]["names"]
    for dotted in [name for name in names if "." in name]:
        inner, _, name = dotted.rpartition(".")
        names[inner] = "module"
        modules.setdefault(f"{path}.{inner}", {"names": {}})["names"][name] = names.pop(
            dotted
        )


def write(source: Path, target: Path = HERE) -> list[Path]:
    """Compact every file of `source` into `target`."""
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted(source.glob("*.json")):
        if path.stem not in LEFT_OUT:
            written.append(target / path.name)
            text = json.dumps(
                compact(json.loads(path.read_text())), indent=0, separators=(",", ":")
            )
            written[-1].write_text(text + "\n")
    return written


if __name__ == "__main__":
    for file in write(Path(sys.argv[1])):
        print(f"{file.stat().st_size:7}  {file.name}")
