"""Format a plan as a command (pip, uv, conda) or a file (Dockerfile, pyproject.toml, requirements.txt)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from accel_core.hardware import vendors
from accel_tools.setup import builds
from accel_tools.setup.plan import AUTO, Plan

__all__ = ["FORMATS", "INSTALLERS", "format_plan"]

#: The formats that install into the current environment. The other formats create an environment.
INSTALLERS = ("pip", "uv")
#: The mount point of the checkout while the image is built.
_MOUNTED = "/accel"
#: The option of pip without which the image would contain pip's cache.
_NO_CACHE = "--no-cache-dir"


def format_plan(plan: Plan, format_name: str) -> str:
    """Return the plan as a command or as the text of a file.

    Returns an empty string if the plan has no requirement for torch. `format_name` is a key of `FORMATS`,
    such as `"pip"` or `"dockerfile"`.
    """
    if not plan.torch:
        return ""
    return FORMATS[format_name](plan)


def _pep508_requirement(package: str) -> str:
    """Return the requirement for a package in the format of PEP 508.

    One of accel's distributions, if pip would install it from a folder, becomes a URL.
    """
    argument = vendors.pip_argument(package)
    if Path(argument).is_absolute():
        return f"{package} @ {Path(argument).as_uri()}"
    return argument


def _pip_arguments(plan: Plan) -> list[str]:
    """Return the packages as arguments for pip.

    accel's distributions are given by the folder or URL from which accel-core was installed.
    """
    return [vendors.pip_argument(package) for package in plan.packages]


def _index_options(plan: Plan) -> list[str]:
    """Return the options that make pip use the vendor's index in addition to PyPI.

    The list is empty if PyPI has all packages. With two indexes, pip may install a package from
    either index, so the options are used only for vendors whose instructions require them.
    """
    if not plan.package_index:
        return []
    return ["--extra-index-url", plan.package_index]


def _torch_index_url(plan: Plan) -> str:
    """Return the URL of the index from which torch is installed.

    Returns an empty string for PyPI.
    """
    if plan.torch_index:
        return plan.torch_index
    if plan.torch_backend:
        return builds.index_url(plan.torch_backend)
    return ""


def _pip_commands(plan: Plan, *options: str) -> list[str]:
    """Return the commands that install the plan with pip; `options` are added to each command.

    If torch is from a separate index, a second command installs the other packages, which that index
    lacks.
    """
    packages = _pip_arguments(plan)
    install = ["pip", "install", *options]
    index_options = _index_options(plan)
    torch_index_url = _torch_index_url(plan)
    if not torch_index_url:
        return [shlex.join([*install, plan.torch, *packages, *index_options])]
    commands = [shlex.join([*install, plan.torch, "--index-url", torch_index_url])]
    if packages:
        commands.append(shlex.join([*install, *packages, *index_options]))
    return commands


def _format_pip(plan: Plan) -> str:
    """Return a line with pip commands."""
    return " && ".join(_pip_commands(plan))


def _format_uv(plan: Plan) -> str:
    """Return a line with uv commands."""
    if plan.torch_index:
        # AMD's index responds with status 403 for packages that it lacks, and uv then fails.
        return " && ".join(f"uv {line}" for line in _pip_commands(plan))
    command = ["uv", "pip", "install", plan.torch, *_pip_arguments(plan)]
    if plan.torch_backend:
        command.append(f"--torch-backend={plan.torch_backend}")
    command += _index_options(plan)
    if plan.torch_backend == AUTO and plan.uv_choice and plan.uv_choice.variables:
        command = ["env", *plan.uv_choice.variables, *command]
    return shlex.join(command)


def _format_conda(plan: Plan) -> str:
    """Return commands that create a conda environment and install packages with pip.

    PyTorch has not published conda packages since torch 2.6.
    """
    commands = [f"conda create --yes --name torch python={plan.python} pip"]
    for command in _pip_commands(plan):
        commands.append(f"conda run --name torch {command}")
    return " && ".join(commands)


def _format_dockerfile(plan: Plan) -> str:
    """Return a Dockerfile that installs torch and the packages of the plan.

    accel's packages are installed from a checkout that is mounted while the image is built, or from a Git
    URL, because accel-core is not in a package registry.
    """
    checkout = vendors.pip_argument("accel-core")  # a folder or a Git URL
    packages_in_checkout = []
    if Path(checkout).is_absolute():
        for package in plan.packages:
            if package in vendors.FOLDERS:
                packages_in_checkout.append(package)
    other_packages = [p for p in plan.packages if p not in packages_in_checkout]
    plan_without_checkout = plan._replace(packages=tuple(other_packages))
    commands = _pip_commands(plan_without_checkout, _NO_CACHE)
    needs_git = "git+" in checkout
    # The slim image does not have git.
    tag = plan.python if needs_git else f"{plan.python}-slim"
    lines = [f"# The image needs {plan.needs}"] if plan.needs else []
    lines.append(f"FROM python:{tag}")
    lines += [f"RUN {command}" for command in commands]
    if packages_in_checkout:
        lines += _install_from_checkout(checkout, packages_in_checkout)
    return "\n".join(lines)


def _install_from_checkout(checkout: str, packages: Sequence[str]) -> list[str]:
    """Return the lines of a Dockerfile that install packages from accel's mounted checkout."""
    folders = [f"{_MOUNTED}/{vendors.FOLDERS[name]}".rstrip("/") for name in packages]
    install = shlex.join(["pip", "install", _NO_CACHE, *folders])
    return [
        f"# docker build --build-context accel={shlex.quote(checkout)} .",
        f"RUN --mount=from=accel,target={_MOUNTED},rw {install}",
    ]


def _format_pyproject(plan: Plan) -> str:
    """Return the sections of pyproject.toml with the dependencies, and the indexes for uv."""
    requirements = [plan.torch]
    requirements += [_pep508_requirement(package) for package in plan.packages]
    listed = ", ".join(f'"{requirement}"' for requirement in requirements)
    lines = ["[project]", f"dependencies = [{listed}]"]
    if plan.torch_index:
        # The index is not explicit, because it also has the packages that the extra needs. It responds
        # with status 403 for packages that it lacks.
        lines += [
            "",
            "[[tool.uv.index]]",
            'name = "amd"',
            f'url = "{plan.torch_index}"',
            "ignore-error-codes = [403]",
        ]
    if plan.torch_backend:
        name = f"pytorch-{plan.torch_backend}"
        lines += [
            "",
            "[tool.uv.sources]",
            f'torch = {{ index = "{name}" }}',
            "",
            "[[tool.uv.index]]",
            f'name = "{name}"',
            f'url = "{builds.index_url(plan.torch_backend)}"',
            "explicit = true",
        ]
    if plan.package_index:
        # The index is not explicit, because it also has the dependencies of the vendor's package.
        lines += [
            "",
            "[[tool.uv.index]]",
            f'name = "{plan.backend}"',
            f'url = "{plan.package_index}"',
        ]
    return "\n".join(lines)


def _format_requirements(plan: Plan) -> str:
    """Return a requirements file.

    If torch is from a separate index, the file contains only torch, because that index could serve
    other packages too. A comment then has the command for the other packages.
    """
    index_options = _index_options(plan)
    torch_index_url = _torch_index_url(plan)
    if not torch_index_url:
        lines = [" ".join(index_options)] if index_options else []
        lines.append(plan.torch)
        lines += [_pep508_requirement(package) for package in plan.packages]
        return "\n".join(lines)
    lines = [f"--index-url {torch_index_url}", plan.torch]
    packages = _pip_arguments(plan)
    if packages:
        install = shlex.join(["pip", "install", *packages, *index_options])
        lines.append(f"# then: {install}")
    return "\n".join(lines)


FORMATS: Mapping[str, Callable[[Plan], str]] = {
    "pip": _format_pip,
    "uv": _format_uv,
    "conda": _format_conda,
    "dockerfile": _format_dockerfile,
    "pyproject": _format_pyproject,
    "requirements": _format_requirements,
}
