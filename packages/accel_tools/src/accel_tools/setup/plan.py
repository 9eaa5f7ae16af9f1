"""The plan for a machine: its parts with their reasons, or why there is none and where to read on."""

from __future__ import annotations

from typing import NamedTuple

from accel_core.toolkit import vendors
from accel_tools.setup.hardware import Hardware

__all__ = ["Part", "Plan", "requirement", "with_plugin"]


class Part(NamedTuple):
    """One part of the command, or what must be there before it."""

    #: A requirement, `"torch-npu==2.12.0"`, or a thing, `"CANN 9.1.0"`.
    what: str
    why: str
    #: Who says so: an address, `"uv 0.13.9"`, or a dated table.
    source: str = ""


class Plan(NamedTuple):
    """The requirements and indexes to install from; the command is made of them."""

    hardware: Hardware
    #: The hardware that the plan is for: `"NVIDIA GPU"`; `"CPU"` without any.
    target: str
    #: Name of the backend: `"cuda"`.
    backend: str
    #: The Python that it is for: `"3.12"`.
    python: str
    #: torch's requirement: `"torch==2.12.0"`; empty where nothing is known to fit.
    torch: str = ""
    #: PyTorch's index by name, `"cu130"`; empty for PyPI.
    torch_backend: str = ""
    #: Requirements that PyPI has.
    packages: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    #: Why there is no command, and the address to read on at.
    unknown: str = ""
    url: str = ""
    notes: tuple[str, ...] = ()


def requirement(torch: str) -> str:
    """torch, or that release of it."""
    return f"torch=={torch}" if torch else "torch"


def with_plugin(plan: Plan) -> Plan:
    """Add our plugin, unless it is the CPU's or there is no plan."""
    plugin = vendors.FIRST_PARTY.get(plan.backend, "")
    if not plugin or plan.unknown:
        return plan
    part = Part(plugin, f"accel's plugin for the {plan.target}")
    return plan._replace(packages=(*plan.packages, plugin), parts=(*plan.parts, part))
