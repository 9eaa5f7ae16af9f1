"""Implement `accel frameworks`, which lists how each installed framework supports the chosen accelerator."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

import click

from accel_core import Backend, packages
from accel_core.cli import output as options
from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.errors import BackendNotFoundError, BackendUnavailableError
from accel_core.explain import messages
from accel_core.hardware import vendors
from accel_core.isolation import IsolatedLoader
from accel_core.plugins import find_backends
from accel_core.settings import Pin, Settings
from accel_core.text import one_line
from accel_train.child_accelerator import Chosen, Progress, run_in_child
from accel_train.integrations.catalogue import FRAMEWORKS, Framework

__all__ = ["command", "support_of"]

_DISTRIBUTION = "accel-train"
#: The device type that the backend `generic` declares. That backend covers any device without a plugin.
_GENERIC_DEVICE_TYPE = "privateuseone"
_TITLES = ("FRAMEWORK", "RELEASE", "SUPPORT", "HOW, OR WHY NOT")
_STYLES = {
    "native": "dim",
    "supported": "green",
    "partial": "yellow",
    "unsupported": "red",
}


class BackendNames(NamedTuple):
    """The names of the backend that `accel frameworks` reports on."""

    name: str
    distribution: str
    #: The backend's device type in torch, or an empty string if only the device itself reports the type.
    device_type: str
    #: The namespace of torch that the vendor takes over, such as `cuda`, or an empty string if there is none.
    takes_over: str = ""

    @property
    def all_names(self) -> set[str]:
        """Return all names that a framework may use for the backend."""
        return {self.name, self.device_type, self.takes_over}


class Support(NamedTuple):
    """A framework's level of support for a backend's device."""

    #: `native`: the framework itself supports the device. `supported`: an adapter of accel-train supports it.
    #: `partial`: some features do not work, or the program must pass the device. `unsupported`: the adapter
    #: is missing.
    level: str
    #: How to use the framework with the device, or why that is not possible.
    explanation: str


@click.command("frameworks")
@options.backend_name
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="Also list frameworks that are not installed.",
)
@options.probe_timeout
@options.as_json
def command(
    name: Pin | None, *, show_all: bool, timeout: float | None, as_json: bool
) -> None:
    """Show how well the installed frameworks support the accelerator.

    Reports on the chosen accelerator, or on NAME. The report is based on metadata, and no framework is
    imported. "native": the framework itself supports the device. "supported": an adapter of accel-train
    supports the device. "partial": the program must pass the device, or some features do not work.
    "unsupported": the installed accel-train has no adapter for the framework. With NAME, the command needs
    neither torch nor a device.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        if name is None:
            backend = _chosen_backend(settings)
        else:
            backend = _named_backend(name, settings)
        rows = [_framework_row(framework, backend) for framework in FRAMEWORKS]
        listed_rows = rows
        if not show_all:
            listed_rows = [row for row in rows if row["installed"]]
        if as_json:
            output.write_json({**backend._asdict(), "frameworks": listed_rows})
        else:
            omitted_count = len(rows) - len(listed_rows)
            output.write_page(_report_page(backend, listed_rows, omitted_count))


def _chosen_backend(settings: Settings) -> BackendNames:
    """Return the names of the chosen accelerator's backend, with the device type that the device reports."""
    result = run_in_child(
        device_type_in_child, {}, settings, None, timeout=settings.probe_timeout
    )
    return _backend_names(result.backend, result.value["device_type"])


def device_type_in_child(
    chosen: Chosen, _arguments: dict[str, Any], report_progress: Progress
) -> dict[str, Any]:
    """Return `{"device_type": …}`, the accelerator's device type in torch. Runs in the child process."""
    report_progress("device()")
    return {"device_type": chosen.accelerator.device().type}


def _named_backend(name: Pin, settings: Settings) -> BackendNames:
    """Return the names of the backend that the user called `name`, from a plugin's declaration.

    Raises `BackendNotFoundError` if no plugin declares `name`. Raises `BackendUnavailableError` if none of
    the plugins that declare it can be loaded.
    """
    loader = IsolatedLoader(settings.probe_timeout)
    failures = []
    for candidate in find_backends(name, settings, loader):
        if candidate.backend is not None:
            device_type = _declared_device_type(candidate.backend, name)
            return _backend_names(candidate.backend, device_type)
        failures.append(f"{candidate.provenance}: {candidate.reason}")
    if not failures:
        raise BackendNotFoundError(
            messages.not_found_message(f"accel frameworks {name}", name)
        )
    raise BackendUnavailableError(". ".join([*failures, f"See: accel why {name}"]))


def _declared_device_type(backend: Backend, typed_name: Pin) -> str:
    """Return the backend's device type in torch.

    The backend `generic` declares no particular type. If the user typed a device type, which selected
    `generic`, the result is that device type. If the user typed `generic`, the result is empty, because only
    the device itself reports the type.
    """
    if backend.device_type != _GENERIC_DEVICE_TYPE:
        return backend.device_type
    is_generic_typed = typed_name.name == backend.name
    if is_generic_typed:
        return ""  # Only the device itself reports its type.
    # The user typed a device type.
    return typed_name.name


def _backend_names(backend: Backend, device_type: str) -> BackendNames:
    return BackendNames(
        backend.name,
        backend.distribution,
        device_type,
        backend.torch_integration.takes_over,
    )


# --- one framework -------------------------------------------------------------------------------------


def support_of(framework: Framework, backend: BackendNames) -> Support:
    """Return how well a framework supports a backend's device, and how to use the framework with it."""
    if backend.device_type == "cpu":
        return Support("native", "every framework supports the CPU")
    native_names = backend.all_names.intersection(framework.native_devices)
    if native_names:
        # If the framework uses several of the backend's names, any one identifies the device.
        native_name = max(native_names)
        return Support("native", f"supports {native_name} without accel")
    if not framework.adapter:
        return Support("partial", f"{framework.usage}; {framework.limitation}")
    problem = _missing_adapter_problem(framework)
    if problem:
        return Support("unsupported", problem)
    usage = _adapter_usage(framework)
    if framework.limitation:
        return Support("partial", f"{usage}; {framework.limitation}")
    return Support("supported", usage)


def _missing_adapter_problem(framework: Framework) -> str:
    """Return which adapter the installed accel-train lacks for a framework, and the next step.

    Returns an empty string if the adapter exists.
    """
    release = f"{_DISTRIBUTION} {packages.version(_DISTRIBUTION) or ''}".strip()
    upgrade = vendors.install_command(_DISTRIBUTION, option="--upgrade")
    if framework.group:
        if not _entry_point_names(framework):
            return (
                f"{release} has no entry point in the group {framework.group}. Next step: "
                f"{upgrade}"
            )
    elif find_spec(framework.adapter) is None:  # This does not import the framework.
        return f"{release} has no module {framework.adapter}. Next step: {upgrade}"
    return ""


def _adapter_usage(framework: Framework) -> str:
    """Return how a framework gets its adapter: by an entry point, from `accel run`, or from the program."""
    if framework.group:
        first_name, *_ = _entry_point_names(framework)
        return f"automatic, by the entry point {first_name!r} in the group {framework.group}"
    entry_points = packages.entry_points("accel.integrations")
    automatic_integrations = [entry_point.name for entry_point in entry_points]
    if framework.integration in automatic_integrations:
        return f"automatic under accel run; otherwise use {framework.adapter}"
    return f"use {framework.adapter}"


def _entry_point_names(framework: Framework) -> list[str]:
    """Return the names of the installed entry points that load the framework's adapter."""
    names = []
    for entry_point in packages.entry_points(framework.group):
        if entry_point.module == framework.adapter:
            names.append(entry_point.name)
    return names


def _framework_row(framework: Framework, backend: BackendNames) -> dict[str, Any]:
    """Return a framework's entry for the JSON document, which is also its row in the printed table."""
    support = support_of(framework, backend)
    return {
        "framework": framework.name,
        "distribution": framework.distribution,
        "installed": packages.version(framework.distribution) or None,
        "support": support.level,
        "why": support.explanation,
        "group": framework.group,
        "adapter": framework.adapter,
        "url": framework.url,
    }


# --- the page ------------------------------------------------------------------------------------------


def _report_page(
    backend: BackendNames, rows: list[dict[str, Any]], omitted_count: int
) -> list[page.Part]:
    """Return the page: a table of the frameworks, the backend, and the number of omitted frameworks."""
    backend_text = (
        f"Backend: {one_line(backend.name)} ({one_line(backend.distribution)})"
    )
    if backend.device_type not in ("", backend.name):
        device_type = one_line(backend.device_type)
        backend_text += f", whose device type in torch is {device_type}"
    parts: list[page.Part] = []
    if rows:
        cells = [
            [
                (row["framework"], "bold"),
                (one_line(row["installed"] or "-"), ""),
                (row["support"], _STYLES[row["support"]]),
                (one_line(row["why"]), ""),
            ]
            for row in rows
        ]
        parts += [page.table(_TITLES, cells), page.paragraph()]
    note = f"{backend_text}. For another backend, run accel frameworks NAME."
    parts.append(page.paragraph((note, "")))
    if omitted_count:
        count = page.count(omitted_count, "framework")
        omitted_text = f"Not installed: {count}. To list all frameworks, run accel frameworks --all."
        parts.append(page.paragraph((omitted_text, "dim")))
    return parts
