"""The plan for a machine: its parts with reasons, or why there is none and where to read more."""

from __future__ import annotations

from typing import NamedTuple

from accel_core import packages
from accel_core.hardware import vendors
from accel_tools.setup.hardware import Hardware

__all__ = [
    "AUTO",
    "Part",
    "Plan",
    "UvChoice",
    "for_installation",
    "for_uv",
    "requirement",
    "with_plugin",
]

#: uv's own choice of PyTorch's index: `uv pip install --torch-backend=auto`.
AUTO = "auto"


class Part(NamedTuple):
    """One part of the command, or something that must exist before it."""

    #: A requirement, `"torch-npu==2.12.0"`, or a thing, `"CANN 9.1.0"`.
    what: str
    why: str
    #: The source: an address, `"uv"`, or a dated table.
    source: str = ""


class UvChoice(NamedTuple):
    """Hardware for which uv's `--torch-backend=auto` finds the index."""

    #: `"NVIDIA's driver 550.54.15"`.
    hardware: str
    #: Variables with what uv does not detect itself: `("UV_AMD_GPU_ARCHITECTURE=gfx942",)`.
    variables: tuple[str, ...] = ()


class Plan(NamedTuple):
    """The requirements and indexes to install from; the command is made from them."""

    hardware: Hardware
    #: The hardware that the plan is for: `"NVIDIA GPU"`; `"CPU"` without any.
    target: str
    #: Name of the backend: `"cuda"`.
    backend: str
    #: The Python that torch is for: `"3.12"`.
    python: str
    #: The requirement of torch: `"torch==2.12.0"`; empty if none is known to fit.
    torch: str = ""
    #: PyTorch's index by name, `"cu130"`; empty for PyPI; `AUTO` if uv chooses.
    torch_backend: str = ""
    #: The other requirements.
    packages: tuple[str, ...] = ()
    #: The vendor's index that has some of them; empty if PyPI has all.
    package_index: str = ""
    parts: tuple[Part, ...] = ()
    #: Why there is no command, and the address of the documentation.
    unknown: str = ""
    url: str = ""
    #: What pip does not install, and its address: `"CANN 8.5.0: https://www.hiascend.com/cann"`.
    needs: str = ""
    notes: tuple[str, ...] = ()
    #: The version of NVIDIA's driver to plan for: from the command line, else from the machine.
    driver: str = ""
    #: The version of the toolkit from the command line: `"12.8"`; empty if there is none.
    toolkit: str = ""
    #: What is assumed, and was not detected here: `("NVIDIA GPU", "NVIDIA's driver 570.86")`.
    given: tuple[str, ...] = ()
    #: The hardware for which uv chooses the index itself, if uv installs; else `None`.
    uv: UvChoice | None = None

    @property
    def kind(self) -> str:
        """Return the kind of machine to plan for; empty for another machine."""
        return "" if self.target in self.given else self.hardware.kind


def requirement(torch: str) -> str:
    """Return the requirement for torch, or for that release of it."""
    return f"torch=={torch}" if torch else "torch"


def with_plugin(plan: Plan) -> Plan:
    """Add accel's plugin, unless the target is the CPU or there is no plugin for it."""
    plugin = vendors.FIRST_PARTY.get(plan.backend, "")
    if not plugin or plan.unknown:
        return plan
    part = Part(plugin, f"accel's plugin for the {plan.target}")
    return plan._replace(packages=(*plan.packages, plugin), parts=(*plan.parts, part))


def for_uv(plan: Plan) -> Plan:
    """Leave the choice of PyTorch's index to uv, if uv detects the hardware."""
    if plan.uv is None or plan.unknown:
        return plan
    torch, *others = plan.parts
    why = f"uv chooses PyTorch's build for {plan.uv.hardware}"
    return plan._replace(
        torch_backend=AUTO, parts=(Part(torch.what, why, "uv"), *others)
    )


def for_installation(plan: Plan, *, is_new: bool) -> Plan:
    """Add accel-core for a new environment; leave out plugins that are installed in this one.

    `is_new`: the environment belongs to another machine, or the command creates it.
    """
    if plan.unknown:
        return plan
    parts: list[Part] = []
    own: list[Part] = []
    if is_new:
        own.append(Part("accel-core", "the interface that the plugins serve"))
    for part in plan.parts:
        if not _is_plugin(part.what):
            parts.append(part)
        elif is_new or not packages.version(part.what):
            own.append(part)
    requirements = [name for name in plan.packages if not _is_plugin(name)]
    requirements += [part.what for part in own]
    return plan._replace(packages=tuple(requirements), parts=(*parts, *own))


def _is_plugin(distribution: str) -> bool:
    return distribution in vendors.FIRST_PARTY.values()
