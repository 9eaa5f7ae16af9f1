"""The sections of the interface stand side by side: each inherits what it uses, and no more."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from accel_core import Accelerator, Backend, TorchAccelerator
from accel_core.accelerators.devices import Base, Devices
from accel_core.accelerators.graphs import TorchGraphs
from accel_core.accelerators.memory import TorchRuntime

#: All that `Accelerator` and `TorchAccelerator` are made of.
SECTIONS = [*Accelerator.__bases__, TorchGraphs, TorchRuntime]


def _tree(kind: type) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(kind)))


def _attributes(kind: type, context: type[ast.expr_context]) -> set[str]:
    """The `X` of each `self.X` that the class's code reads or sets, and of each `super().X` that it calls."""
    return {
        node.attr
        for node in ast.walk(_tree(kind))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, context)
        and ast.unparse(node.value) in ("self", "super()")
        and not (node.attr.startswith("__") and node.attr.endswith("__"))
    }


def own(kind: type) -> set[str]:
    """The members that the class itself has: written, declared, or set on `self`."""
    return {*vars(kind), *vars(kind).get("__annotations__", ()), *_attributes(kind, ast.Store)}


def missing(kind: type) -> set[str]:
    """What the class uses and does not inherit."""
    return _attributes(kind, ast.Load).difference(*(own(each) for each in kind.__mro__[:-1]))


def needless(kind: type) -> list[type]:
    """Bases of the class of whose members it uses none; `Base` is what every section stands on."""
    used = _attributes(kind, ast.Load)
    return [base for base in kind.__bases__ if base is not Base and not used & own(base)]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_inherits_what_it_uses(section: type) -> None:
    assert missing(section) == set()


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_uses_what_it_inherits(section: type) -> None:
    assert needless(section) == []


def test_a_section_that_inherits_too_little_or_too_much_is_seen() -> None:
    class TooLittle(Base):
        def name_of_current(self) -> str:
            return f"{self.name} {self.current_device()}"  # type: ignore[attr-defined]

    class TooMuch(Devices):
        def torch_version(self) -> str:
            return str(self._torch.__version__)

    assert missing(TooLittle) == {"current_device"}
    assert needless(TooLittle) == []
    assert missing(TooMuch) == set()
    assert needless(TooMuch) == [Devices]


def test_no_member_has_two_homes() -> None:
    """In an order of sections that nobody has to know, none may hide another's member."""
    homes: dict[str, list[str]] = {}
    for section in [Base, *Accelerator.__bases__]:
        for name in vars(section):
            if not (name.startswith("__") and name.endswith("__")):
                homes.setdefault(name, []).append(section.__name__)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
    assert len(homes) > 100


@pytest.mark.parametrize("kind", [Accelerator, TorchAccelerator])
def test_every_section_is_initialised(
    kind: type[Accelerator], vendor: object, backend: Callable[..., Backend]
) -> None:
    given = vars(kind(backend()))
    for section in [Base, *Accelerator.__bases__]:
        if "__init__" in vars(section):
            assert _attributes(section, ast.Store) <= set(given), section


FIRST_CPU = """
import sys
from accel_core import Backend
from accel_core.accelerators.cpu import CPUAccelerator
CPUAccelerator(Backend(name="cpu", priority=0, device_type="cpu"))
ours = {f"accel_core.accelerators.{name}" for name in ("records", "torch_device")}
early = (ours | {"psutil"}) & set(sys.modules)
sys.exit(f"imported {early}" if early else 0)
"""


def test_the_cpu_is_constructed_without_what_it_may_never_need() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_CPU], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
