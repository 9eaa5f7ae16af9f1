"""Find CUDA-specific names in source files, for code that a recorded run cannot show.

A run shows calls of torch. It does not show a comparison of two strings (`device.type == "cuda"`), a setting
such as `torch.backends.cudnn.benchmark = True`, or a name that torch reads only as part of another string.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from accel_simulated.detector import advice
from accel_simulated.detector.names import TYPES
from accel_simulated.detector.wrapping import is_device_check

__all__ = ["Finding", "find_cuda_names"]

#: CUDA, its libraries, and the functions of torch for autocast on CUDA whose names contain `gpu`.
_NAMES = "cuda|cudnn|cublas|cusparse|cufft|curand|nccl|nvtx|nvrtc|autocast_gpu"
_NAME = re.compile(_NAMES, re.IGNORECASE)
#: A name in a string: at the start of a word, as in `"rank:0/cuda:0"` or `"_cuda_init"`. In other words, such
#: as `"model_parallel_cuda_seed"`, it is usually a part of the program's own name.
_NAME_IN_STRING = re.compile(rf"(?<!\w)(is|self)?_*({_NAMES})", re.IGNORECASE)
_VARIABLE = re.compile("[A-Z0-9]+(_[A-Z0-9]+)+")
#: Functions that compare a string argument with something, or look it up.
_COMPARING = frozenset({"startswith", "endswith", "hasattr", "getattr", "get"})


#: Functions of torch that act on CUDA in a call without a device type, with the type's position.
_CUDA_BY_DEFAULT = {
    "torch.is_autocast_enabled": 0,
    "torch.set_autocast_enabled": 1,
    "torch.random.fork_rng": 4,
}


class Finding(NamedTuple):
    """A CUDA-specific name in a source file."""

    line: int
    #: A key of `advice.KINDS`.
    kind: str
    #: The code, such as `torch.version.cuda`, or `"cuda:{}"` for a formatted string.
    what: str
    #: The first and last lines of the statement that contains the name, or of the expression in the first
    #: lines of a compound statement.
    lines: tuple[int, int]

    def is_recorded_as(self, line: int, what: str) -> bool:
        """Return whether a run has recorded this code as the code `what` in line `line`."""
        first_line, last_line = self.lines
        if not first_line <= line <= last_line:
            return False
        if self.what.startswith('"'):
            # A formatted string is recorded with values in place of `{}`.
            constant_parts = self.what.strip('"').split("{}")
            return all(part in what for part in constant_parts)
        return _last_name(self.what) == _last_name(what)


def find_cuda_names(file: str) -> list[Finding]:
    """Return the CUDA-specific names in the code of a source file, in the order of the lines.

    Comments, docstrings and strings with spaces, such as messages, are left out. If the file is not readable
    Python source, the list is empty.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
        if not _NAME.search(text):
            return []  # parsing takes much longer than searching
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escape sequences
            tree = ast.parse(text)
        reader = _Reader(_imported_parts_of_torch(tree))
        reader.visit(tree)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []
    return sorted(reader.findings)


def _imported_parts_of_torch(tree: ast.Module) -> dict[str, str]:
    """Return the full names of the imported parts of torch, by the names that the module uses for them."""
    parts = {
        name: full_name
        for name, full_name in _imported_names(tree)
        if full_name.partition(".")[0] == "torch"
    }
    return {"torch": "torch", **parts}


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the name that each import defines in the module, and the full name of the imported object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (
                    alias.asname
                ):  # `import torch.cuda as cuda`; without `as`, the full name is used
                    yield alias.asname, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:  # `from torch import cuda`
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _last_name(what: str) -> str:
    """Return the last name in code such as `torch.cuda.synchronize()`."""
    return what.partition("(")[0].rpartition(".")[2]


class _Reader(ast.NodeVisitor):
    """A reader of a module's syntax tree, which collects CUDA-specific names."""

    def __init__(self, imported: dict[str, str]) -> None:
        """Create a reader. `imported` has the full name of each imported part of torch."""
        self.findings: set[Finding] = set()
        self._imported = imported
        #: The first and last lines of the current statement, or `None` between two statements.
        self._lines: tuple[int, int] | None = None
        #: Whether the current expression is compared with another.
        self._is_compared = False

    def visit(self, node: ast.AST) -> None:
        outer_lines = self._lines
        if isinstance(node, ast.stmt) and _contains_statements(node):
            self._lines = None  # each statement inside sets its own lines
        elif outer_lines is None and isinstance(
            node, (ast.stmt, ast.expr, ast.pattern)
        ):
            self._lines = node.lineno, node.end_lineno or node.lineno
        super().visit(node)
        self._lines = outer_lines

    def visit_Expr(self, node: ast.Expr) -> None:
        is_docstring = isinstance(node.value, ast.Constant)
        if not is_docstring:
            self.generic_visit(node)

    # Annotations of types have no effect on a device.

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        node.returns = None
        self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        node.returns = None
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._visit_compared(node.left, *node.comparators)

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        self._visit_compared(node.value)

    def visit_Dict(self, node: ast.Dict) -> None:
        # A string as a key is looked up, which compares it with another string.
        for key in node.keys:
            if key is not None:  # `None` stands for `**` in a dictionary
                self._visit_compared(key)
        for value in node.values:
            self.visit(value)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        full_name = self._full_name(function)
        if not self._add_name(function, full_name, called=True):
            self.visit(function)
        if _own_name(function) in _COMPARING:  # such as `startswith`
            self._visit_compared(*node.args)
        else:
            for argument in node.args:
                self.visit(argument)
        for keyword in node.keywords:
            self._add_keyword(full_name, keyword)
            self.visit(keyword.value)
        if full_name in _CUDA_BY_DEFAULT:
            self._add_call_without_type(node, full_name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not self._add_name(node, self._full_name(node), called=False):
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._add_name(node, self._full_name(node), called=False)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._add_string(node, node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = []
        for value in node.values:
            if isinstance(value, ast.Constant):
                parts.append(str(value.value))
            else:  # an expression in braces
                parts.append("{}")
                self.visit(value)
        self._add_string(node, "".join(parts))

    def _visit_compared(self, *nodes: ast.expr) -> None:
        """Visit expressions that are compared with others."""
        was_compared, self._is_compared = self._is_compared, True
        for node in nodes:
            self.visit(node)
        self._is_compared = was_compared

    def _full_name(self, node: ast.expr) -> str:
        """Return the full name of a part of torch, or an empty string for other expressions."""
        if isinstance(node, ast.Attribute):
            owner = self._full_name(node.value)
            if not owner:
                return ""
            return f"{owner}.{node.attr}"
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, "")
        return ""

    def _add_name(self, node: ast.expr, full_name: str, *, called: bool) -> bool:
        """Add a name that belongs to CUDA, and return whether it does.

        `full_name` is the full name of a part of torch, or an empty string for other names.
        """
        if full_name and _NAME.search(full_name):
            # The run records each call of a function in `torch.cuda`.
            if not called:
                self._add(node, _kind_of_name(full_name), full_name)
            elif not full_name.startswith("torch.cuda."):
                self._add(node, _kind_of_name(full_name), f"{full_name}()")
            return True
        if isinstance(node, ast.Attribute) and node.attr == "is_cuda":
            self._add(node, advice.DEVICE_CHECK, ".is_cuda")
        return False

    def _add_keyword(self, function: str, keyword: ast.keyword) -> None:
        """Add a keyword argument of a torch function, or a keyword that is an environment variable.

        `function` is the full name of a part of torch, or an empty string for other functions.
        """
        name = keyword.arg or ""
        if not _NAME.search(name):
            return
        if _VARIABLE.fullmatch(name):
            self._add(keyword.value, _kind_of_string(name, is_compared=False), name)
        elif function:
            self._add(keyword.value, "call", f"{function}({name}=)")

    def _add_call_without_type(self, node: ast.Call, function: str) -> None:
        """Add a call of a function of `_CUDA_BY_DEFAULT` that leaves out the device type."""
        has_keyword = any(keyword.arg == "device_type" for keyword in node.keywords)
        type_position = _CUDA_BY_DEFAULT[function]
        has_positional_type = len(node.args) > type_position
        if not has_keyword and not has_positional_type:
            self._add(node, "device", f"{function}()")

    def _add_string(self, node: ast.expr, text: str) -> None:
        """Add a string that names CUDA. Messages and options of a command line are left out."""
        is_message = any(character.isspace() for character in text)
        is_option = text.startswith("-")
        is_variable = _VARIABLE.fullmatch(text) and _NAME.search(text)
        is_name = is_variable or _NAME_IN_STRING.search(text)
        if is_name and not is_message and not is_option:
            self._add(node, _kind_of_string(text, self._is_compared), f'"{text}"')

    def _add(self, node: ast.expr, kind: str, what: str) -> None:
        lines = self._lines
        assert lines is not None, "visit() must set the lines before a name is added"
        self.findings.add(Finding(node.lineno, kind, what, lines))


def _contains_statements(node: ast.stmt) -> bool:
    return hasattr(node, "body") or isinstance(node, ast.Match)


def _own_name(node: ast.expr) -> str:
    """Return a name without what it belongs to, such as `get` for `os.environ.get`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""


def _kind_of_name(full_name: str) -> str:
    """Return the key of `advice.KINDS` for a part of torch that belongs to CUDA."""
    name = _last_name(full_name)
    if is_device_check(name) or full_name.startswith("torch.version."):
        return advice.DEVICE_CHECK
    if full_name.startswith("torch.backends."):
        return "setting"
    if ".amp" in full_name:
        return "precision"
    if name.endswith("Tensor"):
        return "type"
    if "nccl" in name.lower():
        return "collective"
    return "call"


def _kind_of_string(text: str, is_compared: bool) -> str:
    """Return the key of `advice.KINDS` for a string that names CUDA."""
    if text in TYPES["cuda"].variables:
        return "environment"
    if _VARIABLE.fullmatch(text):
        return "setting"
    if is_compared:
        return advice.DEVICE_CHECK
    if "nccl" in text.lower():
        return "collective"
    if text.endswith("Tensor"):
        return "type"
    return "device"
