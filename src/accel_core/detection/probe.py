"""A candidate to its verdict: what is known without importing anything, then the device.

Nothing is raised: every failure is a verdict with its reason, cause and next step.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import hardware
from accel_core.backend import Backend
from accel_core.detection import Candidate, Judged, Outcome, Status, Verdict, device, discovery, no_device
from accel_core.errors import BackendUnavailableError
from accel_core.exceptions import hint_for
from accel_core.hardware import bus
from accel_core.log import LOGGER
from accel_core.packages import requirement, version
from accel_core.settings import Settings
from accel_core.text import short_repr
from accel_core.torch_import import BUILDS, torch_build

if TYPE_CHECKING:
    from accel_core.interface import Accelerator


class Case(NamedTuple):
    """One candidate, and what its steps look at."""

    candidate: Judged
    settings: Settings
    #: Of its hardware, as `hardware.devices` gives it.
    evidence: bus.Evidence | None
    #: The user asked for this backend by name, so it may be usable without a device.
    pinned: bool = False
    #: The folder under which `/proc` and the container's marks are looked for.
    root: str = "/"

    @property
    def backend(self) -> Backend:
        """The declaration, once the steps on unloaded plugins have passed."""
        assert isinstance(self.candidate, Candidate)
        return self.candidate.backend

    @property
    def is_running(self) -> bool:
        """Whether the device's runtime has started here: then neither files nor variables decide."""
        namespace = getattr(sys.modules.get("torch"), self.backend.device_type, None)
        ask = getattr(namespace, "is_initialized", None)
        with suppress(Exception):  # a vendor's namespace, before or after its package has failed
            return bool(ask and ask())
        return False


class Prober:
    """The judge that probes candidates; with `isolated`, only in child processes, without importing torch
    here.

    If it is isolated, it also looks for broken packages of backends without a device. `built`: the
    accelerators that this process has, which are not built again.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        isolated: bool = False,
        autoload: bool = True,
        built: Mapping[Backend, "Accelerator"] = MappingProxyType({}),
    ) -> None:
        self._settings = settings
        self.isolated = isolated
        self._autoload = autoload
        self._built = built
        #: What was probed, by the backend and the question: nothing is probed twice.
        self._known: dict[tuple[object, ...], Verdict] = {}

    def probe(
        self, candidate: Judged, among: tuple[Judged, ...], *, pinned: bool = False, isolated: bool = False
    ) -> Verdict:
        """The verdict on `candidate`, beside the others `among` which it is judged.

        `pinned`: the user asked for this backend by name, so it may be usable without a device, as on a
        login node. `isolated`: this once, in a child process alone.
        """
        start = time.perf_counter()
        isolated = isolated or self.isolated
        which = (candidate.name, candidate.provenance, candidate.priority, isolated)
        at_rank = self._known.get((which, False))
        if known := at_rank if at_rank and at_rank.usable else self._known.get((which, pinned)):
            return known
        case = _case(candidate, self._settings, pinned)
        outcome, doubt = examine(case)
        if outcome is None:
            outcome = self._ask(case, device.Group(among, built=self._built), isolated=isolated)
            if doubt and not pinned and (outcome.status is Status.NO_DEVICE or outcome.status.is_failure):
                outcome = doubt  # the vendor counts none either, or fails as one does without its device
        if pinned and outcome.is_absence:
            why = doubt or outcome  # what was seen without the vendor says more than its count
            outcome = outcome._replace(
                status=Status.USABLE, reason=f"pinned, though {why.reason}", hint=why.hint
            )
        found = Verdict.of(candidate, outcome, case.evidence, (time.perf_counter() - start) * 1e3)
        if self.isolated and not pinned and can_be_broken(candidate, outcome):
            # A child tries it as if it were pinned. That no answer comes in time is no news of the package.
            beyond = self.probe(candidate, among, pinned=True, isolated=True)
            if beyond.status.is_failure and beyond.status is not Status.TIMED_OUT:
                found = found.besides(beyond)
        LOGGER.debug("%s: %s, after %.1f ms. %s", found.name, found.status.words, found.ms, found.reason)
        self._known[which, pinned] = found
        return found

    def inspect(self, candidate: Judged, otherwise: Outcome) -> Verdict:
        """The verdict without probing: what rules `candidate` out statically, else `otherwise`."""
        case = _case(candidate, self._settings)
        return Verdict.of(candidate, examine(case)[0] or otherwise, case.evidence)

    def autoload(self, chosen: Candidate | None) -> tuple[discovery.Spoiler, ...]:
        """Return what torch's autoload spoils; this takes seconds and a process, so only commands ask."""
        if not (self._autoload and self.isolated):
            return ()
        return discovery.spoilers(chosen.backend if chosen else None, self._settings.probe_timeout)

    def _ask(self, case: Case, group: device.Group, *, isolated: bool) -> Outcome:
        """Ask the plugin and its device: in a child process, in this one, or in both, one after the other."""
        candidate = case.candidate
        assert isinstance(candidate, Candidate)
        if isolated or self._settings.isolated:
            # What is built in answers without importing anything, and needs no child for that.
            outcome = device.plugin_answer(candidate, group) if candidate.builtin else None
            if outcome is None:
                outcome = self._ask_child(candidate, group, pinned=case.pinned)
            is_missing = case.pinned and outcome.status is Status.NO_DEVICE
            if isolated or not (outcome.status is Status.USABLE or is_missing):
                return outcome
        return device.ask_device(candidate, group, pinned=case.pinned)

    def _ask_child(self, candidate: Candidate, group: device.Group, *, pinned: bool) -> Outcome:
        from accel_core.detection.isolated import probe_isolated  # here, as most processes start none

        return probe_isolated(candidate, group, self._settings.probe_timeout, pinned=pinned)


def can_be_broken(candidate: Judged, outcome: Outcome | Verdict) -> bool:
    """Whether the device is missing, and the vendor's package is installed, which need not work."""
    if outcome.status is not Status.NO_DEVICE or not isinstance(candidate, Candidate):
        return False
    return device.installed_imports(candidate.backend) not in ([], ["torch"])


# --- Steps that import nothing, the cheapest first -----------------------------------------------------


def _case(candidate: Judged, settings: Settings, pinned: bool = False) -> Case:
    seen = bus.evidence(candidate.backend) if isinstance(candidate, Candidate) else None
    return Case(candidate, settings, seen, pinned)


def examine(case: Case) -> tuple[Outcome | None, Outcome | None]:
    """Return what rules the candidate out, and what speaks against its device without deciding; else `None`.

    Nothing that speaks against the device decides about a pin. Where device nodes are all that is known of
    the hardware their absence does not decide either: drivers rename them, and the vendor can count.
    """
    doubt: Outcome | None = None
    for step in _STEPS:
        if (outcome := step(case)) is None:
            continue
        conjecture = step is _on_the_machine and not case.backend.hardware.pci_ids
        if outcome.is_absence and (case.pinned or conjecture):
            doubt = doubt or outcome
            continue
        sure = case.pinned and isinstance(case.candidate, Candidate) and case.backend.hardware.pci_ids
        if sure and (missing := _on_the_machine(case)):  # the first step is a machine with the device
            reason = f"{missing.reason.partition(' (none of')[0]}; and {outcome.reason}"
            or_on = f"; for a login node or an image: {outcome.hint}" if outcome.hint else ""
            outcome = outcome._replace(reason=reason, hint=f"run on a machine that has one{or_on}")
        return outcome, doubt
    return None, doubt


def _policy(case: Case) -> Outcome | None:
    name, distribution, settings = case.candidate.name, case.candidate.distribution, case.settings
    if settings.permits(name, distribution):
        return None
    if rules := [pin for pin in settings.block if pin.matches(name, distribution)]:
        return Outcome(Status.BLOCKED, "ACCEL_BLOCK names it", f"take {rules[0]} out of ACCEL_BLOCK")
    return Outcome(Status.BLOCKED, "ACCEL_ALLOW does not name it", f"add {name} to ACCEL_ALLOW")


def _unread(case: Case) -> Outcome | None:
    return None if isinstance(case.candidate, Candidate) else case.candidate.outcome


def _platform(case: Case) -> Outcome | None:
    platforms = case.backend.hardware.platforms
    elsewhere = Outcome(Status.NO_DEVICE, f"this device exists on {', '.join(platforms)} only")
    return None if hardware.platform_matches(platforms) else elsewhere


def _vendor_installed(case: Case) -> Outcome | None:
    backend = case.backend
    if device.installed_imports(backend):
        return None
    missing = [" or ".join(backend.vendor_imports), *_missing_besides(backend)]
    reason = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not installed"
    if case.evidence:
        reason += f", though the hardware is there: {case.evidence}"
    return Outcome(Status.NOT_INSTALLED, reason, backend.install_hint)


def _missing_besides(backend: Backend) -> list[str]:
    """Return the missing distributions that the backend requires besides torch and the vendor's package.

    Without `same_version`, which names the vendor's distribution, a required one may be that itself.
    """
    vendors_own = backend.in_torch.same_version
    if not vendors_own:
        return []
    names = [re.match(r"[\w.-]*", text) for text in backend.requires]
    required = [name[0] for name in names if name and name[0] not in ("", "torch", *vendors_own)]
    return [name for name in required if version(name) is None]


def _fits_torch(case: Case) -> Outcome | None:
    """Whether what is built for one release of torch was built for the torch that is here.

    Some such packages end the process when they are imported beside another torch.
    """
    backend = case.backend
    build = torch_build() if backend.in_torch.same_version else None
    if build is None:  # creation says that torch is missing
        return None
    for name in backend.in_torch.same_version:
        if (installed := version(name)) is None:
            return Outcome(Status.NOT_INSTALLED, f"{name} is not installed", backend.install_hint)
        release = _minor(installed)
        if release != _minor(build.version):
            told = f"works with torch {release} only, and torch {build.version} is installed"
            reason = f"{name} {installed} {told}"
            # The plugin's own next step, where its hints know the reason as they know errors.
            known = hint_for(BackendUnavailableError(reason), backend.hints)
            otherwise = f"pip install 'torch=={release}.*', or: {backend.install_hint}".removesuffix(", or: ")
            return Outcome(Status.INCOMPATIBLE, reason, known or _setup(backend) or otherwise)
    return None


def _minor(text: str) -> str:
    """`"2.8"` of `"2.8.10+xpu"`."""
    return ".".join(text.split("+", maxsplit=1)[0].split(".")[:2])


def _own_namespace(case: Case) -> Outcome | None:
    other = discovery.impersonator(case.backend)
    return device.impersonated(case.backend, other) if other else None


def _place(case: Case) -> Any:
    """The container or job of this process."""
    from accel_core.hardware.placement import placement  # here, as most choices do not ask

    return placement(case.root)


def _on_the_machine(case: Case) -> Outcome | None:
    """Whether there are signs of the device. Before torch's build, as no other build brings a device."""
    backend, root = case.backend, case.root
    if case.evidence is None or case.evidence or case.is_running:
        return None
    named = bus.with_article(backend.hardware.name)
    sought = ", ".join([*backend.hardware.nodes, *(f"PCI {pattern}" for pattern in backend.hardware.pci_ids)])
    if not backend.hardware.pci_ids:  # then the bus does not show whether there is a device
        place = _place(case)
        if place.container and (step := place.step(backend)):
            return no_device(f"{place.name} has none of {sought}", f"if the host has {named}, {step}")
        if backend.hardware.driver_file and not hardware.path_exists(backend.hardware.driver_file, root):
            reason = f"this machine has none of {sought}, and the driver of {named} is not loaded"
            return no_device(reason, f"if it has {named}, {backend.hardware.driver_step}")
    build = torch_build() if backend.in_torch.builds else None
    if not backend.hardware.name or not backend.hardware.pci_ids:
        reason = f"this machine has none of {sought}"
    elif build is not None and build.has_any(backend.in_torch.builds):
        reason = f"torch {build.version} is {build.kind}, and this machine has no {backend.hardware.name}"
    else:
        reason = f"this machine has no {backend.hardware.name} (none of {sought})"
    # Of a scheduler that chose this machine, which lacks the device, another is to be requested.
    scheduled = "SLURM_JOB_ID" in os.environ or "KUBERNETES_SERVICE_HOST" in os.environ
    step = _place(case).schedulers_step(backend) if backend.hardware.name and scheduled else ""
    return no_device(reason, f"if the cluster has {named}, {step}" if step else "")


def _torch_built_for_it(case: Case) -> Outcome | None:
    """Whether torch was built with what the backend needs of it.

    A torch that lacks the device type lacks every build that brings it: "without CUDA and ROCm".
    """
    backend = case.backend
    build = torch_build() if backend.in_torch.builds else None
    if build is None or build.has_any(backend.in_torch.builds):
        return None
    needed = ("cuda", "hip") if backend.device_type == "cuda" else backend.in_torch.builds
    lacking = " and ".join(BUILDS[name] for name in needed if not getattr(build, name))
    reason = f"torch {build.version} is {build.kind}, without {lacking}"
    return Outcome(Status.NO_DEVICE, reason, backend.install_hint)


def _not_hidden(case: Case) -> Outcome | None:
    backend = case.backend
    names = backend.visibility.filters + backend.visibility.variables
    if case.is_running or not any(name in os.environ for name in names):
        return None
    # Here, as its patterns cost more than all the other steps.
    from accel_core.hardware.visible_devices import masks, there

    # What a runtime makes of a malformed value, or of a number that no node has, it must tell.
    hides = masks(backend, os.environ).devices == ()
    return device.hidden(backend, masks(backend, os.environ, there(backend, case.root))) if hides else None


def _driver_loaded(case: Case) -> Outcome | None:
    """Why a device that is on the bus has no device node: no driver, or a container without its devices."""
    backend, evidence, root = case.backend, case.evidence, case.root
    if not evidence or evidence.nodes or not backend.hardware.name or case.is_running:
        return None
    if bus.device_nodes(backend.hardware.shared_nodes, root):
        return None
    named = bus.with_article(backend.hardware.name)
    if backend.hardware.driver_file and not hardware.path_exists(backend.hardware.driver_file, root):
        reason = f"{named} is on the bus ({evidence}), but its driver is not loaded"
        return no_device(reason, backend.hardware.driver_step)
    nodes = " or ".join([*backend.hardware.nodes[:1], *backend.hardware.shared_nodes[:1]])
    place = _place(case)
    if nodes and place.container and (step := place.step(backend)):
        return no_device(f"the host has {named} ({evidence}), but {place.name} has no {nodes}", step)
    return None  # some drivers make their nodes at the first use


def _requirements(case: Case) -> Outcome | None:
    """Required distributions and their versions, from metadata; markers that do not apply are passed over.

    Last, for reading version ranges costs more than all the rest together.
    """
    for text in case.backend.requires:
        try:
            name, installed, is_met = requirement(text)
        except (ValueError, RecursionError) as error:
            reason = f"its requirement {short_repr(text)} cannot be checked: {error}"
            return Outcome(Status.INVALID, reason, error=error)
        if not is_met and installed is None:
            hint = case.backend.install_hint or f"pip install '{text}'"
            return Outcome(Status.NOT_INSTALLED, f"{name} is not installed", hint)
        if not is_met:
            reason = f"it needs {text} and {name} {installed} is installed"
            return Outcome(Status.INCOMPATIBLE, reason, _setup(case.backend) or f"pip install '{text}'")
    return None


def _setup(backend: Backend) -> str:
    """The command of accel-tools that installs everything; empty for a plugin with a hint of its own."""
    return backend.install_hint if backend.install_hint.startswith("accel setup") else ""


#: In this order; each rules the candidate out, or passes with `None`.
_STEPS: tuple[Callable[[Case], Outcome | None], ...] = (
    _policy, _unread, _platform, _vendor_installed, _fits_torch, _own_namespace, _on_the_machine,
    _torch_built_for_it, _not_hidden, _driver_loaded, _requirements,
)  # fmt: skip
