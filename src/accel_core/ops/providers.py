"""Providers of operators and their answers."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["OpProvider", "is_host_code"]


def is_host_code(sources: Iterable[object]) -> bool:
    """Whether there are source files, and all of them are C or C++; `.dp.cpp` is SYCL by custom."""
    names = [str(source) for source in sources]
    return bool(names) and all(
        name.endswith((".c", ".cc", ".cpp", ".cxx")) and not name.endswith(".dp.cpp") for name in names
    )


@dataclass(frozen=True)
class OpProvider:
    """The operators that one provider has for a backend, and how its builders are asked.

    The long answer to the hook `accel_op_builders`; a mapping alone is the short one. A provider whose
    builders are asked in another way derives from it and overrides methods.
    """

    #: `{"FusedAdamBuilder": "module:Class"}`; a module is imported when its operator is asked for.
    builders: Mapping[str, str]
    #: For people: `"accel-npu 1.2"`, which is what it is by default, the distribution and its version.
    name: str = ""
    #: One word for tables: `"plugin"` by default, or the entry point's name in group `accel.op_builders`.
    kind: str = ""
    #: A package with a module for each builder, in which a framework lists operators; or none, "".
    package: str = ""
    #: Whether a builder that fails to import is passed over, and one that would first be compiled for the
    #: processor waits while another starts at once. By default neither: whoever installed the provider wants
    #: it used.
    optional: bool = False
    #: Whether it is asked after all that say nothing here: what serves every device, where nobody has more.
    last: bool = False
    #: What to do, or to know, where nobody has an operator: `"pip install acme-kernels may bring it"`.
    advice: str = ""

    def compatibility(self, builder: Any) -> str:
        """Why one of its builders cannot be used here, as one sentence; empty where it can."""
        if hasattr(builder, "compatibility"):
            return str(builder.compatibility())
        if hasattr(builder, "is_compatible") and not builder.is_compatible():
            return "its is_compatible() returned False"
        return ""

    def is_built(self, builder: Any) -> bool:
        """Whether nothing is left to compile; what it raises means that this is not known."""
        return bool(builder.is_built())

    def compiles_for_host(self, builder: Any) -> bool:
        """Whether what its first use would compile is C++ alone, which the processor runs."""
        return is_host_code(builder.sources())

    def load(self, source: str) -> type[Any]:
        """The class that is handed out for `"module:Class"`; raises what its import raises."""
        module, _, attribute = source.partition(":")
        found: type[Any] = getattr(importlib.import_module(module), attribute)
        return found
