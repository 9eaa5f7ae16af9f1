"""The plan of an installation: its parts with reasons, or the reason why no installation is known."""

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
    "with_extra",
    "with_plugin",
]

#: The value of `uv pip install --torch-backend` with which uv chooses PyTorch's index.
AUTO = "auto"


class Part(NamedTuple):
    """One requirement of the command, or software that must be installed before."""

    #: A requirement such as `"torch-npu==2.12.0"`, or software such as `"CANN 9.1.0"`.
    what: str
    #: The reason why the part is in the plan.
    why: str
    #: The source of the reason: a URL, `"uv"`, or a dated table.
    source: str = ""


class UvChoice(NamedTuple):
    """Hardware for which `uv pip install --torch-backend=auto` finds the index."""

    #: The fact by which uv chooses the index, such as `"NVIDIA's driver 550.54.15"`.
    hardware: str
    #: Environment variables that uv needs because it does not detect their values, such as
    #: `("UV_AMD_GPU_ARCHITECTURE=gfx942",)`.
    variables: tuple[str, ...] = ()


class Plan(NamedTuple):
    """The requirements to install and the indexes that have them."""

    hardware: Hardware
    #: The hardware for which the plan is, such as `"NVIDIA GPU"` or `"CPU"`.
    target: str
    #: The name of the backend, such as `"cuda"`.
    backend: str
    #: The version of Python for which the plan is, such as `"3.12"`.
    python: str
    #: The requirement for torch, such as `"torch==2.12.0"`; empty if no release is known to fit.
    torch: str = ""
    #: The name of PyTorch's index, such as `"cu130"`; empty for other indexes; `AUTO` if uv chooses.
    torch_backend: str = ""
    #: The requirements in addition to torch.
    packages: tuple[str, ...] = ()
    #: The URL of the vendor's index that has some of the packages; empty if PyPI has all packages.
    package_index: str = ""
    parts: tuple[Part, ...] = ()
    #: The reason why no command is known; otherwise empty.
    unknown: str = ""
    #: The URL of the documentation.
    url: str = ""
    #: The software that pip does not install, and its URL, such as
    #: `"CANN 8.5.0: https://www.hiascend.com/cann"`.
    needs: str = ""
    notes: tuple[str, ...] = ()
    #: The version of NVIDIA's driver to plan for, from the command line or otherwise from the machine.
    driver: str = ""
    #: The version of the toolkit from the command line, such as `"12.8"`; otherwise empty.
    toolkit: str = ""
    #: What is assumed and was not detected on this machine, such as
    #: `("NVIDIA GPU", "NVIDIA's driver 570.86")`.
    given: tuple[str, ...] = ()
    #: The hardware for which uv can choose the index; `None` if uv cannot choose the right index.
    uv: UvChoice | None = None
    #: The URL of a vendor's index that has torch; empty if torch is from PyTorch's index or PyPI.
    torch_index: str = ""

    @property
    def kind(self) -> str:
        """Return the kind of machine to plan for, as in `Hardware.kind`.

        The string is empty if the target was not detected on this machine.
        """
        return "" if self.target in self.given else self.hardware.kind


def requirement(torch: str) -> str:
    """Return the requirement for the release `torch`, or for the newest release if it is empty."""
    return f"torch=={torch}" if torch else "torch"


def with_extra(requirement: str, extra: str) -> str:
    """Return the requirement for torch with an extra, such as `"torch[device-gfx1103]==2.12.0"`."""
    return requirement.replace("torch", f"torch[{extra}]", 1)


def with_plugin(plan: Plan) -> Plan:
    """Return the plan with accel's plugin for the backend, if there is one and a command is known."""
    plugin = vendors.FIRST_PARTY.get(plan.backend, "")
    if not plugin or plan.unknown:
        return plan
    part = Part(plugin, f"accel's plugin for the {plan.target}")
    return plan._replace(packages=(*plan.packages, plugin), parts=(*plan.parts, part))


def for_uv(plan: Plan) -> Plan:
    """Return a plan with which uv chooses PyTorch's index, if uv can choose the right index."""
    if plan.uv is None or plan.unknown:
        return plan
    torch, *others = plan.parts
    why = f"uv chooses PyTorch's build for {plan.uv.hardware}"
    return plan._replace(
        torch_backend=AUTO, parts=(Part(torch.what, why, "uv"), *others)
    )


def for_installation(plan: Plan, *, is_new: bool) -> Plan:
    """Return the plan with the accel packages that the environment needs.

    `is_new` means that the environment does not exist yet, or is on a different machine. Such an
    environment needs accel-core and all plugins of the plan. In the running environment, plugins that
    are already installed are left out.
    """
    if plan.unknown:
        return plan
    parts: list[Part] = []
    accel_parts: list[Part] = []
    if is_new:
        accel_parts.append(
            Part("accel-core", "the interface that the plugins implement")
        )
    for part in plan.parts:
        if not _is_plugin(part.what):
            parts.append(part)
        elif is_new or not packages.version(part.what):
            accel_parts.append(part)
    requirements = [name for name in plan.packages if not _is_plugin(name)]
    requirements += [part.what for part in accel_parts]
    return plan._replace(packages=tuple(requirements), parts=(*parts, *accel_parts))


def _is_plugin(distribution: str) -> bool:
    return distribution in vendors.FIRST_PARTY.values()
