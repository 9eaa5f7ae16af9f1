"""Install a backend for a test: discovery sees it like an installed distribution, here and in children."""

from __future__ import annotations

import functools
import inspect
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from accel_core import Accelerator, Backend, builtin, packages
from accel_core.backend import ENTRY_POINT_GROUP
from accel_core.errors import (
    BackendConflictError,
    InvalidArgumentError,
    InvalidBackendError,
)
from accel_core.packages import normalize_distribution
from accel_core.plugins import declared_backends, hooks_of
from accel_core.settings import ACCEL_ALLOW
from accel_core.text import short_repr
from accel_testing import layers, plugins
from accel_testing.distributions import write_distribution
from accel_testing.fakes import Fake
from accel_testing.layers import Layer

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Installation", "Installing", "installed"]

P = ParamSpec("P")
T = TypeVar("T")

#: Python packaging's names and versions, as far as they go into a folder's name.
_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.!+]*")
#: What the process itself is, whatever a test wants: it was started so.
_OF_THE_PROCESS = "ACCEL_SIMULATE"


@dataclass(frozen=True)
class Installation:
    """A record of the installation."""

    #: Of the backends.
    names: tuple[str, ...]
    distribution: str
    version: str
    #: The entry of `sys.path` that shows it, also in `PYTHONPATH`.
    folder: Path


class Installing(AbstractContextManager[Installation]):
    """The result of `installed`: a context manager, and a decorator that wraps each call of a
    function in it.
    """

    def __init__(
        self, begin: Callable[[], AbstractContextManager[Installation]]
    ) -> None:
        self._begin = begin
        self._open: list[AbstractContextManager[Installation]] = []

    def __enter__(self) -> Installation:
        block = self._begin()
        there = block.__enter__()
        self._open.append(block)
        return there

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._open.pop().__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function in a block; raises `InvalidArgumentError` for what goes on after it has returned."""
        kind = next(
            (words for words, holds in _GOES_ON.items() if holds(function)), None
        )
        if kind is not None:
            raise InvalidArgumentError(
                f"@installed(...) around {getattr(function, '__name__', function)}: it is {kind}, whose body "
                "would run after the block has ended; expected a function. Write `with installed(...):` in "
                "it."
            )

        @functools.wraps(function)
        def within(*arguments: P.args, **named: P.kwargs) -> T:
            with self._begin():
                return function(*arguments, **named)

        return within


#: What a decorator's block would not be around.
_GOES_ON: dict[str, Callable[[object], bool]] = {
    "a class": inspect.isclass,
    "an async function": inspect.iscoroutinefunction,
    "a generator": lambda function: (
        inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    ),
}


def installed(
    plugin: object,
    *,
    accelerator: object = None,
    distribution: str = "",
    version: str = "",
    isolated: bool = False,
    variables: Mapping[str, str | None] | None = None,
) -> Installing:
    """Install a backend for the duration of a `with` block, or, as a decorator, of each call of a function.

    The block yields an `Installation`.

    `plugin` is a `fake`, a `Backend`, or your own plugin: a module or object with hooks. `accelerator` is the
    class for a `Backend`, or an object with the backend's name; it replaces the class that the `Backend`
    names. Discovery and choice in this process and in child processes see the backend as an installed plugin
    of the given `distribution` and `version`. By default the version differs in each run, so that a crash in
    an earlier run is not remembered.

    The block starts without a chosen accelerator; at its end, the one that was chosen before is the process's
    again. An override by `use_accelerator` stays in force. `variables` are set in the block; `None` unsets
    one. `isolated` hides all `ACCEL_…` and `DS_…` variables, other plugins and the machine's hardware, so
    that only this backend and the CPU are left.

    Other threads see the changes too: `sys.path`, the environment variables (also `PYTHONPATH` and
    `ACCEL_ALLOW`) and the choice belong to the process. Blocks may be nested, and may end in any order.

    Entering the block raises `InvalidArgumentError` if `plugin` is not a backend, `InvalidBackendError` for
    an invalid declaration or distribution, and `BackendConflictError` if an installed plugin has the name.
    Nothing is changed then.
    """
    return Installing(
        lambda: _installed(
            plugin,
            accelerator,
            distribution,
            version,
            variables or {},
            isolated=isolated,
        )
    )


@contextmanager
def _installed(
    plugin: object,
    accelerator: object,
    distribution: str,
    version: str,
    variables: Mapping[str, str | None],
    *,
    isolated: bool,
) -> Iterator[Installation]:
    what = _understood(plugin, accelerator)
    layers.check(variables)
    names = tuple(dict.fromkeys(backend.name for backend in what.backends))
    kind = "fake" if what.fake else "testing"
    distribution = distribution or f"accel-{kind}-{names[0].replace('.', '-')}"
    version = version or f"0+{kind}.{secrets.token_hex(4)}"
    _require_valid(distribution, version)
    _require_free(names, distribution, isolated=isolated)
    module = f"accel_testing_{names[0].replace('.', '_')}"
    process, mark = os.getpid(), plugins.keep(what)
    folder = tempfile.mkdtemp(prefix="accel-testing-")
    try:
        sources = {}
        value = module
        if isinstance(what.plugin, ModuleType) and _is_importable(what.plugin):
            value = what.plugin.__name__
        else:
            sources[module] = plugins.source(mark)
        if what.fake is not None:
            sources[what.fake.vendor_import] = plugins.vendor_source(module, version)
        groups = {ENTRY_POINT_GROUP: dict.fromkeys(names, value)}
        write_distribution(folder, distribution, version, groups, sources)
        layer = Layer(
            folder,
            _variables(folder, distribution, variables, isolated=isolated),
            tuple(sources),
        )
        layer.begin()
        try:
            yield Installation(names, distribution, version, Path(folder))
        finally:
            layer.end()
    finally:
        plugins.forget(mark)
        if (
            os.getpid() == process
        ):  # a forked child that leaves the block leaves it to its parent
            shutil.rmtree(folder, ignore_errors=True)


def _understood(plugin: object, accelerator: object) -> plugins.Installed:
    """Resolve the thing to install; raises for what cannot be."""
    if isinstance(plugin, Backend):
        _require_accelerator(plugin, accelerator)
        return plugins.Installed((plugin,), accelerator=accelerator)
    if accelerator is not None:
        raise InvalidArgumentError(
            f"installed({short_repr(plugin)}, accelerator={accelerator!r}): only a Backend takes "
            "an accelerator. Write installed(Backend(...), accelerator=...), or leave it out."
        )
    if isinstance(plugin, Fake):
        return plugins.Installed((plugin.backend,), fake=plugin)
    if not plugins.hooks(plugin):
        raise InvalidArgumentError(
            f"installed({short_repr(plugin)}): {type(plugin).__name__} is no backend, expected fake(...), an "
            f"accel_core.Backend, or a plugin with hooks. {_advice(plugin)}"
        )
    return plugins.Installed(tuple(declared_backends(hooks_of(plugin))), plugin=plugin)


def _advice(plugin: object) -> str:
    if isinstance(plugin, str):
        return f"Write installed(fake({plugin!r}))."
    if isinstance(plugin, Accelerator) or (
        isinstance(plugin, type) and issubclass(plugin, Accelerator)
    ):
        return "Write installed(Backend(...), accelerator=...)."
    return "Mark its functions with @accel_core.hookimpl, or write installed(fake('acme'))."


def _require_accelerator(backend: Backend, accelerator: object) -> None:
    if isinstance(accelerator, Accelerator) and accelerator.name != backend.name:
        raise InvalidBackendError(
            f"installed(Backend {backend.name!r}): the accelerator's name is {accelerator.name!r}, expected "
            f"the backend's. Make it of this Backend, or give its class, {type(accelerator).__name__}."
        )


def _require_valid(distribution: object, version: object) -> None:
    for what, given, pattern, example in (
        ("distribution", distribution, _DISTRIBUTION, "accel-acme"),
        ("version", version, _VERSION, "1.0"),
    ):
        if not isinstance(given, str) or not pattern.fullmatch(given):
            raise InvalidBackendError(
                f"installed({what}={given!r}): expected a {what} as packages have it. Write "
                f"{what}={example!r}."
            )


def _require_free(names: tuple[str, ...], distribution: str, *, isolated: bool) -> None:
    """Raise where a name is built in, or is that of an installed backend which stays to be seen."""
    own = normalize_distribution(distribution)
    there = [] if isolated else packages.entry_points(ENTRY_POINT_GROUP)
    taken = {
        e.name.lower(): e.distribution
        for e in there
        if normalize_distribution(e.distribution) != own
    }
    taken |= {builtin.CPU.name: "accel-core", builtin.GENERIC.name: "accel-core"}
    for name in names:
        if name in taken:
            step = "Choose another name"
            if taken[name] != "accel-core":
                step += f", pass isolated=True, or stand in for it: distribution={taken[name]!r}"
            raise BackendConflictError(
                f"installed(): {name!r} is declared by {taken[name]}, which is installed; expected a name "
                f"that is free. {step}."
            )


def _is_importable(module: ModuleType) -> bool:
    """Whether its name means this module, in other processes too."""
    return module.__name__ != "__main__" and sys.modules.get(module.__name__) is module


def _variables(
    folder: str, distribution: str, given: Mapping[str, str | None], *, isolated: bool
) -> dict[str, str | None]:
    """Variables that are set, or unset, in the block."""
    path = [folder, *filter(None, [{**os.environ, **given}.get("PYTHONPATH")])]
    found: dict[str, str | None] = {}
    if isolated:
        steering = [name for name in os.environ if name.startswith(layers.STEERING)]
        found |= dict.fromkeys(
            name for name in steering if not name.startswith(_OF_THE_PROCESS)
        )
        found[ACCEL_ALLOW.name] = f"@{distribution},{builtin.CPU.name}"
    elif layers.is_set(ACCEL_ALLOW.name):  # within a block that is isolated
        found[ACCEL_ALLOW.name] = f"{os.environ[ACCEL_ALLOW.name]},@{distribution}"
    return {**found, **given, "PYTHONPATH": os.pathsep.join(path)}
