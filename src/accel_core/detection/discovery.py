"""Entry points to candidates, and what announces itself to torch.

Plugins are loaded, checked and ordered here, and their hooks called. One that fails to import, declares
nothing or declares nonsense is `Unloaded` with its outcome, never an exception, so that one broken
distribution cannot hide the others.

torch imports every package that announces itself in its own group, wherever it is installed and whatever is
chosen. If accel_core is the first to import torch, it leaves that out; a program that imports torch first,
and every rank that a launcher starts, does not. So a child process does what torch does, a package at a time.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from accel_core import __version__, errors, packages, torch_import
from accel_core.backend import (
    ENTRY_POINT_GROUP,
    PROJECT,
    Backend,
    Provenance,
    is_device_type,
    is_unknown_field,
)
from accel_core.detection import Candidate, Judged, Outcome, Ranked, Status, Unloaded, Verdict, no_device
from accel_core.exceptions import PLUGIN_ERRORS, first_in_chain, root_cause
from accel_core.hardware.vendors import install_command
from accel_core.packages import normalize_distribution
from accel_core.sandbox.guard import announce, quiet, restoring
from accel_core.settings import OWN_DISTRIBUTIONS, Pin, Settings, permitted_entry_points
from accel_core.text import one_line, short_repr

#: Reads the declarations of plugins; gives what each entry point declares, in their order.
Load = Callable[[Sequence[Provenance]], "list[Ranked]"]

CPU = Backend(
    name="cpu",
    priority=0,
    device_type="cpu",
    accelerator="accel_core.interface.cpu:CPUAccelerator",
    description="the processor, through torch.cpu",
    install_hint="accel setup cpu",
    communication_backend="gloo",
)

GENERIC = Backend(
    name="generic",
    priority=100,
    device_type="privateuseone",  # a placeholder: torch says what it is when the accelerator is built
    accelerator="accel_core.interface.torch_device:GenericAccelerator",
    description="an accelerator that torch reports and no installed plugin knows",
    install_hint="accel setup",
)


# --- Candidates ----------------------------------------------------------------------------------------


def find_candidates(pin: Pin | None, settings: Settings, load: Load) -> Ranked:
    """The candidates that `pin` means, or all of them; imports as few plugin modules as can be.

    An entry point is named as its backend, so one import is the rule. Only when no entry point of that
    name declares the backend are the others loaded. Where two distributions claim the name and the pin
    does not say which, both come back and neither is imported. A built-in name means the built-in one
    unless the pin says otherwise. A device that no plugin declares is `generic`: its pin is torch's name of
    the device (`gcu`), or `generic@` and the distribution of the package that brings it.
    """
    every = packages.entry_points(ENTRY_POINT_GROUP)
    if pin is None:
        declared = _loaded(every, settings, load)
        return rank([*builtin_candidates(), *generic_candidates(_backends(declared)), *declared])
    if pin.name == GENERIC.name and (own := _generic_of_pin(pin, every, settings, load)):
        return own
    if own := tuple(c for c in builtin_candidates() if pin.matches(c.name, c.distribution)):
        return own
    named = [e for e in every if pin.matches(e.name.lower(), e.distribution)]
    if len({normalize_distribution(e.distribution) for e in named}) > 1:
        return tuple(unloaded(e, Outcome(Status.NOT_PROBED, "its plugin was not loaded")) for e in named)
    for plugins in (named, [e for e in every if e not in named]):
        if candidates := [c for c in _loaded(plugins, settings, load) if pin.matches(c.name, c.distribution)]:
            return rank(candidates)
    return _generic_of_type(pin)


def _generic_of_pin(pin: Pin, every: Sequence[Provenance], settings: Settings, load: Load) -> Ranked:
    """Return the candidates that `generic` or `generic@DISTRIBUTION` means.

    These are packages that bring a device which no plugin declares; one that the pin names by its
    distribution may be declared too.
    """
    if pin.distribution:
        return tuple(_generic(e) for e in announced() if pin.matches(GENERIC.name, e.distribution))
    if not announced():
        return ()
    return generic_candidates(_backends(_loaded(every, settings, load)))


def _generic_of_type(pin: Pin) -> Ranked:
    """The built-in backend for torch's device type `pin.name`, which no plugin declares.

    A package brings it that is called so, or torch has it already. First-party plugins' types are left to
    them: they only have to be installed.
    """
    if f"accel-{pin.name}" in OWN_DISTRIBUTIONS or not is_device_type(pin.name):
        return ()
    named = [e for e in announced_as(pin.name) if pin.distribution in ("", _normalized(e))]
    if named:
        return tuple(_generic(e, pin.name) for e in named)
    if pin.distribution or "torch" not in sys.modules:
        return ()
    device = _torchs_device()
    if device is None or device.type != pin.name:
        return ()
    return (Candidate(replace(GENERIC, device_type=pin.name, provenance=OWN), builtin=True),)


def announced_as(device_type: str) -> list[Provenance]:
    """Return the packages that torch's autoload imports and that are called as this type of device.

    By the entry point's name, as torch's documentation has it, or by the package's: `torch_foo`.
    """
    return [e for e in announced() if device_type in (e.name.lower(), _top(e).removeprefix("torch_"))]


def _normalized(entry_point: Provenance) -> str:
    return normalize_distribution(entry_point.distribution)


def _top(entry_point: Provenance) -> str:
    """The top-level package of the module that the entry point names."""
    return entry_point.module.partition(".")[0]


def _backends(candidates: Iterable[Judged]) -> tuple[Backend, ...]:
    return tuple(c.backend for c in candidates if isinstance(c, Candidate))


def _loaded(plugins: Sequence[Provenance], settings: Settings, load: Load) -> list[Judged]:
    """Load the plugins' declarations; one that is blocked by policy is listed without being imported."""
    left = [e for e in plugins if _may_be_loaded(e, settings)]
    blocked = Outcome(Status.BLOCKED, "blocked by policy; the plugin was not loaded")
    refused = [unloaded(e, blocked) for e in plugins if e not in left]
    return [*refused, *(candidate for candidates in load(left) for candidate in candidates)]


def _may_be_loaded(entry_point: Provenance, settings: Settings) -> bool:
    """Whether the policy leaves the plugin, as far as its entry point and its distribution tell.

    A name with a distribution in `ACCEL_ALLOW` allows that distribution to be imported, whatever its entry
    points are called; what it declares is judged by the policy again.
    """
    name, distribution = name_of(entry_point), normalize_distribution(entry_point.distribution)
    blocked = any(pin.matches(name, distribution) for pin in settings.block)
    named = any(pin.matches(name, distribution) or pin.distribution == distribution for pin in settings.allow)
    return not blocked and (named or not settings.allow)


def installed_names() -> list[str]:
    """Return the names of all installed backends, from metadata only."""
    names = [one_line(e.name.lower()) for e in packages.entry_points(ENTRY_POINT_GROUP) if e.name]
    return [*dict.fromkeys(sorted(names)), GENERIC.name, CPU.name]


def declarers(name: str) -> set[str]:
    """The distributions whose entry point has that name, read from metadata alone."""
    return {e.distribution for e in packages.entry_points(ENTRY_POINT_GROUP) if e.name.lower() == name}


#: The source of what accel_core brings itself.
OWN = Provenance("accel-core", __version__)


def builtin_candidates() -> tuple[Candidate, ...]:
    """The backends that accel_core brings itself: the CPU, and any accelerator torch reports."""
    return tuple(Candidate(replace(backend, provenance=OWN), builtin=True) for backend in (CPU, GENERIC))


def generic_candidates(others: tuple[Backend, ...]) -> tuple[Candidate, ...]:
    """One `generic` for each package that announces a device to torch and that none of `others` declares."""
    return tuple(_generic(package) for package in unclaimed(others))


def _generic(package: Provenance, device_type: str = GENERIC.device_type) -> Candidate:
    """`generic` for the device that `package` brings; its type is known where it was pinned by that."""
    return Candidate(replace(GENERIC, device_type=device_type, provenance=package), builtin=True)


def rank(candidates: Iterable[Judged]) -> Ranked:
    """Return them in rank order: by priority, highest first, then name, then distribution.

    A backend that takes over another device's torch namespace comes before all backends of that device type,
    whatever their priority: otherwise the other backend would look usable.
    """
    items = list(candidates)
    declared = [(c, c.backend.device_type) for c in items if isinstance(c, Candidate)]

    def key(candidate: Judged) -> tuple[object, ...]:
        taken = candidate.backend.in_torch.impersonates if isinstance(candidate, Candidate) else ""
        behind = [c.priority for c, kind in declared if taken and kind == taken and c is not candidate]
        return (
            -max([candidate.priority, *behind]),
            not behind,
            -candidate.priority,
            candidate.builtin and candidate.name == CPU.name,
            candidate.name,
            normalize_distribution(candidate.distribution),
            candidate.provenance,
        )

    return tuple(sorted(items, key=key))


# --- Declarations --------------------------------------------------------------------------------------


def load_plugin(entry_point: Provenance) -> Ranked:
    """Import one plugin's module and read its declarations; a failure comes back as `Unloaded`."""
    try:
        with quiet(), restoring(entry_point):
            if not entry_point.module:
                raise errors.InvalidBackendError("the entry point names no module, expected 'accel_npu'")
            plugin = imported(entry_point)
            announce(f"accel_backends() of {entry_point}")
            declared = (replace(b, provenance=entry_point) for b in declarations(plugin))
            return tuple(Candidate(b) for b in {(b.name, b.priority): b for b in declared}.values())
    except PLUGIN_ERRORS as error:
        return (unloaded(entry_point, failure(entry_point, error)),)


def imported(entry_point: Provenance) -> Any:
    """The plugin's module, imported now unless it was; raises whatever its import raises."""
    if entry_point.module not in sys.modules:
        announce(f"importing {one_line(entry_point.value)}, the plugin of {entry_point}")
    with quiet():
        return entry_point.load()


def name_of(entry_point: Provenance) -> str:
    """The name for a verdict: of an entry point without one its distribution's, as users can block that."""
    return one_line(entry_point.name.lower()) or normalize_distribution(entry_point.distribution)


def declarations(plugin: object) -> list[Backend]:
    """The backends that `plugin` declares; raises `InvalidBackendError` for none, or for anything else."""
    declared = [backend for made in functions_for(plugin, "accel_backends") for backend in _checked(made())]
    if not declared:
        raise errors.InvalidBackendError(
            "the plugin declares no backend: expected a function accel_backends() with @accel_core.hookimpl "
            "that returns one, or several"
        )
    return declared


def functions_for(plugin: object, hook: str) -> list[Any]:
    """The functions of `plugin` that implement `hook`, without registering it: pluggy takes all hooks of a
    plugin or none, and looks long at each of its attributes.
    """
    import pluggy

    read = pluggy.PluginManager(PROJECT).parse_hookimpl_opts
    hooks = {n: read(plugin, n) for n in dir(plugin) if hasattr(getattr(plugin, n, None), "__code__")}
    return [getattr(plugin, n) for n, o in hooks.items() if o and (o["specname"] or n) == hook]


def _checked(given: Any) -> list[Backend]:
    is_one = isinstance(given, (str, Backend)) or not isinstance(given, Sequence)
    items: list[Any] = [given] if is_one else [*given]
    if others := [item for item in items if not isinstance(item, Backend)]:
        raise errors.InvalidBackendError(
            f"accel_backends() returned {short_repr(others[0])} ({type(others[0]).__name__}), "
            "expected accel_core.Backend or a sequence of them"
        )
    return items


# --- Failures ------------------------------------------------------------------------------------------


def unloaded(entry_point: Provenance, outcome: Outcome) -> Unloaded:
    """The plugin whose declarations cannot be read, and why."""
    return Unloaded(name_of(entry_point), entry_point, outcome)


def failure(entry_point: Provenance, error: BaseException) -> Outcome:
    """Return the outcome for an `error` that loading the plugin raised.

    An exception of the program's own signal handler is raised again.
    """
    at = f"entry point {entry_point.name} = {entry_point.value!r}"
    name, hint = entry_point.distribution, getattr(error, "hint", "")
    if isinstance(error, errors.InvalidBackendError):
        hint = hint or f"report this to the maintainers of {name}"
        return Outcome(Status.INVALID, f"{error} ({at})", hint, error=error)
    hint = hint or f"{install_command(name, option='--force-reinstall')}, or pip uninstall it"
    reason = f"the plugin failed to load: {root_cause(error)} ({at})"
    return unfit(name, error, at) or Outcome(Status.BROKEN, reason, hint, error=error)


def unfit(distribution: str, error: BaseException, at: str) -> Outcome | None:
    """Return the outcome for a plugin that was written for another accel-core; `None` for any other error.

    Such a plugin uses a name, a hook or a hook's argument that this accel_core does not have.
    """
    first: Any = first_in_chain(error)
    module = str(first.name).partition(".")[0] if isinstance(first, ImportError) else ""
    attribute = isinstance(first, AttributeError) and first.obj is sys.modules["accel_core"]
    if module == "accel_core" or attribute or is_unknown_field(first):
        reason = f"it needs another accel-core than {__version__}: {root_cause(error)} ({at})"
        hint = install_command("accel-core", option="--upgrade")
        return Outcome(Status.INCOMPATIBLE, reason, hint, error=error)
    from pluggy import PluginValidationError

    if not isinstance(error, PluginValidationError):
        return None
    hint = install_command(distribution, "accel-core", option="--upgrade")
    return Outcome(Status.INVALID, f"a hook does not fit: {root_cause(error)}", hint, error=error)


# --- Hooks ---------------------------------------------------------------------------------------------


@functools.cache
def _hooks(plugin: object) -> Any:
    """The hooks of one plugin: a manager each, so that a plugin that raises does not end the others' turn.

    Raises pluggy's `PluginValidationError` for a plugin that does not fit our hooks.
    """
    import pluggy

    from accel_core import hookspecs

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    manager.check_pending()
    return manager.hook


def ask(plugin: Provenance, hook: str, **arguments: object) -> Any:
    """Return what one plugin answers: of a `firstresult` hook its answer or `None`, else a list.

    Raises what the plugin's import and its hook raise.
    """
    return getattr(_hooks(imported(plugin)), hook)(**arguments)


# --- What announces itself to torch -------------------------------------------------------------------


def announced() -> list[Provenance]:
    """Return the packages that torch's autoload imports, in torch's order.

    Without accel-train's own, which brings no device, and without distributions that `ACCEL_BLOCK` blocks as
    a whole: torch imports those too, and accel-core leaves them out.
    """
    every = permitted_entry_points(torch_import.TORCH_GROUP)
    return [e for e in every if (e.name, e.distribution) != torch_import.OWN_ENTRY_POINT]


def unclaimed(others: tuple[Backend, ...]) -> list[Provenance]:
    """Return the packages that torch's autoload imports and that no plugin among `others` declares."""
    return [e for e in announced() if not _claimants(e, others)]


def _claimants(entry_point: Provenance, others: tuple[Backend, ...]) -> list[str]:
    """The backends through the package that the entry point names."""
    top = _top(entry_point)
    return [b.name for b in others if top in [m.partition(".")[0] for m in b.vendor_imports]]


def impersonator(backend: Backend) -> str:
    """Return the package that has taken over the backend's torch namespace; empty if none has.

    torch_supa, `torch_npu.contrib.transfer_to_npu` and torch_mlu's `gpu_migration` take over torch.cuda,
    which then reports a device that is not CUDA's. A package that takes it over below Python is recognised by
    its name only.
    """
    other = taken_over_by(backend)
    if other or backend.vendor_imports != ("torch",) or backend.name == GENERIC.name:
        return other
    return torch_import.namespace_taken_by(backend.device_type, ("torch", *backend.in_torch.wrapped_by))


def taken_over_by(backend: Backend) -> str:
    """Return the first imported package that `Backend.in_torch.taken_over_by` names; empty if there
    is none.
    """
    return next((name for name in backend.in_torch.taken_over_by if name in sys.modules), "")


# --- What is built in, in the place of a plugin's hooks ------------------------------------------------

_NONE = "torch reports no accelerator"
_UNANNOUNCED = " and no package announces one to torch"


def probe_builtin(backend: Backend, others: tuple[Backend, ...]) -> Outcome | None:
    """Probe without importing torch or a vendor's package, which is enough for the CPU; else maybe `None`."""
    if backend.name == CPU.name:
        return Outcome(Status.USABLE)  # wherever torch is installed, and that was checked before
    if package := _package_of(backend):
        claimants = _claimants(package, others)
        return Outcome(Status.STANDS_ASIDE, f"{claimants[0]} declares it") if claimants else None
    if os.environ.get(torch_import.IMPORTED):
        return None
    if sys.modules.get("torch") is not None:
        return Outcome(Status.NO_DEVICE, _NONE) if _torchs_device() is None else None
    build = torch_import.torch_build()
    kinds = {"cuda": build and (build.cuda or build.hip), "xpu": build and build.xpu}
    there = [*filter(kinds.get, kinds), *(["mps"] if sys.platform == "darwin" else [])]
    if not {other.device_type for other in others}.issuperset(there):
        return None
    if there:
        return Outcome(Status.STANDS_ASIDE, f"an installed plugin claims {', '.join(there)}")
    announcing = [(e.distribution, _claimants(e, others)) for e in announced()]
    claims = ", ".join(f"{name}: {claimants[0]}" for name, claimants in announcing if claimants)
    why = f", and a plugin claims what announces one to torch ({claims})" if claims else ""
    return Outcome(Status.NO_DEVICE, f"{build or 'torch'} has no accelerator{why or _unannounced(others)}")


def _unannounced(others: tuple[Backend, ...]) -> str:
    return "" if unclaimed(others) else _UNANNOUNCED


def _package_of(backend: Backend) -> Provenance | None:
    """The package that brings the device of a `generic`; `None` where torch alone knows it."""
    source = backend.provenance
    return source if source is not None and source.value else None


def resolve_builtin(backend: Backend, others: tuple[Backend, ...]) -> Backend:
    """Return the declaration with torch's type of the device, whose package is loaded for it.

    The CPU's is what it was. Raises `DeclinedError` if there is no such device or another backend declares
    it, and `BackendUnavailableError` if the package fails or brings another device than was pinned.
    """
    if backend.name == CPU.name:
        return backend
    package = _package_of(backend)
    if package is not None and _top(package) not in sys.modules:
        require_free_slot(backend, others)
        _load(package)
    device = _torchs_device()
    if device is None:
        raise errors.DeclinedError(f"{package} registers no device with torch" if package else _NONE)
    owner = next((other for other in others if other.device_type == device.type), None)
    if owner is not None:
        reason = f"torch's accelerator is {device.type}, which {owner.name} claims"
        raise errors.DeclinedError(reason, stands_aside=True)
    if backend.device_type not in (torch_import.FREE_SLOT, device.type):
        who = f"{package} registers" if package else "torch has"
        hint = f"set DS_ACCELERATOR={GENERIC.name}@{package.distribution}" if package else ""
        raise errors.BackendUnavailableError(
            f"{who} the device type {device.type!r}, not {backend.device_type!r}", hint=hint
        )
    bringing = [e for e in unclaimed(others) if _top(e) in sys.modules]
    is_theirs = device.type == torch_import.private_use1_name() and bringing
    if package is None and is_theirs and backend.device_type == torch_import.FREE_SLOT:
        raise errors.DeclinedError(f"{bringing[0]} brings {device.type}", stands_aside=True)
    return replace(backend, device_type=device.type)


def counted_builtin(count: int, backend: Backend) -> Outcome:
    """The outcome of a device that no plugin claims, with the package that registers it with torch."""
    package = _package_of(backend)
    counted = f"registers {backend.device_type!r} with torch, and counts {count or 'no device'}"
    if not count:
        hint = "run the vendor's own tool: it tells whether the driver sees the device"
        return no_device(f"{package or 'a package'} {counted}", hint)
    return Outcome(Status.USABLE, f"{package} {counted}" if package else "", devices=count)


def _torchs_device() -> Any:
    """The device of `torch.accelerator`, if it is here."""
    from accel_core.interface.devices import torchs_device  # here, as most children need no accelerator

    return torchs_device(torch_import.import_torch())


def _load(package: Provenance) -> None:
    """Load one package as torch's autoload does.

    Raises `BackendUnavailableError` with the distribution, which breaks every `import torch` of this
    environment.
    """
    announce(f"importing {package.value} ({package})")
    try:
        package.load()()
    except PLUGIN_ERRORS as error:
        spoiler = _failing(package, error)
        raise errors.BackendUnavailableError(spoiler.reason, hint=spoiler.hint) from error


def require_free_slot(backend: Backend, others: tuple[Backend, ...]) -> None:
    """Raise `BackendUnavailableError` if another device has torch's one PrivateUse1 slot in this process.

    It can be named once only.
    """
    holder = torch_import.private_use1_name()
    if holder not in (torch_import.FREE_SLOT, backend.device_type):
        raise slot_is_held(backend, others, holder)


def needs_slot(backend: Backend) -> bool:
    """Whether the device may be torch's renamed PrivateUse1, of which a process has one."""
    return backend.in_torch.private_use1 or (backend.name == GENERIC.name and bool(_package_of(backend)))


def slot_is_held(
    backend: Backend, others: tuple[Backend, ...], holder: str
) -> errors.BackendUnavailableError:
    """Return the error of a device that comes too late for torch's one PrivateUse1 slot."""
    tops = {name.partition(".")[0] for b in others if b.device_type == holder for name in b.vendor_imports}
    loaded = [e.distribution for e in announced() if not tops or _top(e) in tops]
    before = f"before Python starts, and import nothing of {holder}'s"
    if loaded and torch_import.autoload_is_on() and not torch_import.imported_by_us:
        off = f"and {torch_import.AUTOLOAD}=0 before Python starts"
        before = f"{off}: `import torch` loads {' and '.join(loaded)}"
    package = _package_of(backend) if backend.name == GENERIC.name else None
    pin = f"{GENERIC.name}@{package.distribution}" if package else backend.name
    reason = f"torch's one PrivateUse1 slot is held by {holder} in this process"
    return errors.BackendUnavailableError(reason, hint=f"set DS_ACCELERATOR={pin} {before}")


# --- What torch's autoload spoils ----------------------------------------------------------------------


class Spoiler(NamedTuple):
    """Effect of an installed package on `import torch`, as a clause that names it, and the next step."""

    reason: str
    hint: str
    #: Type and message of the error, which end the reason; empty where there was none.
    cause: str = ""
    #: Whether it was seen; else nothing came in time.
    known: bool = True

    def beside(self, verdicts: Sequence[Verdict]) -> str:
        """The same in words, beside verdicts: a cause that one of them has too is read there."""
        same = next((v for v in verdicts if v.cause and v.cause == self.cause), None)
        if same is None:
            return str(self)
        # A verdict that has a remedy says it, unless that is a report to somebody else.
        hint = self.hint if same.hint[:6] in ("", "report") else self.hint.partition(": ")[0]
        return f"{self.reason.removesuffix(f': {self.cause}')}, for the same reason as {same.name}. {hint}"

    def __str__(self) -> str:
        return f"{self.reason}. {self.hint}"


def _failing(package: Provenance, error: BaseException | None, ending: str = "") -> Spoiler:
    """The package fails with `error`, or its process had that `ending`."""
    how = torch_import.cause_and_step(error)[0] if error else f"its process {ending}"
    at = f"{torch_import.TORCH_GROUP}: {package.name} = {package.value}"
    reason = one_line(f"{package} fails when torch loads it ({at}): {how}")
    cause = one_line(root_cause(error)) if error else ""
    return Spoiler(reason, _remedy(package, "fails with"), cause)


def _taking(package: Provenance, what: str) -> Spoiler:
    loaded = f"{package}, which torch loads ({package.value}),"
    return Spoiler(one_line(f"{loaded} {what}"), _remedy(package, "loads"))


def _remedy(package: Provenance, does: str) -> str:
    step = f"pip uninstall {package.distribution}, or set {torch_import.AUTOLOAD}=0"
    return f"`import torch` {does} it: {step}"


def spoilers(chosen: Backend | None, timeout: float) -> tuple[Spoiler, ...]:
    """Return the packages that break `import torch`, or take torch's slot or namespace from `chosen`.

    The result is empty if torch's autoload is off, if this process has imported torch with autoload on, or if
    torch would load only the chosen backend's own package. A child process imports torch and the packages,
    within `timeout` seconds; if a package crashes it, another child continues without that package.
    """
    packages = announced()
    own = [name.partition(".")[0] for name in chosen.vendor_imports] if chosen else []
    if chosen and (package := _package_of(chosen)):
        own.append(_top(package))
    foreign = [package for package in packages if _top(package) not in own]
    if not foreign or ("torch" in sys.modules and not torch_import.imported_by_us):
        return ()
    # What has failed here may have switched it off since, as torch_npu does.
    if not torch_import.autoload_is_on() and not torch_import.failed_before():
        return ()
    # These here, as in most environments there is nothing to try.
    from accel_core.sandbox import child

    found: dict[Provenance, Spoiler] = {}
    while left := [package for package in packages if package not in found]:
        job: dict[str, object] = {
            "packages": list(map(asdict, left)),
            "chosen": asdict(chosen) if chosen else None,
        }
        try:
            report = child.run(try_in_child, job, timeout)
        except OSError:  # no process is to be had, and nothing is known
            return ()
        if report.answer is not None:
            told: Any = report.answer["spoilers"]
            found |= {left[index]: Spoiler(*spoiler) for index, spoiler in told}
            break
        package = next((package for package in left if report.stage == _step(package)), None)
        if package is None:  # it did not come to the packages, so that they are not to blame
            break
        found[package] = _failing(package, None, report.ending)
        if report.timed_out:  # which says nothing of the package
            what = f"whether torch can load {package} is not known: it {report.ending}"
            step = f"raise ACCEL_PROBE_TIMEOUT, or set {torch_import.AUTOLOAD}=0"
            found[package] = Spoiler(what, step, known=False)
    # What fails because another package came first is not to be uninstalled for it.
    blamed = [package for package in foreign if package in found] or found
    return tuple(found[package] for package in packages if package in blamed)


def _step(package: Provenance) -> str:
    return f"importing {package.module}"


def try_in_child(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: load each package as torch does; what is wrong, by the number of the package."""
    from accel_core.backend import decode_backend

    stage("import of torch")
    torch = torch_import.import_torch()
    chosen = decode_backend(job["chosen"]) if job["chosen"] else None
    wrong: dict[int, Spoiler] = {}
    slot = torch._C._get_privateuse1_backend_name()
    for index, package in enumerate(Provenance(**fields) for fields in job["packages"]):
        stage(_step(package))
        try:
            package.load()()  # as torch calls it, whatever it is
        except PLUGIN_ERRORS as error:
            wrong[index] = _failing(package, error)
        before, slot = slot, torch._C._get_privateuse1_backend_name()
        if chosen is None:
            continue
        if needs_slot(chosen) and slot not in (before, chosen.device_type):
            wrong[index] = _taking(package, f"takes torch's one PrivateUse1 slot, which {chosen.name} needs")
        elif other := impersonator(chosen):
            wrong[index] = _taking(package, f"puts {other} in the place of torch.{chosen.device_type}")
            break  # all others would be blamed for it
    return {"spoilers": list(wrong.items())}
