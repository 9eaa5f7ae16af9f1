"""What vendors' modules hold: accel-simulated's `surfaces/*.json`, as names to resolve and calls to check."""

import inspect
import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

FOLDER = (
    Path(__file__).parents[3] / "packages/accel_simulated/src/accel_simulated/surfaces"
)
#: Surfaces of packages that add to torch's own module of the device, by the package that does.
ADDITIONS = {
    "xpu_ipex": "intel_extension_for_pytorch",
    "xpu_external": "intel_extension_for_deepspeed",
}


@dataclass(frozen=True)
class Entry:
    """One name: a function, class, attribute or module."""

    path: str
    kind: str
    #: How it is called; `None` where nobody has read that.
    signature: inspect.Signature | None = None
    #: Of a class: its methods and attributes.
    members: "dict[str, Entry]" = field(default_factory=dict)
    #: When the name is there; empty for always.
    condition: str = ""
    #: Where only its use is known: each call that was seen, as the number of arguments and the keywords.
    calls: tuple[tuple[int, frozenset[str]], ...] = ()

    def misfit(self, positional, keywords, more=False):
        """Why such a call does not fit, or nothing; `more`: there may be further arguments."""
        if self.signature is None or self.kind not in ("function", "class"):
            return ""
        bind = self.signature.bind_partial if more else self.signature.bind
        try:
            bind(*[None] * positional, **dict.fromkeys(keywords))
        except TypeError as error:
            return f"{self.path}{self.signature}: {error}"
        return ""


@dataclass(frozen=True)
class Surface:
    """The modules of one or several surface files, by every name under which they can be imported."""

    modules: dict[str, dict[str, Entry]]
    #: Top-level vendor packages, without torch itself.
    packages: frozenset[str]
    #: Known from use alone: every name must be looked for before it is used.
    usage_only: bool = False

    def __or__(self, other):
        modules = {path: dict(names) for path, names in self.modules.items()}
        for path, names in other.modules.items():
            modules[path] = {**names, **modules.get(path, {})}
        return Surface(
            modules, self.packages | other.packages, self.usage_only or other.usage_only
        )

    def leads_to(self, path):
        """Whether modules of the surface lie below `path`."""
        return any(module.startswith(f"{path}.") for module in self.modules)


def files():
    """The names of the surface files."""
    return (path.stem for path in sorted(FOLDER.glob("*.json")))


@lru_cache
def load(name):
    """The surface in `surfaces/<name>.json`."""
    full = _read(name)
    modules = {}
    for path, module in full["modules"].items():
        names = {
            name: _entry(f"{path}.{name}", written)
            for name, written in module["names"].items()
        }
        modules[path] = names
        if "also" in module:
            modules[module["also"]] = names
    source = full["source"]
    tops = {
        source["package"].replace("-", "_"),
        *(path.partition(".")[0] for path in modules),
    }
    return Surface(modules, frozenset(tops - {"torch"}), source["evidence"] == "usage")


def users_names(name):
    """The modules of `surfaces/<name>.json` by what users call them alone, such as `"torch.mlu"`."""
    modules = load(name).modules
    return {path: modules[path] for path in _read(name)["modules"]}


def _read(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def for_backend(backend):
    """The surface that `backend` drives; `None` where there is none."""
    tops = {module.partition(".")[0] for module in backend.vendor_imports}
    names = [name for name, package in ADDITIONS.items() if package in tops]
    names += [name for name in files() if name == backend.device_type]
    surface = None
    for name in names:
        surface = load(name) if surface is None else surface | load(name)
    return surface


def _entry(path, written):
    if isinstance(written, str):
        written = (
            {"kind": written}
            if written in ("attribute", "module")
            else {"function": written}
        )
    more = {
        "condition": written.get("if", ""),
        "calls": tuple(
            (count, frozenset(keywords))
            for count, *keywords in written.get("calls", ())
        ),
    }
    if "kind" in written:
        return Entry(path, written["kind"], **more)
    if "function" in written:
        text = written["function"]
        plain = text[text.index("(") :] if "(" in text else text
        return Entry(path, "function", _signature(plain), **more)
    members = {
        name: _entry(f"{path}.{name}", each)
        for name, each in written.get("methods", {}).items()
    }
    signature = _signature(written["class"])
    return Entry(path, "class", signature, members, **more)


def _signature(text):
    if text == "?":
        return None
    namespace = {}
    exec(
        f"def f{text}: ...", namespace
    )  # our own files, in the form of Python's parameter lists
    return inspect.signature(namespace["f"])
