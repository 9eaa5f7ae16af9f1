"""Reading a plugin's source: every vendor name it uses, and every call it makes of one.

What is followed: `self.device_module`, `torch.<device>`, the vendor's package however it is imported, what
is assigned from one of these, and what `getattr` and `_lookup` give. A name counts as looked for where
`hasattr`, `getattr` with a default, `_lookup` or `_vendor` names it in the same class (or in the same
module, outside classes); an import where an `ImportError` is caught around it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from accel_tests.surfaces import Entry, Surface

__all__ = ["Report", "Use", "scan"]

_IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError"}


@dataclass(frozen=True)
class Use:
    """One name or call of the vendor's in a source."""

    path: str
    line: int
    #: Looked for before it is used, so it may be absent.
    tested: bool
    #: Where the name ends, for tests that misspell it: line and column.
    end: tuple[int, int]
    #: Of a call: where its arguments end.
    is_call: bool = False
    takes_anything: bool = False


@dataclass
class Report:
    """What one source uses, and what is wrong with it."""

    uses: list[Use] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Module:
    path: str


@dataclass(frozen=True)
class _Instance:
    of: Entry


_Value = _Module | _Instance | Entry | None


def scan(source: str, surface: Surface, device: str, name: str = "<plugin>") -> Report:
    """Read `source`, a module of a plugin for `torch.<device>`."""
    tree = ast.parse(source)
    first = _Reader(surface, device, name, {})  # finds what is looked for; its verdicts come too early
    first.read(tree)
    second = _Reader(surface, device, name, first.tested)
    second.read(tree)
    return second.report


class _Reader:
    def __init__(self, surface: Surface, device: str, name: str, tested: dict[str, set[str]]) -> None:
        self.surface, self.device, self.file = surface, device, name
        self.known_tests = tested
        self.tested: dict[str, set[str]] = {}
        self.report = Report()
        self.scope = ""
        self.names: dict[str, _Value] = {}
        self.attributes: dict[str, _Value] = {}
        self.guards = 0

    def read(self, node: ast.AST) -> None:
        handler = getattr(self, f"_read_{type(node).__name__}", None)
        if handler is not None:
            handler(node)
        elif isinstance(node, ast.expr):
            self.value(node)
        else:
            for child in ast.iter_child_nodes(node):
                self.read(child)

    # Statements

    def _read_ClassDef(self, node: ast.ClassDef) -> None:
        before, self.scope, self.attributes = (self.scope, self.attributes), node.name, {}
        for child in [*node.bases, *node.decorator_list, *node.body]:
            self.read(child)
        self.scope, self.attributes = before

    def _read_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = self.names
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self.names = {**before, **{argument.arg: None for argument in every}}
        for child in [*node.decorator_list, *filter(None, arguments.defaults), *node.body]:
            self.read(child)
        self.names = before

    _read_AsyncFunctionDef = _read_FunctionDef

    def _read_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._bind(target, value)

    def _read_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind(node.target, self.value(node.value))

    def _bind(self, target: ast.expr, value: _Value) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute) and _is_self(target.value):
            self.attributes[target.attr] = value
        else:
            self.value(target)

    def _read_With(self, node: ast.With) -> None:
        guarded = any(_suppresses_import_errors(item.context_expr) for item in node.items)
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, value)
        self._block(node.body, guarded)

    def _read_Try(self, node: ast.Try) -> None:
        caught = {name for handler in node.handlers for name in _class_names(handler.type)}
        self._block(node.body, bool(caught & _IMPORT_ERRORS))
        self._block([*node.handlers, *node.orelse, *node.finalbody], False)

    def _block(self, body: Iterable[ast.AST], guarded: bool) -> None:
        self.guards += guarded
        for child in body:
            self.read(child)
        self.guards -= guarded

    def _read_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            value = self._imported(alias.name, alias)
            top = alias.name.partition(".")[0]
            self.names[alias.asname or top] = value if alias.asname else self._imported(top, alias)

    def _read_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module:
            base = self._imported(node.module, node)
            for alias in node.names:
                self.names[alias.asname or alias.name] = self._attribute(
                    base, alias.name, alias, self.guards > 0
                )

    # Expressions

    def value(self, node: ast.expr | None) -> _Value:
        """What the expression is, as far as it is the vendor's; its uses are noted on the way."""
        if node is None:
            return None
        handler = getattr(self, f"_value_{type(node).__name__}", None)
        if handler is not None:
            found: _Value = handler(node)
            return found
        for child in ast.iter_child_nodes(node):
            self.read(child)
        return None

    def _value_Name(self, node: ast.Name) -> _Value:
        return self.names.get(node.id)

    def _value_Attribute(self, node: ast.Attribute) -> _Value:
        if _is_self(node.value):
            own: dict[str, _Value] = {
                "device_module": _Module(f"torch.{self.device}"),
                "_torch": _Module("torch"),
            }
            return own.get(node.attr) or self.attributes.get(node.attr)
        return self._attribute(self.value(node.value), node.attr, node)

    def _value_NamedExpr(self, node: ast.NamedExpr) -> _Value:
        value = self.value(node.value)
        self._bind(node.target, value)
        return value

    def _value_BoolOp(self, node: ast.BoolOp) -> _Value:
        return _first([self.value(each) for each in node.values])

    def _value_IfExp(self, node: ast.IfExp) -> _Value:
        self.value(node.test)
        return _first([self.value(node.body), self.value(node.orelse)])

    def _value_Subscript(self, node: ast.Subscript) -> _Value:
        if _text(node.value) == "sys.modules" and (path := _constant(node.slice)):
            return self._imported(path, node.slice)
        if _text(node.value) == "self._vendor" and (name := _constant(node.slice)):
            self._attribute(_Module(f"torch.{self.device}"), name, node.slice, tested=True)
            return None  # the vendor's function, or what stands in for it
        self.value(node.value)
        self.value(node.slice)
        return None

    def _value_Call(self, node: ast.Call) -> _Value:
        function = _text(node.func)
        first = _constant(node.args[0]) if node.args else None
        if function in ("getattr", "hasattr") and len(node.args) >= 2:
            base, name = self.value(node.args[0]), _constant(node.args[1])
            for argument in node.args[2:]:
                self.value(argument)
            tested = function == "hasattr" or len(node.args) > 2
            if name is not None:
                found = self._attribute(base, name, node.args[1], tested)
                return None if function == "hasattr" else found
            if isinstance(base, (_Module, Entry)) and not tested:
                self._violation(node, "a name that only run time knows: give getattr a default")
            return None
        if first and function.rpartition(".")[2] in ("import_module", "__import__"):
            return self._imported(first, node.args[0])
        if first and function == "sys.modules.get":
            return self._imported(first, node.args[0], tested=True)
        if first and function == "self._lookup":
            return self._attribute(_Module(f"torch.{self.device}"), first, node.args[0], tested=True)
        called = self.value(node.func)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.value(argument.value if isinstance(argument, ast.Starred) else argument)
        return self._called(called, node)

    def _called(self, called: _Value, node: ast.Call) -> _Value:
        if not isinstance(called, Entry):
            return None
        more = any(isinstance(a, ast.Starred) for a in node.args) or any(not k.arg for k in node.keywords)
        positional = sum(not isinstance(argument, ast.Starred) for argument in node.args)
        misfit = called.misfit(positional, [k.arg for k in node.keywords if k.arg], more)
        if misfit:
            self._violation(node, f"does not fit {misfit}")
        signature = called.signature
        anything = signature is None or any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        end = (node.end_lineno or 0, (node.end_col_offset or 0) - 1)
        self.report.uses.append(Use(f"{called.path}()", node.lineno, False, end, True, anything))
        return _Instance(called) if called.kind == "class" else None

    # Names

    def _imported(self, path: str, node: ast.AST, tested: bool = False) -> _Value:
        if path == "torch" or path in self.surface.modules or self.surface.leads_to(path):
            return _Module(path)
        top, _, rest = path.partition(".")
        parent, _, name = path.rpartition(".")
        ours = top in self.surface.packages or parent in self.surface.modules
        if not ours or not rest:
            return None
        return self._attribute(_Module(parent), name, node, tested or self.guards > 0)

    def _attribute(self, base: _Value, name: str, node: Any, tested: bool = False) -> _Value:
        """`base.name`, noted as a use where `base` is the vendor's."""
        if base is None or name.startswith("__"):
            return None
        if isinstance(base, _Module) and not self._is_vendors(base.path):
            path = f"{base.path}.{name}"  # torch's own: of interest only where it leads to a vendor's module
            return _Module(path) if path in self.surface.modules or self.surface.leads_to(path) else None
        entry, path, may_be_there = self._resolve(base, name)
        if tested:
            self.tested.setdefault(self.scope, set()).add(path)
        tested = tested or path in self.known_tests.get(self.scope, ())
        self.report.uses.append(Use(path, node.lineno, tested, _end_of_name(node)))
        if entry is None and not may_be_there and not tested:
            self._violation(node, f"{path} is not in the vendor's surface")
        elif entry is not None and entry.condition and not tested:
            self._violation(node, f"{path} is there only where {entry.condition}: look for it first")
        elif self.surface.usage_only and not tested and not isinstance(base, _Instance):
            self._violation(node, f"{path} is known from use alone: look for it first")
        if entry is not None and entry.kind == "module":
            return _Module(path)
        return entry if entry is None or entry.kind in ("function", "class") else None

    def _resolve(self, base: _Module | _Instance | Entry, name: str) -> tuple[Entry | None, str, bool]:
        """The entry, its path, and whether it may be there though the surface does not tell."""
        if isinstance(base, _Module):
            path = f"{base.path}.{name}"
            entry = self.surface.modules.get(base.path, {}).get(name)
            if entry is None and (path in self.surface.modules or self.surface.leads_to(path)):
                entry = Entry(path, "module")
            return entry, path, False
        holder = base.of if isinstance(base, _Instance) else base
        return holder.members.get(name), f"{holder.path}.{name}", holder.kind != "class" or holder.open

    def _is_vendors(self, path: str) -> bool:
        if path in self.surface.modules or path.partition(".")[0] in self.surface.packages:
            return True
        return path.rpartition(".")[0] in self.surface.modules  # a submodule that no surface describes

    def _violation(self, node: Any, what: str) -> None:
        self.report.violations.append(f"{self.file}:{node.lineno}: {what}")


def _first(values: list[_Value]) -> _Value:
    for value in values:
        if value is not None:
            return value
    return None


def _end_of_name(node: Any) -> tuple[int, int]:
    """Line and column after the last letter of the name that `node` spells."""
    if isinstance(node, ast.alias):
        return node.lineno, node.col_offset + len(node.name)
    if isinstance(node, ast.ImportFrom):
        return node.lineno, node.col_offset + len(f"from {node.module}")
    return node.end_lineno, node.end_col_offset - isinstance(node, ast.Constant)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _constant(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _text(node: ast.expr) -> str:
    """`sys.modules.get` for a plain chain of names; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (inner := _text(node.value)):
        return f"{inner}.{node.attr}"
    return ""


def _class_names(node: ast.expr | None) -> Iterator[str]:
    items = node.elts if isinstance(node, ast.Tuple) else [node] if node is not None else []
    return (_text(item).rpartition(".")[2] for item in items)


def _suppresses_import_errors(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or _text(node.func).rpartition(".")[2] != "suppress":
        return False
    return any(name in _IMPORT_ERRORS for argument in node.args for name in _class_names(argument))
