"""Reading a plugin's source: every vendor name it uses, and every call it makes of one.

What is followed: `self.device_module`, `torch.<device>`, the vendor's package however it is imported, and
what a function assigns from one of these. A name counts as looked for where `hasattr`, or `getattr` with a
default, names it in the same function; an import where an `ImportError` is caught around it.
"""

import ast
from typing import Any, NamedTuple

from accel_tests.surfaces import Entry

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Use(NamedTuple):
    """One vendor name in a source: the node that spells it, and the call of it."""

    path: str
    node: Any
    tested: bool
    call: ast.Call | None


def violations(tree, surface, device):
    """What is wrong with the names and calls in a module of a plugin for `torch.<device>`."""
    return [
        said for use in uses(tree, surface, device) if (said := _wrong(use, surface))
    ]


def _wrong(use, surface):
    entry, place = _entry(surface, use.path), f"line {use.node.lineno}: {use.path}"
    if use.tested:
        return ""
    if use.path.endswith(".?"):
        return f"{place}: a name that only run time knows: give getattr a default"
    if entry is None:
        return f"{place} is not in the vendor's surface"
    if entry.condition or surface.usage_only:
        return f"{place} is there only where {entry.condition or 'it was seen in use'}: look for it first"
    if use.call is None:
        return ""
    arguments, keywords = use.call.args, [keyword.arg for keyword in use.call.keywords]
    positional = sum(not isinstance(argument, ast.Starred) for argument in arguments)
    misfit = entry.misfit(
        positional,
        filter(None, keywords),
        positional < len(arguments) or None in keywords,
    )
    return f"{place} does not fit {misfit}" if misfit else ""


def _entry(surface, path):
    if path in surface.modules or surface.leads_to(path):
        return Entry(path, "module")
    holder, _, name = path.rpartition(".")
    if holder in surface.modules:
        return surface.modules[holder].get(name)
    found = _entry(surface, holder) if holder else None
    return found.members.get(name) if found else None


def uses(tree, surface, device):
    """Every use of a name below a module of the surface."""
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    inner = {
        id(node)
        for function in functions
        for node in ast.walk(function)
        if node is not function
    }
    outside = [node for node in ast.walk(tree) if id(node) not in inner]
    for nodes in (outside, *(list(ast.walk(function)) for function in functions)):
        scope = _Scope(nodes, device)
        found = [
            (path, node)
            for node in nodes
            for path in scope.named(node)
            if _is_vendors(path, surface)
        ]
        looked_for = {path for path, node in found if scope.looks(node)}
        calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
        for path, node in found:
            yield Use(
                path,
                node,
                path in looked_for or id(node) in scope.guarded,
                calls.get(id(node)),
            )


def _is_vendors(path, surface):
    top, _, rest = path.partition(".")
    holder = path.rpartition(".")[0]
    while holder not in surface.modules and holder:
        holder = holder.rpartition(".")[0]
    return bool(holder) or (bool(rest) and top in surface.packages)


class _Scope:
    """What the names of one function stand for."""

    def __init__(self, nodes, device):
        self.own = {
            "self.device_module": f"torch.{device}",
            "self._torch": "torch",
            "torch": "torch",
        }
        self.guarded = set()
        for node in nodes:
            target = (
                node.targets[0]
                if isinstance(node, ast.Assign)
                else getattr(node, "target", None)
            )
            if isinstance(node, ast.ImportFrom):
                self.own |= {
                    a.asname or a.name: f"{node.module}.{a.name}" for a in node.names
                }
            elif isinstance(node, ast.Import):
                self.own |= {a.asname: a.name for a in node.names if a.asname}
                self.own |= {
                    top: top for a in node.names if (top := a.name.partition(".")[0])
                }
            elif isinstance(target, ast.Name) and (
                path := self.path(getattr(node, "value", None))
            ):
                self.own[target.id] = path
            catches = getattr(node, "items", []) + getattr(node, "handlers", [])
            if any(
                "ImportError" in ast.unparse(each) or "NotFound" in ast.unparse(each)
                for each in catches
            ):
                self.guarded |= {
                    id(inner) for line in node.body for inner in ast.walk(line)
                }

    def path(self, node):
        """From a top-level package to what the expression is; empty where no name leads there."""
        if node is None:
            return ""
        if isinstance(node, ast.NamedExpr):
            return self.path(node.value)
        if isinstance(node, ast.Call) and node.args:
            first, function = node.args[0], ast.unparse(node.func).rpartition(".")[2]
            if function in ("getattr", "hasattr") and (base := self.path(first)):
                return f"{base}.{getattr(node.args[1], 'value', '?')}"
            return (
                str(getattr(first, "value", "")) if function == "import_module" else ""
            )
        if (text := ast.unparse(node)) in self.own:
            return self.own[text]
        base = self.path(node.value) if isinstance(node, ast.Attribute) else ""
        return f"{base}.{node.attr}" if base else ""

    def named(self, node):
        """The paths of what a node spells itself."""
        if isinstance(node, ast.ImportFrom):
            return [f"{node.module}.{alias.name}" for alias in node.names]
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.Attribute) and ast.unparse(node) in self.own:
            return []
        return [self.path(node)] if isinstance(node, (ast.Attribute, ast.Call)) else []

    @staticmethod
    def looks(node):
        """Whether it is `hasattr`, or `getattr` with a default."""
        if not isinstance(node, ast.Call):
            return False
        return ast.unparse(node.func) == "hasattr" or len(node.args) > 2
