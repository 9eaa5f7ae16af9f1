"""Why a vendor's runtime counts no device, as far as variables, nodes and the surroundings tell.

Asked when the count was 0: whoever has a device never comes here.
"""

from __future__ import annotations

import os
from pathlib import Path

from accel_core.backend import Backend
from accel_core.detection.records import Outcome, Status
from accel_core.errors import SettingError
from accel_core.machine import devices, host
from accel_core.machine.placement import Placement, placement
from accel_core.machine.visible_devices import Hidden, hiding, parse_visible_devices

__all__ = ["hidden", "uncounted"]


def hidden(backend: Backend, variable: Hidden) -> Outcome:
    """`no_device` where a variable hides every device of `backend`."""
    place = placement()
    if place.withheld(backend):  # Slurm writes NoDevFiles, or nothing, into the variable of a job without any
        reason = f"{variable}; Slurm gave the job {place.slurm_job} none"
        return Outcome(Status.NO_DEVICE, reason, place.schedulers_step(backend), devices=0)
    hint = f"unset {variable.variable}, or name in it the devices to use"
    return Outcome(Status.NO_DEVICE, str(variable), hint, devices=0)


def uncounted(backend: Backend, root: str = "/") -> Outcome:
    """`no_device` with the likeliest reason and the next step; `root` is where nodes and marks are sought."""
    hides = hiding(backend, os.environ)
    if hides is not None:
        return hidden(backend, hides)
    reason, hint = _why(backend, root)
    return Outcome(Status.NO_DEVICE, reason, hint, devices=0)


def _why(backend: Backend, root: str) -> tuple[str, str]:
    seen = devices.evidence(backend, root)
    nodes = seen.nodes if seen else ()
    if absent := _absent(backend, nodes):
        return absent
    place = placement(root)
    if denied := _denied(nodes, root):
        reason = f"this process may not open {devices.enumerated(denied)}"
        if place.withheld(backend):
            reason += f"; Slurm gave the job {place.slurm_job} none"
        return reason, place.step(backend) or _permission(denied[0], root)
    reason = "the vendor's runtime counts no device"
    if nodes and place.container and (step := _start(place, backend)):
        return f"{reason} in {place.name}, which shows {devices.enumerated(nodes)}", step
    if variable := next((name for name in _variables(backend) if os.environ.get(name)), None):
        hint = f"if there are some without {variable}, name in it devices that are there"
        return f"{reason} with {variable}={os.environ[variable]!r}", hint
    return reason, ""


def _start(place: Placement, backend: Backend) -> str:
    """How the container gets the vendor's libraries with the nodes, which are there."""
    return "" if place.container == "container" else place.step(backend)


def _variables(backend: Backend) -> tuple[str, ...]:
    """Those that count: every filter, and the first that is set of the others."""
    first = [name for name in backend.visible_devices if name in os.environ][:1]
    return (*backend.visible_devices_filters, *first)


def _absent(backend: Backend, nodes: tuple[str, ...]) -> tuple[str, str] | None:
    """A variable that names devices by numbers beyond those that this machine has nodes for.

    A node that has no number is a door to all devices (`/dev/kfd`), and tells nothing.
    """
    numbered = [node for node in nodes if node[-1:].isdigit()]
    # Gaudi's modules are numbered by their places in the server, not one by one.
    if not numbered or backend.visible_devices_grammar == "modules":
        return None
    for variable in _variables(backend):
        value = os.environ.get(variable)
        try:
            ids = parse_visible_devices(backend.visible_devices_grammar, value).ids
        except SettingError:
            continue
        beyond = [str(i) for i in ids or () if isinstance(i, int) and i >= len(numbered)]
        if beyond:
            noun = "device" if len(beyond) == 1 else "devices"
            reason = (
                f"{variable}={value!r} names {noun} {devices.enumerated(tuple(beyond))}, counted from 0, "
                f"and this machine has {devices.enumerated(tuple(numbered))}"
            )
            return reason, f"unset {variable}, or name in it devices that are there"
    return None


def _denied(nodes: tuple[str, ...], root: str) -> tuple[str, ...]:
    """The nodes, where this process may open none of them; by their modes, or by its control group.

    The kernel asks the group's list of devices whenever it checks a permission: Linux,
    fs/namei.c, `inode_permission`.
    """
    own = tuple(node for node in nodes if node.startswith("/dev/"))
    allowed = any(os.access(host.below(root, node), os.R_OK | os.W_OK) for node in own)
    return () if allowed else own


def _permission(node: str, root: str) -> str:
    """Whom to ask, or what to join, for the permission to open `node`."""
    import stat

    try:
        status = Path(host.below(root, node)).stat()
        import grp  # not on Windows

        group = grp.getgrgid(status.st_gid).gr_name
    except (OSError, ImportError, KeyError):
        return f"see `ls -l {node}`"
    shared = status.st_mode & (stat.S_IRGRP | stat.S_IWGRP) == stat.S_IRGRP | stat.S_IWGRP
    if shared and status.st_gid not in (*os.getgroups(), os.getegid()):
        return f"join the group {group}: sudo usermod -aG {group} $USER, then log in again"
    return f"see `ls -l {node}`, and which devices its control group allows this process"
