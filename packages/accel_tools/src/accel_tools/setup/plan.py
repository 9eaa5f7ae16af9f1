"""The plan of an installation: its parts with reasons, or the reason why no command is known."""

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
    "add_accel_packages",
    "add_plugin",
    "let_uv_choose_index",
    "torch_requirement",
    "with_extra",
]

#: The value of `uv pip install --torch-backend` that makes uv choose PyTorch's index.
AUTO = "auto"


class Part(NamedTuple):
    """One part of an installation plan: a package to install, or software that must be installed first."""

    #: A requirement such as `"torch-npu==2.12.0"`, or software such as `"CANN 9.1.0"`.
    what: str
    #: The reason why the part is in the plan.
    why: str
    #: The source of the reason: a URL, `"uv"`, or a dated table.
    source: str = ""


class UvChoice(NamedTuple):
    """Hardware for which uv can choose PyTorch's index itself (`--torch-backend=auto`)."""

    #: The fact by which uv chooses the index, such as `"NVIDIA driver 550.54.15"`.
    hardware: str
    #: Environment variables that uv needs because it does not detect their values, such as
    #: `("UV_AMD_GPU_ARCHITECTURE=gfx942",)`.
    variables: tuple[str, ...] = ()


class Plan(NamedTuple):
    """A plan for an installation: the packages to install, and the indexes that provide them."""

    hardware: Hardware
    #: The hardware that the plan targets, such as `"NVIDIA GPU"` or `"CPU"`.
    target: str
    #: The name of the backend, such as `"cuda"`.
    backend: str
    #: The Python version that the plan targets, such as `"3.12"`.
    python: str
    #: The requirement for torch, such as `"torch==2.12.0"`, or an empty string if no release is known to
    #: fit.
    torch: str = ""
    #: The name of PyTorch's index, such as `"cu130"`. It is an empty string for other indexes, and `AUTO`
    #: if uv chooses.
    torch_backend: str = ""
    #: The requirements in addition to torch.
    packages: tuple[str, ...] = ()
    #: The URL of the vendor's index that has some of the packages, or an empty string if PyPI has all
    #: packages.
    package_index: str = ""
    parts: tuple[Part, ...] = ()
    #: The reason why no command is known to install the right packages, or an empty string if one is known.
    why_no_command: str = ""
    #: The URL of the documentation.
    url: str = ""
    #: The software that pip does not install, and its URL, such as
    #: `"CANN 8.5.0: https://www.hiascend.com/cann"`.
    needs: str = ""
    notes: tuple[str, ...] = ()
    #: The NVIDIA driver version to plan for, from the command line or otherwise from the machine.
    driver: str = ""
    #: The toolkit version from the command line, such as `"12.8"`, or an empty string.
    toolkit: str = ""
    #: Facts that are assumed and were not detected on this machine, such as `("NVIDIA GPU", "NVIDIA
    #: driver 570.86")`.
    assumed: tuple[str, ...] = ()
    #: The hardware for which uv can choose the index, or `None` if uv cannot choose the right index.
    uv_choice: UvChoice | None = None
    #: The URL of a vendor's index that has torch, or an empty string if torch is from PyTorch's index or
    #: PyPI.
    torch_index: str = ""

    @property
    def machine_kind(self) -> str:
        """Return the kind of the machine, such as `"WSL2"`, as in `Hardware.machine_kind`.

        Returns an empty string if the plan's target was not detected on this machine.
        """
        return "" if self.target in self.assumed else self.hardware.machine_kind


def torch_requirement(release: str) -> str:
    """Return a requirement for a torch release, such as `"torch==2.12.0"`.

    If `release` is an empty string, the requirement is `"torch"`.
    """
    return f"torch=={release}" if release else "torch"


def with_extra(requirement: str, extra: str) -> str:
    """Return a requirement for torch with an extra, such as `"torch[device-gfx1103]==2.12.0"`."""
    return requirement.replace("torch", f"torch[{extra}]", 1)


def add_plugin(plan: Plan) -> Plan:
    """Return the plan with accel's plugin for the backend added.

    The plan is unchanged if there is no such plugin, or if no command is known for the plan.
    """
    plugin = vendors.FIRST_PARTY.get(plan.backend, "")
    if not plugin or plan.why_no_command:
        return plan
    part = Part(plugin, f"accel's plugin for the {plan.target}")
    return plan._replace(packages=(*plan.packages, plugin), parts=(*plan.parts, part))


def let_uv_choose_index(plan: Plan) -> Plan:
    """Return the plan with PyTorch's index chosen by uv, if uv can choose the right index."""
    if plan.uv_choice is None or plan.why_no_command:
        return plan
    torch_part, *other_parts = plan.parts  # The first part is always torch.
    why = f"uv chooses PyTorch's build for {plan.uv_choice.hardware}"
    new_part = Part(torch_part.what, why, "uv")
    return plan._replace(torch_backend=AUTO, parts=(new_part, *other_parts))


def add_accel_packages(plan: Plan, *, is_new_environment: bool) -> Plan:
    """Return the plan with those of accel's distributions that the environment needs.

    A new environment, which does not exist yet or is on a different machine, needs accel-core and all
    plugins of the plan. For the running environment, plugins that are already installed are left out.
    """
    if plan.why_no_command:
        return plan
    parts: list[Part] = []
    accel_parts: list[Part] = []
    if is_new_environment:
        accel_parts.append(
            Part("accel-core", "the interface that the plugins implement")
        )
    for part in plan.parts:
        if not _is_plugin(part.what):
            parts.append(part)
            continue
        is_installed = bool(packages.version(part.what))
        if is_new_environment or not is_installed:
            accel_parts.append(part)
    requirements = [name for name in plan.packages if not _is_plugin(name)]
    requirements += [part.what for part in accel_parts]
    return plan._replace(packages=tuple(requirements), parts=(*parts, *accel_parts))


def _is_plugin(distribution: str) -> bool:
    return distribution in vendors.FIRST_PARTY.values()
