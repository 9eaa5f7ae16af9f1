"""Format a plan as a command or a file: pip, uv, conda, Dockerfile, pyproject.toml, requirements.txt."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from accel_core.hardware import vendors
from accel_tools.setup import builds
from accel_tools.setup.plan import AUTO, Plan

__all__ = ["FORMATS", "HERE", "command"]

#: Formats that install into the current environment; the others create one.
HERE = ("pip", "uv")
#: The mount point of the checkout while the image is built.
_MOUNTED = "/accel"
#: Otherwise the image would contain pip's cache.
_NO_CACHE = "--no-cache-dir"


def command(plan: Plan, form: str) -> str:
    """Return the plan in the format `form`, a key of `FORMATS`; empty if the plan has no torch."""
    if not plan.torch:
        return ""
    return FORMATS[form](plan)


def _pep508(package: str) -> str:
    """Return a requirement as in a requirements file; a folder as an address."""
    place = vendors.pip_argument(package)
    if Path(place).is_absolute():
        return f"{package} @ {Path(place).as_uri()}"
    return place


def _pip_arguments(plan: Plan) -> list[str]:
    """Return the packages as arguments for pip; accel's by the folder or address of accel-core."""
    return [vendors.pip_argument(package) for package in plan.packages]


def _index_options(plan: Plan) -> list[str]:
    """Return the options that add the vendor's index to PyPI; empty if PyPI has all packages.

    Either index can then supply any name, so this is only for vendors whose instructions require it.
    """
    if not plan.package_index:
        return []
    return ["--extra-index-url", plan.package_index]


def _pip_commands(plan: Plan, *options: str) -> list[str]:
    """Return the commands of pip: two if torch is from its own index, which lacks other packages."""
    packages = _pip_arguments(plan)
    install = ["pip", "install", *options]
    index_options = _index_options(plan)
    if not plan.torch_backend:
        return [shlex.join([*install, plan.torch, *packages, *index_options])]
    index = builds.index_of(plan.torch_backend)
    commands = [shlex.join([*install, plan.torch, "--index-url", index])]
    if packages:
        commands.append(shlex.join([*install, *packages, *index_options]))
    return commands


def _pip(plan: Plan) -> str:
    return " && ".join(_pip_commands(plan))


def _uv(plan: Plan) -> str:
    words = ["uv", "pip", "install", plan.torch, *_pip_arguments(plan)]
    if plan.torch_backend:
        words.append(f"--torch-backend={plan.torch_backend}")
    words += _index_options(plan)
    if plan.torch_backend == AUTO and plan.uv and plan.uv.variables:
        words = ["env", *plan.uv.variables, *words]
    return shlex.join(words)


def _conda(plan: Plan) -> str:
    """Return commands for a conda environment with pip's packages.

    PyTorch publishes no packages for conda since 2.6.
    """
    commands = [f"conda create --yes --name torch python={plan.python} pip"]
    for command in _pip_commands(plan):
        commands.append(f"conda run --name torch {command}")
    return " && ".join(commands)


def _dockerfile(plan: Plan) -> str:
    """Return a Dockerfile; a checkout of accel is mounted for the build, as no registry has it."""
    checkout = vendors.pip_argument("accel-core")
    mounted = []
    if Path(checkout).is_absolute():
        mounted = [package for package in plan.packages if package in vendors.FOLDERS]
    others = tuple(package for package in plan.packages if package not in mounted)
    commands = _pip_commands(plan._replace(packages=others), _NO_CACHE)
    needs_git = "git+" in checkout
    tag = plan.python if needs_git else f"{plan.python}-slim"  # which has no git
    lines = [f"# The image needs {plan.needs}"] if plan.needs else []
    lines.append(f"FROM python:{tag}")
    lines += [f"RUN {command}" for command in commands]
    if mounted:
        lines += _mounted_install(checkout, mounted)
    return "\n".join(lines)


def _mounted_install(checkout: str, packages: Sequence[str]) -> list[str]:
    """Return lines of a Dockerfile that install packages from a checkout."""
    folders = [f"{_MOUNTED}/{vendors.FOLDERS[name]}".rstrip("/") for name in packages]
    install = shlex.join(["pip", "install", _NO_CACHE, *folders])
    return [
        f"# docker build --build-context accel={shlex.quote(checkout)} .",
        f"RUN --mount=from=accel,target={_MOUNTED},rw {install}",
    ]


def _pyproject(plan: Plan) -> str:
    requirements = [plan.torch, *map(_pep508, plan.packages)]
    listed = ", ".join(f'"{requirement}"' for requirement in requirements)
    lines = ["[project]", f"dependencies = [{listed}]"]
    if plan.torch_backend:
        name = f"pytorch-{plan.torch_backend}"
        lines += [
            "",
            "[tool.uv.sources]",
            f'torch = {{ index = "{name}" }}',
            "",
            "[[tool.uv.index]]",
            f'name = "{name}"',
            f'url = "{builds.index_of(plan.torch_backend)}"',
            "explicit = true",
        ]
    if plan.package_index:
        # Not explicit: the index also has the dependencies of the vendor's package.
        lines += [
            "",
            "[[tool.uv.index]]",
            f'name = "{plan.backend}"',
            f'url = "{plan.package_index}"',
        ]
    return "\n".join(lines)


def _requirements(plan: Plan) -> str:
    """Return a requirements file; torch is alone in it if it is from its own index.

    Otherwise that index could serve other names than torch, too.
    """
    index_options = _index_options(plan)
    if not plan.torch_backend:
        lines = [" ".join(index_options)] if index_options else []
        lines += [plan.torch, *map(_pep508, plan.packages)]
        return "\n".join(lines)
    lines = [f"--index-url {builds.index_of(plan.torch_backend)}", plan.torch]
    packages = _pip_arguments(plan)
    if packages:
        install = shlex.join(["pip", "install", *packages, *index_options])
        lines.append(f"# then: {install}")
    return "\n".join(lines)


FORMATS: Mapping[str, Callable[[Plan], str]] = {
    "pip": _pip,
    "uv": _uv,
    "conda": _conda,
    "dockerfile": _dockerfile,
    "pyproject": _pyproject,
    "requirements": _requirements,
}
