"""Turn each reason of a verdict into a text and a next step.

`_WORDS` contains a function for each reason. The function gets the verdict, its `Why`,
and whether the text is to be plain. A plain text leaves out the evidence, which is
shown elsewhere on the page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from accel_core import __version__, hardware
from accel_core.backend import Backend
from accel_core.errors import BackendUnavailableError
from accel_core.exceptions import hint_for
from accel_core.explain.device_access import (
    access_step,
    container_name,
    permission_step,
    scheduler_step,
    withheld_clause,
)
from accel_core.hardware import bus
from accel_core.hardware.placement import Placement, denied_nodes, detect_placement
from accel_core.hardware.vendors import (
    FIRST_PARTY,
    command_with_its_package,
    install_command,
    reinstall_command,
)
from accel_core.hardware.visible_devices import (
    VisibleDevices,
    inventory,
    read_visible_devices,
)
from accel_core.packages import distribution_of_module
from accel_core.sandbox.guard import CodeOwner
from accel_core.settings import Pin
from accel_core.text import one_line, short_repr, strip_period
from accel_core.verdict import Reason, Status, Verdict, Why, Words


def words_of(verdict: Verdict, *, plain: bool = False) -> Words:
    """Return the reason for the backend's status and the next step, in English.

    With `plain`, the reason contains no device nodes and PCI ids of this machine and no
    patterns of device nodes. An absent device is then described only as "not found".
    """
    words = _words_of_verdict(verdict, plain)
    if plain and verdict.absent and verdict.status is Status.NO_DEVICE:
        words = Words(bus.none_found([verdict.hardware]), words.step)
    if verdict.package_failure is not None:
        words = _add_package_failure(words, verdict, verdict.package_failure)
    return Words(
        strip_period(one_line(words.clause)),
        strip_period(command_with_its_package(one_line(words.step))),
        strip_period(one_line(words.second_clause)),
        strip_period(one_line(words.cause)),
    )


def _words_of_verdict(verdict: Verdict, plain: bool) -> Words:
    if verdict.why is None:
        return Words()
    return _words_of_reason(verdict.why, verdict, plain)


def _words_of_reason(why: Why, verdict: Verdict, plain: bool) -> Words:
    return _WORDS[why.reason](verdict, why, plain)


def _add_package_failure(words: Words, verdict: Verdict, broken: Verdict) -> Words:
    """Add the failure of the vendor's package to the reason of a missing device.

    The next step is to uninstall the package, because repairing the package would not
    add a device.
    """
    failure = _words_of_verdict(broken, plain=False)
    step = strip_period(command_with_its_package(one_line(failure.step)))
    package = _installed_vendor_distribution(verdict)
    uninstall = f"pip uninstall {package}"
    if verdict.absent and package and uninstall not in step:
        repair = ""
        if step:
            repair = f" (On a machine with the device, do this instead: {step}.)"
        step = f"{uninstall}.{repair}"
    reason = strip_period(one_line(words.text))
    clause = f"{reason}; besides, {strip_period(failure.text_without_cause)}"
    return Words(clause, step, cause=failure.cause)


def _installed_vendor_distribution(verdict: Verdict) -> str:
    """Return the distribution of the installed vendor's package, or an empty string if
    there is none, or if it is torch.
    """
    for module in verdict.vendor_import:
        name, _version = distribution_of_module(module)
        if name and name != "torch":  # torch belongs to no vendor.
            return name
    return ""


def _join(parts: Iterable[str], separator: str = "; ") -> str:
    return separator.join(part for part in parts if part)


# --- The settings and the other plugins -------------------------------------------------


def _blocked(verdict: Verdict, why: Why, _plain: bool) -> Words:
    if why.get("variable") == "ACCEL_BLOCK":
        return Words(
            "excluded by ACCEL_BLOCK", f"remove {why['rule']} from ACCEL_BLOCK"
        )
    if why.get("variable") == "ACCEL_ALLOW":
        text = "not listed in ACCEL_ALLOW"
        return Words(text, f"add {verdict.name} to ACCEL_ALLOW")
    return Words("blocked by policy; the plugin was not loaded")


def _conflict(verdict: Verdict, why: Why, _plain: bool) -> Words:
    name = verdict.name
    other_distributions = ", ".join(why["rivals"])
    pin = f"DS_ACCELERATOR={name}@{verdict.distribution}"
    return Words(
        f"{other_distributions} declares {name} too",
        f"set {pin}, or name the other distribution in ACCEL_BLOCK",
    )


def _not_declared(verdict: Verdict, why: Why, _plain: bool) -> Words:
    name = verdict.name
    if why["distribution"]:
        name = f"{name} from {why['distribution']}"
    step = how_to_declare(Pin(verdict.name, why["distribution"]))
    return Words(f"no installed distribution declares {name}", step)


#: Names of other kinds of device, which are not misspelled names of backends.
OTHER_KINDS = ("tpu", "ipu", "gcu", "vpu", "vulkan", "xla")


def how_to_declare(pin: Pin) -> str:
    """Return the next step that makes the requested backend available."""
    distribution = FIRST_PARTY.get(pin.name, "")
    if distribution and pin.distribution in ("", distribution):
        return install_command(distribution)
    if pin.name in OTHER_KINDS:
        return f"install a plugin for {pin.name}, or write one: accel new --help"
    return "correct the name"


def _outranked(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    return Words(f"lower priority than {why['by']}")


def _not_asked(_verdict: Verdict, _why: Why, _plain: bool) -> Words:
    return Words("installed, not probed")


def _not_loaded(_verdict: Verdict, _why: Why, _plain: bool) -> Words:
    return Words("its plugin was not loaded")


# --- The plugin -------------------------------------------------------------------------


def _plugin_fails(verdict: Verdict, why: Why, _plain: bool) -> Words:
    step = why.get("step")
    if not step:
        reinstall = reinstall_command(verdict.distribution)
        step = f"{reinstall}, or pip uninstall {verdict.distribution}"
    text = f"the plugin failed to load ({why['entry_point']})"
    return Words(text, step, cause=verdict.cause)


def _plugin_fails_beside_others(verdict: Verdict, why: Why, _plain: bool) -> Words:
    return Words(
        "the plugin loads alone, but failed to load together with other plugins "
        f"({why['entry_point']})",
        "to find the cause, name the other plugins in ACCEL_BLOCK, one at a time",
        cause=verdict.cause,
    )


def _declaration_invalid(verdict: Verdict, why: Why, _plain: bool) -> Words:
    text = f"{why['text']} ({why['entry_point']})"
    step = why.get("step")
    if not step:
        step = _report_step(verdict)
    return Words(text, step)


def _report_step(verdict: Verdict) -> str:
    return f"report this to the maintainers of {verdict.distribution}"


def _needs_other_core(verdict: Verdict, why: Why, _plain: bool) -> Words:
    text = f"needs a version of accel-core other than {__version__} ({why['at']})"
    upgrade = "pip install --upgrade accel-core"
    return Words(text, upgrade, cause=verdict.cause)


def _hook_does_not_fit(verdict: Verdict, _why: Why, _plain: bool) -> Words:
    return Words(
        "a hook does not match accel-core's hook specification",
        f"pip install --upgrade {verdict.distribution} accel-core",
        cause=verdict.cause,
    )


def _answer_invalid(verdict: Verdict, why: Why, _plain: bool) -> Words:
    # For example: "device_count() returned 'two' (str), expected a number of devices".
    value = why["value"]
    if why["field"]:
        value = f"{why['field']}={value}"
    call_and_value = f"{why['call']} {value} ({why['kind']})"
    return Words(f"{call_and_value}, expected {why['expected']}", _report_step(verdict))


def _text_and_step(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    return Words(why["text"], why.get("step"))


# --- What is installed ------------------------------------------------------------------


def _vendor_not_installed(verdict: Verdict, why: Why, plain: bool) -> Words:
    # Any one of the modules would do, but every distribution is needed.
    missing = [" or ".join(why["modules"]), *why["distributions"]]
    verb = "are" if len(missing) > 1 else "is"
    text = f"{' and '.join(missing)} {verb} not installed"
    if verdict.hardware_signs:
        text += ", though the hardware is present"
        if not plain:
            text += f": {verdict.evidence}"
    return Words(text, verdict.declaration.install_hint)


def _distribution_not_installed(verdict: Verdict, why: Why, _plain: bool) -> Words:
    step = verdict.declaration.install_hint
    if not step and why.get("requirement"):
        step = f"pip install '{why['requirement']}'"
    return Words(f"{why['name']} is not installed", step)


def _requirement_not_met(verdict: Verdict, why: Why, _plain: bool) -> Words:
    text = why["requirement"]
    installed = f"{why['name']} {why['installed']} is installed"
    step = _setup_command(verdict) or f"pip install '{text}'"
    return Words(f"the backend requires {text}, but {installed}", step)


def _requirement_malformed(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    requirement = short_repr(why["requirement"])
    return Words(f"the requirement {requirement} cannot be checked: {why['text']}")


def _made_for_other_torch(verdict: Verdict, why: Why, _plain: bool) -> Words:
    package = f"{why['name']} {why['installed']}"
    release, torch = why["release"], why["torch"]
    text = f"{package} works with torch {release} only, but torch {torch} is installed"
    backend = verdict.declaration
    # The plugin's hints may match this reason, as they match errors.
    step = hint_for(BackendUnavailableError(text), backend.hints)
    if not step:
        step = _setup_command(verdict)
    if not step:
        step = f"pip install 'torch=={release}.*'"
        if backend.install_hint:
            step += f", or: {backend.install_hint}"
    return Words(text, step)


def _setup_command(verdict: Verdict) -> str:
    """Return the install hint if it is a command of accel-tools, or otherwise an empty string."""
    hint = verdict.declaration.install_hint
    return hint if hint.startswith("accel setup") else ""


def _torch_lacks_build(verdict: Verdict, why: Why, _plain: bool) -> Words:
    lacking = " and ".join(why["toolkits"])
    text = f"torch {why['torch']} is {why['build']}, without {lacking}"
    return Words(text, verdict.declaration.install_hint)


def _namespace_taken(verdict: Verdict, why: Why, _plain: bool) -> Words:
    package = why["by"]
    return Words(
        f"torch.{verdict.device_type} is overridden by {package}",
        f"choose the backend of {package}'s vendor, or do not load {package}",
    )


# --- The machine ------------------------------------------------------------------------


def _other_platform(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    return Words(f"this device exists on {', '.join(why['platforms'])} only")


def _no_hardware(verdict: Verdict, why: Why, plain: bool) -> Words:
    backend, root = verdict.declaration, why["root"]
    signs = _expected_signs(backend, plain)
    device = bus.with_article(backend.hardware.name)
    if not backend.hardware.pci_ids:  # The PCI bus does not show such a device.
        explanation = _explain_missing_nodes(backend, signs, device, root)
        if explanation is not None:
            return explanation
    text = _missing_hardware_clause(backend, why)
    # Only the clause "no NVIDIA GPU found" leaves open what was searched for.
    if backend.hardware.pci_ids and backend.hardware.name and not why["torch"]:
        text += f" (looked for {signs})"
    step = _scheduler_step(backend, root) if backend.hardware.name else ""
    if step:
        return Words(text, f"if the cluster has {device}, {step}")
    return Words(text, _step_for_idle_package(verdict))


def _step_for_idle_package(verdict: Verdict) -> str:
    """Return the next step for a vendor's package without its device, or an empty
    string if no such package is installed.
    """
    package = _installed_vendor_distribution(verdict)
    device = verdict.declaration.hardware.name
    if not package or not device:
        return ""
    return f"run on a machine that has {bus.with_article(device)}, or pip uninstall {package}"


def _missing_hardware_clause(backend: Backend, why: Why) -> str:
    """Return a clause that this machine lacks the device, with the build of torch that
    needs the device.
    """
    if not backend.hardware.name or not backend.hardware.pci_ids:
        return f"{_expected_signs(backend, plain=False)} not found"
    missing = bus.none_found([backend.hardware.name])
    if why["torch"]:
        return f"torch {why['torch']} is {why['build']}, and {missing}"
    return missing


def _expected_signs(backend: Backend, plain: bool) -> str:
    """Return the device nodes and PCI ids by which the device is detected. With
    `plain`, each pattern of nodes becomes the name of the first node.
    """
    ids = [f"PCI {pattern}" for pattern in backend.hardware.pci_ids]
    signs = ", ".join([*backend.hardware.nodes, *ids])
    if plain:
        return _with_first_number(signs)
    return signs


def _with_first_number(node_patterns: str) -> str:
    """Return `"/dev/nvidia0"`, for example, for `"/dev/nvidia[0-9]*"`."""
    return node_patterns.replace("[0-9]*", "0")


def _explain_missing_nodes(
    backend: Backend, nodes: str, device: str, root: str
) -> Words | None:
    """Explain missing device nodes by the container or the driver, or return `None` if
    neither explains them.
    """
    place = detect_placement(root)
    step = access_step(place, backend) if place.container else ""
    if step:
        text = f"{nodes} not found in this {container_name(place)}"
        return Words(text, f"if the host has {device}, {step}")
    driver_file = backend.hardware.driver_file
    if driver_file and not hardware.path_exists(driver_file, root):
        text = f"{nodes} not found, and the driver of {device} is not loaded"
        step = backend.hardware.driver_step
        return Words(text, f"if this machine has {device}, {step}")
    return None


def _scheduler_step(backend: Backend, root: str) -> str:
    """Return how to request the device from the job scheduler, or an empty string
    outside of jobs.
    """
    is_in_job = "SLURM_JOB_ID" in os.environ or "KUBERNETES_SERVICE_HOST" in os.environ
    if not is_in_job:
        return ""
    return scheduler_step(detect_placement(root), backend)


def _driver_not_loaded(verdict: Verdict, _why: Why, plain: bool) -> Words:
    backend = verdict.declaration
    device = bus.with_article(backend.hardware.name)
    evidence = "" if plain else f" ({verdict.evidence})"
    text = f"{device} is on the PCI bus{evidence}, but its driver is not loaded"
    return Words(text, backend.hardware.driver_step)


def _nodes_withheld(verdict: Verdict, why: Why, plain: bool) -> Words:
    backend = verdict.declaration
    device = bus.with_article(backend.hardware.name)
    evidence = "" if plain else f" ({verdict.evidence})"
    node_patterns = []
    for patterns in (backend.hardware.nodes, backend.hardware.shared_nodes):
        if patterns:
            node_patterns.append(patterns[0])
    missing_nodes = " or ".join(node_patterns)
    if plain:
        missing_nodes = _with_first_number(missing_nodes)
    place = detect_placement(why["root"])
    container = container_name(place)
    return Words(
        f"the host has {device}{evidence}, but this {container} has no {missing_nodes}",
        access_step(place, backend),
    )


def _hidden(verdict: Verdict, why: Why, _plain: bool) -> Words:
    backend = verdict.declaration
    devices = inventory(backend, why["root"])
    visible_devices = read_visible_devices(backend, why["environ"], devices)
    place = detect_placement(why["root"])
    step = visible_devices.next_step
    # In a job without devices, Slurm sets the variable to NoDevFiles or an empty string.
    if place.is_withheld_by_slurm(backend):
        step = scheduler_step(place, backend)
    clauses = [str(visible_devices), withheld_clause(place, backend)]
    return Words(_join(clauses), step)


# --- The device -------------------------------------------------------------------------


def _counts_none(verdict: Verdict, why: Why, plain: bool) -> Words:
    """Explain why the vendor's runtime counts no device, by the most likely cause."""
    backend, root = verdict.declaration, why["root"]
    devices = inventory(backend, root)
    visible_devices = read_visible_devices(backend, why["environ"], devices)
    if visible_devices.faulty:
        return _hidden(verdict, why, plain)
    place = detect_placement(root)
    evidence = bus.evidence(backend, root) or bus.Evidence()
    denied = denied_nodes(evidence.nodes, root)
    if denied:
        nodes = bus.enumerated(denied)
        text = f"this process has no permission to open {nodes}"
        step = permission_step(place, backend, denied[0], root)
        return Words(_join([text, withheld_clause(place, backend)]), step)
    explanation = _explain_by_libraries(place, evidence.nodes, backend)
    if explanation is not None:
        return explanation
    return _explain_by_variables(visible_devices)


def _explain_by_variables(visible_devices: VisibleDevices) -> Words:
    """Explain that no device is counted, with the visible-devices variables that the
    runtime reads. These variables may be the reason.
    """
    text = "the vendor's runtime counts no device"
    settings = []
    last_variable = ""
    for effect in visible_devices.effects:
        if not effect.overruled_by:
            settings.append(str(effect))
            last_variable = effect.variable
    if not settings:
        return Words(text)
    step = f"unset {last_variable}, or set it to devices that exist"
    return Words(f"{text} with {' and '.join(settings)}", step)


def _explain_by_libraries(
    place: Placement, nodes: tuple[str, ...], backend: Backend
) -> Words | None:
    """Explain that no device is counted in a container that has device nodes but lacks
    the vendor's libraries.

    Apptainer shows the host's nodes in every container. Another container that has
    nodes was started with them, so the step would repeat what the user did. The result
    is `None` for such a container.
    """
    # Every Apptainer container has the host's device nodes, but the vendor's libraries
    # only if it was started with an option.
    if not nodes or place.container != "apptainer":
        return None
    step = access_step(place, backend)
    if not step:
        return None
    container = container_name(place)
    existing_nodes = bus.enumerated(nodes)
    return Words(
        f"the vendor's runtime counts no device in this {container}, although the "
        f"container has {existing_nodes}",
        step,
    )


def _unavailable(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    return Words(why["text"], why["step"], cause=why.get("cause"))


def _vendor_fails(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    return Words(why["what"], why["step"], cause=why["cause"])


def _registers(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    package, device_type, count = why["package"], why["device_type"], why["count"]
    if count:
        return Words(
            f"{package} registers {device_type!r} with torch, and counts {count}"
        )
    return Words(
        f"{package} registers {device_type!r} with torch, but counts no device",
        "run the vendor's tool to see whether the driver finds the device",
    )


def _torch_has_none(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    if not why.get("torch"):  # This torch was imported, so its build is not described.
        return Words("torch reports no accelerator")
    torch = why["torch"]
    if why["claims"]:
        # For example: "torch-npu: npu", a package and the backend that declares it.
        packages_and_backends = ", ".join(why["claims"])
        return Words(
            f"{torch} has no accelerator of its own; the packages that add one belong to "
            f"other backends ({packages_and_backends})"
        )
    if why["undeclared"]:
        return Words(f"{torch} has no accelerator")
    return Words(f"{torch} has no accelerator, and no installed package adds one")


def _declared_by(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    if why.get("backends"):
        backends = ", ".join(why["backends"])
        return Words(f"{backends} declares the device")
    return Words(f"an installed plugin declares {why['device_type']}")


def _crashed(verdict: Verdict, why: Why, _plain: bool) -> Words:
    # For example: "the process that probed it died of SIGSEGV at: importing torch_npu".
    process = f"the process that {why['did']}"
    text = f"{process} {why['ending']} at: {why['stage']}{why['last_words']}"
    owner = why["owner"]
    if owner == CodeOwner.PLUGIN:
        step = _report_step(verdict)
    else:
        step = "find the cause with accel doctor"
    return Words(text, f"{step}, or set ACCEL_BLOCK={verdict.name}")


def _timed_out(verdict: Verdict, why: Why, _plain: bool) -> Words:
    text = f"no response within {why['seconds']:g} s; last step: {why['stage']}"
    return Words(text, f"raise ACCEL_PROBE_TIMEOUT, or set ACCEL_BLOCK={verdict.name}")


def _no_process(_verdict: Verdict, why: Why, _plain: bool) -> Words:
    is_isolated = os.environ.get("ACCEL_PROBE", "").strip().lower() == "isolated"
    step = "unset ACCEL_PROBE to probe in this process" if is_isolated else ""
    return Words(f"could not start a child process for the probe: {why['text']}", step)


# --- Two reasons in one -----------------------------------------------------------------


def _pinned_without_device(verdict: Verdict, why: Why, plain: bool) -> Words:
    reason_without_pin = why["because"]
    if reason_without_pin:
        words = _words_of_reason(reason_without_pin, verdict, plain)
    else:
        words = Words()
    clause = f"pinned, though {words.text_without_cause}"
    return Words(clause, words.step, cause=words.cause)


def _nor_hardware(verdict: Verdict, why: Why, plain: bool) -> Words:
    backend = verdict.declaration
    missing = _missing_hardware_clause(backend, why["hardware"])
    other_reason = _words_of_reason(why["because"], verdict, plain)
    device = "the device"
    if backend.hardware.name:
        device = bus.with_article(backend.hardware.name)
    step = f"run on a machine that has {device}"
    if other_reason.step:
        # These machines lack the device, but prepare software for machines that have it.
        step += f"; or, on a login node or in an image build: {other_reason.step}"
    return Words(
        missing,
        step,
        second_clause=other_reason.text_without_cause,
        cause=other_reason.cause,
    )


_WORDS: dict[Reason, Callable[[Verdict, Why, bool], Words]] = {
    Reason.BLOCKED: _blocked,
    Reason.CONFLICT: _conflict,
    Reason.NOT_DECLARED: _not_declared,
    Reason.OUTRANKED: _outranked,
    Reason.NOT_ASKED: _not_asked,
    Reason.NOT_LOADED: _not_loaded,
    Reason.PLUGIN_FAILS: _plugin_fails,
    Reason.PLUGIN_FAILS_BESIDE_OTHERS: _plugin_fails_beside_others,
    Reason.DECLARATION_INVALID: _declaration_invalid,
    Reason.NEEDS_OTHER_CORE: _needs_other_core,
    Reason.HOOK_DOES_NOT_FIT: _hook_does_not_fit,
    Reason.ANSWER_INVALID: _answer_invalid,
    Reason.ACCELERATOR_INVALID: _text_and_step,
    Reason.PLUGIN_ANSWERS: _text_and_step,
    Reason.VENDOR_NOT_INSTALLED: _vendor_not_installed,
    Reason.DISTRIBUTION_NOT_INSTALLED: _distribution_not_installed,
    Reason.REQUIREMENT_NOT_MET: _requirement_not_met,
    Reason.REQUIREMENT_MALFORMED: _requirement_malformed,
    Reason.MADE_FOR_OTHER_TORCH: _made_for_other_torch,
    Reason.TORCH_LACKS_BUILD: _torch_lacks_build,
    Reason.NAMESPACE_TAKEN: _namespace_taken,
    Reason.OTHER_PLATFORM: _other_platform,
    Reason.NO_HARDWARE: _no_hardware,
    Reason.DRIVER_NOT_LOADED: _driver_not_loaded,
    Reason.NODES_WITHHELD: _nodes_withheld,
    Reason.HIDDEN: _hidden,
    Reason.COUNTS_NONE: _counts_none,
    Reason.VENDOR_FAILS: _vendor_fails,
    Reason.UNAVAILABLE: _unavailable,
    Reason.REGISTERS: _registers,
    Reason.TORCH_HAS_NONE: _torch_has_none,
    Reason.DECLARED_BY: _declared_by,
    Reason.CRASHED: _crashed,
    Reason.TIMED_OUT: _timed_out,
    Reason.NO_PROCESS: _no_process,
    Reason.PINNED_WITHOUT_DEVICE: _pinned_without_device,
    Reason.NOR_HARDWARE: _nor_hardware,
}
