"""Find installed plugins, and turn their declarations into verdicts.

A plugin that fails to import, declares no backend or has an invalid declaration is a
verdict too, so that a broken distribution cannot hide other distributions.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pluggy

from accel_core import builtin, errors, hookspecs, packages
from accel_core.backend import (
    ENTRY_POINT_GROUP,
    PROJECT,
    Backend,
    Provenance,
    is_unknown_field_error,
)
from accel_core.exceptions import PLUGIN_ERRORS, first_in_chain, root_cause, root_place
from accel_core.packages import normalize_distribution
from accel_core.sandbox.guard import (
    CodeOwner,
    log_step,
    preserved_state,
    stdout_to_stderr,
)
from accel_core.settings import Pin, Settings
from accel_core.text import one_line, short_repr
from accel_core.verdict import Reason, Status, Verdict, Why


@dataclass(frozen=True)
class Plugin:
    """A plugin: an entry point, for example of group `accel.backends`, whose module
    implements hooks.
    """

    source: Provenance

    @cached_property
    def module(self) -> Any:
        """The plugin's module, imported at first use. Errors raised by the import propagate."""
        if self.source.module not in sys.modules:
            value = one_line(self.source.value)
            log_step(
                f"importing {value}, the plugin of {self.source}", CodeOwner.PLUGIN
            )
        with stdout_to_stderr():
            return self.source.load()

    @cached_property
    def hooks(self) -> Any:
        """The plugin's hooks, registered with a separate pluggy manager for each plugin.

        An exception in one plugin therefore does not stop the hooks of other plugins.
        Raises `pluggy.PluginValidationError` if the plugin does not match the hook
        specifications.
        """
        return hooks_of(self.module)


def hooks_of(module: object) -> Any:
    """Register a module as a pluggy plugin, and return its hooks."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(module)
    manager.check_pending()
    return manager.hook


#: A function that reads the declarations of plugins. It returns the verdicts of each
#: plugin, in the order of the plugins.
Load = Callable[[Sequence[Provenance]], "list[tuple[Verdict, ...]]"]


# --- Installed backends -----------------------------------------------------------------


def find_backends(
    pin: Pin | None, settings: Settings, load: Load
) -> tuple[Verdict, ...]:
    """Return the backends that `pin` selects, or all backends without a pin, in rank
    order. None of them is probed.

    An entry point usually has the name of its backend. Therefore only the plugins whose
    entry point has the pin's name are imported first. If none of them declares the
    backend, the other plugins are loaded too. If two distributions declare the name and
    the pin has no distribution, both are returned and neither is imported.

    A device that no plugin declares is a `generic` backend. The pin of such a backend
    is the device type in torch (`gcu`), or `generic@` and the distribution of the
    package that adds the device.
    """
    installed = packages.entry_points(ENTRY_POINT_GROUP)
    if pin is None:
        verdicts = _load_permitted_plugins(installed, settings, load)
        generic = builtin.generic_verdicts(_declarations_in(verdicts))
        return rank([*builtin.builtin_verdicts(), *generic, *verdicts])
    matching_builtins = _builtin_backends_matching(pin, installed, settings, load)
    if matching_builtins:
        return matching_builtins
    declared = _declared_backends_matching(pin, installed, settings, load)
    if declared:
        return declared
    return builtin.generic_for_device_type(pin)


def _declared_backends_matching(
    pin: Pin, installed: Sequence[Provenance], settings: Settings, load: Load
) -> tuple[Verdict, ...]:
    """Return the backends of plugins that the pin selects."""
    with_pinned_name, with_other_names = [], []
    for plugin in installed:
        if pin.matches(plugin.name.lower(), plugin.distribution):
            with_pinned_name.append(plugin)
        else:
            with_other_names.append(plugin)
    distributions = set()
    for plugin in with_pinned_name:
        distributions.add(normalize_distribution(plugin.distribution))
    if len(distributions) > 1:  # The user must first name one of them in the pin.
        why = Why(Reason.NOT_LOADED)
        return tuple(
            _verdict_without_declaration(plugin, why) for plugin in with_pinned_name
        )
    # The other plugins are imported only if the first ones do not declare the backend.
    for plugins in (with_pinned_name, with_other_names):
        verdicts = _load_permitted_plugins(plugins, settings, load)
        matching = [v for v in verdicts if pin.matches(v.name, v.distribution)]
        if matching:
            return rank(matching)
    return ()


def _builtin_backends_matching(
    pin: Pin, installed: Sequence[Provenance], settings: Settings, load: Load
) -> tuple[Verdict, ...]:
    """Return the built-in backends that the pin selects."""
    if pin.name == builtin.GENERIC.name and builtin.autoload_packages():
        if pin.distribution:
            matching = builtin.generic_for_distribution(pin)
        else:
            # A package is generic only if no installed plugin declares its device.
            verdicts = _load_permitted_plugins(installed, settings, load)
            matching = builtin.generic_verdicts(_declarations_in(verdicts))
        if matching:
            return matching
    builtins = builtin.builtin_verdicts()
    return tuple(v for v in builtins if pin.matches(v.name, v.distribution))


def _declarations_in(verdicts: Iterable[Verdict]) -> tuple[Backend, ...]:
    return tuple(v.backend for v in verdicts if v.backend is not None)


def _load_permitted_plugins(
    plugins: Sequence[Provenance], settings: Settings, load: Load
) -> list[Verdict]:
    """Load the declarations of the plugins. A blocked plugin is not imported, and gets
    a verdict that it is blocked.
    """
    permitted = []
    verdicts = []
    for plugin in plugins:
        name = name_before_loading(plugin)
        if settings.policy.permits_plugin(name, plugin.distribution):
            permitted.append(plugin)
        else:
            why = Why(Reason.BLOCKED)
            verdicts.append(_verdict_without_declaration(plugin, why, Status.BLOCKED))
    for verdicts_of_plugin in load(permitted):
        verdicts += verdicts_of_plugin
    return verdicts


def installed_names() -> list[str]:
    """Return the names of all installed backends. Only metadata is read."""
    names = set()
    for plugin in packages.entry_points(ENTRY_POINT_GROUP):
        if plugin.name:
            names.add(one_line(plugin.name.lower()))
    builtin_names = [builtin.GENERIC.name, builtin.CPU.name]
    return [*sorted(names.difference(builtin_names)), *builtin_names]


def declaring_distributions(name: str) -> set[str]:
    """Return the distributions with an entry point called `name`. Only metadata is
    read.
    """
    installed = packages.entry_points(ENTRY_POINT_GROUP)
    return {plugin.distribution for plugin in installed if plugin.name.lower() == name}


def rank(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Sort the verdicts by priority, highest first, then by name and distribution.

    A backend that takes over another device's torch namespace precedes all backends of
    that device type, whatever their priority. Otherwise those backends would seem
    usable.
    """
    all_verdicts = tuple(verdicts)

    def sort_key(verdict: Verdict) -> tuple[object, ...]:
        overtaken = _overtaken_by(verdict, all_verdicts)
        # The backend ranks at least as high as each backend that it overtakes. Of equal
        # priorities, the overtaking backend comes first.
        effective_priority = verdict.priority
        for other in overtaken:
            effective_priority = max(effective_priority, other.priority)
        is_builtin_cpu = verdict.builtin and verdict.name == builtin.CPU.name
        return (
            -effective_priority,
            not overtaken,
            -verdict.priority,
            is_builtin_cpu,
            verdict.name,
            normalize_distribution(verdict.distribution),
            verdict.provenance,
        )

    return tuple(sorted(all_verdicts, key=sort_key))


def _overtaken_by(verdict: Verdict, among: Sequence[Verdict]) -> list[Verdict]:
    """Return the backends whose torch namespace this backend takes over."""
    if verdict.backend is None:
        return []
    taken_type = verdict.backend.torch_integration.takes_over
    if not taken_type:
        return []
    return [v for v in among if v.device_type == taken_type and v is not verdict]


# --- Declarations of a plugin -----------------------------------------------------------


def load_plugins(plugins: Sequence[Provenance]) -> list[tuple[Verdict, ...]]:
    """Read the plugins' declarations in this process."""
    return [load_plugin(plugin) for plugin in plugins]


def load_plugin(source: Provenance) -> tuple[Verdict, ...]:
    """Import one plugin's module and return a verdict on each of its declarations, or
    one verdict on the failure.
    """
    try:
        with stdout_to_stderr(), preserved_state(source):
            if not source.module:
                raise errors.InvalidBackendError(
                    "the entry point has no module, expected one such as 'accel_npu'"
                )
            hooks = Plugin(source).hooks
            log_step(f"accel_backends() of {source}", CodeOwner.PLUGIN)
            backends = declared_backends(hooks)
    except PLUGIN_ERRORS as error:
        return (load_failure_verdict(source, error),)
    # A backend that is declared twice counts once.
    verdict_by_key = {}
    for backend in backends:
        declared = replace(backend, provenance=source)
        key = (backend.name, backend.priority)
        verdict_by_key[key] = Verdict(backend.name, source, declared)
    return tuple(verdict_by_key.values())


def declared_backends(hooks: Any) -> list[Backend]:
    """Return the backends that a plugin with these hooks declares.

    Raises `InvalidBackendError` if the plugin declares no backend, or returns an object
    that is not a `Backend`.
    """
    backends = []
    for result in hooks.accel_backends():  # one result for each implementation
        backends += _as_backend_list(result)
    if not backends:
        raise errors.InvalidBackendError(
            "the plugin declares no backend: expected a function accel_backends() with "
            "@accel_core.hookimpl that returns one or more backends"
        )
    return backends


def _as_backend_list(result: Any) -> list[Backend]:
    """Return the result of `accel_backends()` as a list.

    Raises `InvalidBackendError` if it contains an object that is not a `Backend`.
    """
    if isinstance(result, Sequence) and not isinstance(result, str):
        items = list(result)
    else:
        items = [result]
    for item in items:
        if not isinstance(item, Backend):
            type_name = type(item).__name__
            raise errors.InvalidBackendError(
                f"accel_backends() returned {short_repr(item)} ({type_name}), expected "
                "accel_core.Backend or a sequence of accel_core.Backend objects"
            )
    return items


def name_before_loading(source: Provenance) -> str:
    """Return the name to use in a verdict on a plugin whose declarations were not read.

    For an entry point without a name, this is the distribution's name, which users can
    block.
    """
    name = one_line(source.name.lower())
    return name or normalize_distribution(source.distribution)


# --- Failures ---------------------------------------------------------------------------


def _verdict_without_declaration(
    source: Provenance, why: Why, status: Status = Status.NOT_PROBED
) -> Verdict:
    return Verdict(name_before_loading(source), source, status=status, why=why)


def verdict_with_error(verdict: Verdict, error: BaseException) -> Verdict:
    """Return the verdict with the error added: the exception, its root cause, and the
    line that raised the root cause.
    """
    return replace(
        verdict,
        error=error,
        cause=one_line(root_cause(error)),
        where=one_line(root_place(error)),
    )


def load_failure_verdict(source: Provenance, error: BaseException) -> Verdict:
    """Return the verdict on a plugin whose loading raised `error`."""
    failed = verdict_with_error(
        _verdict_without_declaration(source, Why(Reason.PLUGIN_FAILS)), error
    )
    step = getattr(error, "hint", "")
    entry_point = f"entry point {source.name} = {source.value!r}"
    if isinstance(error, errors.InvalidBackendError):
        facts = {"entry_point": entry_point, "text": str(error), "step": step}
        why = Why(Reason.DECLARATION_INVALID, facts)
        return replace(failed, status=Status.INVALID, why=why)
    mismatch = core_mismatch_verdict(failed, error, entry_point)
    if mismatch is not None:
        return mismatch
    facts = {"entry_point": entry_point, "step": step}
    why = Why(Reason.PLUGIN_FAILS, facts)
    return replace(failed, status=Status.BROKEN, why=why)


def core_mismatch_verdict(
    failed: Verdict, error: BaseException, place: str
) -> Verdict | None:
    """Return the verdict on a plugin that was written for another version of
    accel-core, or `None` for any other failure.

    Such a plugin uses a name, a hook or a hook's argument that this accel-core lacks.
    `failed` already contains the error, and `place` is the entry point or the hook that
    raised it.
    """
    if is_made_for_other_core(error):
        why = Why(Reason.NEEDS_OTHER_CORE, {"at": place})
        return replace(failed, status=Status.INCOMPATIBLE, why=why)
    if isinstance(error, pluggy.PluginValidationError):
        why = Why(Reason.HOOK_DOES_NOT_FIT)
        return replace(failed, status=Status.INVALID, why=why)
    return None


def is_made_for_other_core(error: BaseException) -> bool:
    """Return whether a plugin failed because it uses a name that this accel-core lacks."""
    root_error: Any = first_in_chain(error)
    if isinstance(root_error, ImportError):
        missing_package = str(root_error.name).partition(".")[0]
        return missing_package == "accel_core"
    if isinstance(root_error, AttributeError):
        # `obj` is the object that lacks the attribute.
        return root_error.obj is sys.modules["accel_core"]
    return is_unknown_field_error(root_error)
