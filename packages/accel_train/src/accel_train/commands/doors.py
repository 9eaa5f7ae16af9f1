"""`accel doors`: how each installed framework can use an accelerator that it does not know."""

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
from accel_train.child_accelerator import Chosen, Step, answer_of
from accel_train.doors.catalogue import DOORS, Door

__all__ = ["command", "standing_of"]

_OURS = "accel-train"
#: The device type that `generic` declares, for what torch reports and no plugin knows.
_PLACEHOLDER = "privateuseone"
_TITLES = ("FRAMEWORK", "RELEASE", "DOOR", "HOW, OR WHY NOT")
_STYLES = {"own": "dim", "open": "green", "half": "yellow", "shut": "red"}


class Asked(NamedTuple):
    """The backend that `accel doors` reports on."""

    name: str
    distribution: str
    #: torch's type of its device; empty where only the device has it.
    device_type: str
    #: The namespace that its vendor takes over.
    impersonates: str = ""

    @property
    def known_as(self) -> set[str]:
        """Return the names by which a framework may know the backend."""
        return {self.name, self.device_type, self.impersonates}


class Standing(NamedTuple):
    """The state of a door (`own`, `open`, `half`, `shut`), and how to use it or why it is shut."""

    state: str
    why: str


@click.command("doors")
@options.backend_name
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also list frameworks that are not installed.",
)
@options.probe_timeout
@options.as_json
def command(
    name: Pin | None, *, everything: bool, timeout: float | None, as_json: bool
) -> None:
    """List the installed frameworks, and how each takes the device.

    For the chosen accelerator or NAME, from metadata: no framework is imported. "own": the framework drives
    the device by itself. "open": accel-train connects it. "half": it runs there with the named line, or in
    part. "shut": the installed accel-train lacks the adapter. With NAME it needs neither torch nor a device.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        asked = _chosen(settings) if name is None else _named(name, settings)
        rows = [_row(door, asked) for door in DOORS]
        listed = [row for row in rows if everything or row["installed"]]
        if as_json:
            output.write_json({**asked._asdict(), "doors": listed})
        else:
            output.write_page(_page(asked, listed, left_out=len(rows) - len(listed)))


def _chosen(settings: Settings) -> Asked:
    found = answer_of(
        device_type_in_child, {}, settings, None, timeout=settings.probe_timeout
    )
    return _asked(found.backend, found.answer["device_type"])


def device_type_in_child(
    chosen: Chosen, _arguments: dict[str, Any], step: Step
) -> dict[str, Any]:
    """In the child: return torch's device type of the accelerator."""
    step("device()")
    return {"device_type": chosen.accelerator.device().type}


def _named(name: Pin, settings: Settings) -> Asked:
    found = find_backends(name, settings, IsolatedLoader(settings.probe_timeout))
    for each in found:
        if each.backend is not None:
            return _asked(each.backend, _declared_type(each.backend, name))
    unread = [
        f"{each.provenance}: {each.reason}" for each in found if each.backend is None
    ]
    if not unread:
        raise BackendNotFoundError(
            messages.not_found_message(f"accel doors {name}", name)
        )
    raise BackendUnavailableError(". ".join([*unread, f"See: accel why {name}"]))


def _declared_type(backend: Backend, name: Pin) -> str:
    """Return torch's type of the device; of what no plugin declares it is the name that was given.

    Of `generic` itself it is empty: only the device has it.
    """
    if backend.device_type != _PLACEHOLDER:
        return backend.device_type
    return "" if name.name == backend.name else name.name


def _asked(backend: Backend, device_type: str) -> Asked:
    return Asked(
        backend.name, backend.distribution, device_type, backend.in_torch.impersonates
    )


# --- one door ------------------------------------------------------------------------------------------


def standing_of(door: Door, asked: Asked) -> Standing:
    """Judge how a framework takes a backend's device."""
    if asked.device_type == "cpu":
        return Standing("own", "the CPU needs no door")
    if known := sorted(asked.known_as.intersection(door.own)):
        return Standing("own", f"it drives {known[-1]} by itself")
    if not door.adapter:
        return Standing("half", f"{door.line}; {door.half}")
    way, missing = _way(door)
    if missing:
        return Standing("shut", missing)
    if door.half:
        return Standing("half", f"{way}; {door.half}")
    return Standing("open", way)


def _way(door: Door) -> tuple[str, str]:
    """How the adapter is reached; or why it is not, for the distribution that is installed."""
    ours = f"{_OURS} {packages.version(_OURS) or ''}".strip()
    module = door.adapter.partition(":")[0]
    step = vendors.install_command(_OURS, option="--upgrade")
    if not door.group:
        if find_spec(module) is None:  # of ours: nothing of a framework is imported
            return "", f"{ours} has no {module}: {step}"
        is_prepared = door.prepared in [
            e.name for e in packages.entry_points("accel.integrations")
        ]
        return (
            f"by itself under accel run; else call {module}"
            if is_prepared
            else f"call {module}",
            "",
        )
    names = [e.name for e in packages.entry_points(door.group) if e.module == module]
    if not names:
        return "", f"{ours} has no entry point in {door.group}: {step}"
    return f"by itself, as {names[0]!r} in {door.group}", ""


def _row(door: Door, asked: Asked) -> dict[str, Any]:
    release = packages.version(door.distribution) or ""
    state, why = standing_of(door, asked)
    return {
        "framework": door.name,
        "distribution": door.distribution,
        "installed": release or None,
        "state": state,
        "why": why,
        "group": door.group,
        "adapter": door.adapter,
        "url": door.url,
    }


# --- the page ------------------------------------------------------------------------------------------


def _page(asked: Asked, rows: list[dict[str, Any]], left_out: int) -> list[page.Part]:
    for_whom = f"For {one_line(asked.name)} ({one_line(asked.distribution)})"
    kind = asked.device_type
    device = (
        f", torch's device type {one_line(kind)}"
        if kind not in ("", asked.name)
        else ""
    )
    notes = [
        page.paragraph((f"{for_whom}{device}. Another backend: accel doors NAME.", ""))
    ]
    if left_out:
        more = f"{page.count(left_out, 'framework')} not installed: accel doors --all"
        notes.append(page.paragraph((more, "dim")))
    cells = [
        [
            (row["framework"], "bold"),
            (one_line(row["installed"] or "-"), ""),
            (row["state"], _STYLES[row["state"]]),
            (one_line(row["why"]), ""),
        ]
        for row in rows
    ]
    table: list[page.Part] = (
        [page.table(_TITLES, cells), page.paragraph()] if cells else []
    )
    return [*table, *notes]
