"""Install a backend for a test: this process and its children discover it like an installed plugin."""

from __future__ import annotations

import functools
import inspect
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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

#: Patterns for the names and versions that are valid in the name of a `.dist-info` folder.
_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.!+]*")
#: The prefix of environment variables that are never hidden, because a process simulates the same device for
#: as long as it runs.
_SIMULATION_PREFIX = "ACCEL_SIMULATE"


@dataclass(frozen=True)
class Installation:
    """A record of the plugin distribution that `installed` has installed for a test."""

    #: The names of the installed backends.
    names: tuple[str, ...]
    distribution: str
    version: str
    #: The folder that contains the distribution, as an entry of `sys.path` and `PYTHONPATH`.
    folder: Path


class Installing(AbstractContextManager[Installation]):
    """A context manager and decorator, returned by `installed`, that installs a backend.

    As a decorator, it installs the backend for the duration of each call to the decorated function.
    """

    def __init__(
        self, open_block: Callable[[], AbstractContextManager[Installation]]
    ) -> None:
        self._open_block = open_block
        self._entered_blocks: list[AbstractContextManager[Installation]] = []

    def __enter__(self) -> Installation:
        block = self._open_block()
        installation = block.__enter__()
        self._entered_blocks.append(block)
        return installation

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._entered_blocks.pop().__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return a wrapper of `function` that installs the backend for the duration of each call.

        Raises `InvalidArgumentError` for a class, an async function or a generator function, because their
        code would run after the backend has been removed.
        """
        for description, is_unsupported in _UNSUPPORTED_KINDS.items():
            if is_unsupported(function):
                name = getattr(function, "__name__", function)
                raise InvalidArgumentError(
                    f"@installed(...) can decorate only a function, but {name} is {description}, "
                    "whose body would run after the block has ended. Write `with installed(...):` inside "
                    "the decorated code."
                )

        @functools.wraps(function)
        def wrapper(*arguments: P.args, **named: P.kwargs) -> T:
            with self._open_block():
                return function(*arguments, **named)

        return wrapper


#: The kinds of objects that the decorator rejects, because their code runs after the block has ended.
_UNSUPPORTED_KINDS: dict[str, Callable[[object], bool]] = {
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
    """Install a backend for the duration of a `with` block, or of each call to a decorated function.

    The `with` block yields an `Installation`. The changes affect all threads, because `sys.path`, the
    environment variables (including `PYTHONPATH` and `ACCEL_ALLOW`) and the chosen accelerator belong to the
    process. Blocks can be nested, and can end in any order.

    `plugin` is a `fake`, a `Backend`, or a plugin, which is a module or object with hooks. If it is a
    `Backend`, `accelerator` can replace the class that the backend names, either with a class or with an
    object that has the backend's name.

    This process and its child processes discover the backend as an installed plugin, in a distribution with
    the given `distribution` name and `version`. By default each run has a different version.

    The block starts without a chosen accelerator, and the previously chosen accelerator is restored at its
    end. An override by `use_accelerator` stays in effect. `variables` are environment variables to set during
    the block, and `None` unsets a variable. If `isolated` is true, all `ACCEL_…` and `DS_…` variables, other
    plugins and the machine's hardware are hidden, so that only this backend and the CPU are available.
    Variables that begin with `ACCEL_SIMULATE` are kept.

    Entering the block raises `InvalidArgumentError` if `plugin` is not a backend. It raises
    `InvalidBackendError` if the declaration or distribution is invalid, and `BackendConflictError` if an
    installed plugin already declares a backend of the same name. If an error is raised, nothing is changed.
    """
    return Installing(
        lambda: _install(
            plugin,
            accelerator,
            distribution,
            version,
            variables or {},
            isolated=isolated,
        )
    )


@contextmanager
def _install(
    plugin: object,
    accelerator: object,
    distribution: str,
    version: str,
    variables: Mapping[str, str | None],
    *,
    isolated: bool,
) -> Iterator[Installation]:
    """Install the plugin for the duration of the block. The parameters are those of `installed`."""
    contents = _make_contents(plugin, accelerator)
    layers.check_variables(variables)
    names = _distinct_names(contents.backends)
    label = "fake" if contents.fake else "testing"
    distribution = distribution or f"accel-{label}-{names[0].replace('.', '-')}"
    version = version or f"0+{label}.{secrets.token_hex(4)}"
    _require_valid_in_file_name(distribution, version)
    _require_unused_names(names, distribution, isolated=isolated)
    module = f"accel_testing_{names[0].replace('.', '_')}"
    pid = os.getpid()
    key = plugins.register(contents)
    folder = tempfile.mkdtemp(prefix="accel-testing-")
    try:
        sources = {}
        entry_point = module
        if isinstance(contents.plugin, ModuleType) and _is_importable(contents.plugin):
            entry_point = contents.plugin.__name__
        else:
            sources[module] = plugins.plugin_source(key)
        if contents.fake is not None:
            sources[contents.fake.vendor_import] = plugins.vendor_package_source(
                module, version
            )
        entry_points = {}
        for name in names:
            entry_points[name] = entry_point
        groups = {ENTRY_POINT_GROUP: entry_points}
        write_distribution(folder, distribution, version, groups, sources)
        layer = Layer(
            folder,
            _variables_to_set(folder, distribution, variables, isolated=isolated),
            tuple(sources),
        )
        layer.begin()
        try:
            yield Installation(names, distribution, version, Path(folder))
        finally:
            layer.end()
    finally:
        plugins.unregister(key)
        if os.getpid() == pid:  # a forked child must not delete the parent's folder
            shutil.rmtree(folder, ignore_errors=True)


def _distinct_names(backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return the names of the backends in order, each of them once."""
    names: list[str] = []
    for backend in backends:
        if backend.name not in names:
            names.append(backend.name)
    return tuple(names)


def _make_contents(plugin: object, accelerator: object) -> plugins.Installed:
    """Return a record of the plugin and the accelerator that were passed to `installed`.

    Raises `InvalidArgumentError` or `InvalidBackendError` if the plugin cannot be installed.
    """
    if isinstance(plugin, Backend):
        _require_accelerator(plugin, accelerator)
        return plugins.Installed((plugin,), accelerator=accelerator)
    if accelerator is not None:
        raise InvalidArgumentError(
            f"installed({short_repr(plugin)}, accelerator={accelerator!r}): accelerator= is allowed only "
            "with a Backend. Write installed(Backend(...), accelerator=...), or omit accelerator=."
        )
    if isinstance(plugin, Fake):
        return plugins.Installed((plugin.backend,), fake=plugin)
    if not plugins.collect_hooks(plugin):
        raise InvalidArgumentError(
            f"installed({short_repr(plugin)}): {type(plugin).__name__} is not a backend, expected fake(...), "
            f"an accel_core.Backend, or a plugin with hooks. {_next_step(plugin)}"
        )
    return plugins.Installed(tuple(declared_backends(hooks_of(plugin))), plugin=plugin)


def _next_step(plugin: object) -> str:
    """Return the next step to suggest for an object that cannot be installed."""
    if isinstance(plugin, str):
        return f"Write installed(fake({plugin!r}))."
    is_accelerator_class = isinstance(plugin, type) and issubclass(plugin, Accelerator)
    if is_accelerator_class or isinstance(plugin, Accelerator):
        return "Write installed(Backend(...), accelerator=...)."
    return "Mark the plugin's functions with @accel_core.hookimpl, or write installed(fake('acme'))."


def _require_accelerator(backend: Backend, accelerator: object) -> None:
    """Raise `InvalidBackendError` if the accelerator's name differs from the backend's name."""
    if isinstance(accelerator, Accelerator) and accelerator.name != backend.name:
        raise InvalidBackendError(
            f"installed(Backend {backend.name!r}): the accelerator's name is {accelerator.name!r}, "
            "but it must be the backend's name. Create the accelerator with this Backend, or give "
            f"its class, {type(accelerator).__name__}."
        )


def _require_valid_in_file_name(distribution: object, version: object) -> None:
    """Raise `InvalidBackendError` unless the distribution and version are valid in a wheel's file name."""
    for parameter, value, pattern, example in (
        ("distribution", distribution, _DISTRIBUTION, "accel-acme"),
        ("version", version, _VERSION, "1.0"),
    ):
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InvalidBackendError(
                f"installed({parameter}={value!r}): expected a valid {parameter} of a Python package. "
                f"Write {parameter}={example!r}."
            )


def _require_unused_names(
    names: tuple[str, ...], distribution: str, *, isolated: bool
) -> None:
    """Raise `BackendConflictError` if a built-in backend or an installed plugin already uses a name.

    `names` contains the names to check. Plugins in `distribution` are ignored, because they are replaced. If
    `isolated` is true, all plugins are ignored, because they are hidden.
    """
    declared_by = {builtin.CPU.name: "accel-core", builtin.GENERIC.name: "accel-core"}
    if not isolated:
        replaced_distribution = normalize_distribution(distribution)
        for entry_point in packages.entry_points(ENTRY_POINT_GROUP):
            declarer = entry_point.distribution
            if normalize_distribution(declarer) != replaced_distribution:
                declared_by.setdefault(entry_point.name.lower(), declarer)
    for name in names:
        if name not in declared_by:
            continue
        declarer = declared_by[name]
        next_step = "Choose another name."
        if declarer != "accel-core":
            next_step += (
                f" Or pass isolated=True to hide the plugin, or distribution={declarer!r} to replace the "
                "plugin."
            )
        raise BackendConflictError(
            f"installed(): {name!r} is declared by {declarer}, which is installed; expected a name "
            f"that is not in use. {next_step}"
        )


def _is_importable(module: ModuleType) -> bool:
    """Return whether another process can import the module by its name."""
    return module.__name__ != "__main__" and sys.modules.get(module.__name__) is module


def _variables_to_set(
    folder: str,
    distribution: str,
    variables: Mapping[str, str | None],
    *,
    isolated: bool,
) -> dict[str, str | None]:
    """Return the environment variables to set while the backend is installed, with `None` for those to unset.

    `folder` contains the distribution, and `variables` are those that were passed to `installed`.
    """
    python_path = [folder]
    previous_path = {**os.environ, **variables}.get("PYTHONPATH")
    if previous_path:
        python_path.append(previous_path)
    changes: dict[str, str | None] = {}
    if isolated:
        for name in os.environ:
            affects_choice = name.startswith(layers.STEERING_PREFIXES)
            if affects_choice and not name.startswith(_SIMULATION_PREFIX):
                changes[name] = None
        changes[ACCEL_ALLOW.name] = f"@{distribution},{builtin.CPU.name}"
    elif layers.is_set_by_layer(ACCEL_ALLOW.name):
        # This block is inside an isolated block, whose list must also allow this distribution.
        allowed = os.environ[ACCEL_ALLOW.name]
        changes[ACCEL_ALLOW.name] = f"{allowed},@{distribution}"
    return {**changes, **variables, "PYTHONPATH": os.pathsep.join(python_path)}
