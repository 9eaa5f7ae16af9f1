"""Format a plan as a command or a file: pip, uv, conda, Dockerfile, pyproject.toml, requirements.txt."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from accel_core.hardware import vendors
from accel_tools.setup import builds
from accel_tools.setup.plan import AUTO, Plan

__all__ = ["FORMATS", "HERE", "command"]

#: The formats that install into the environment that runs; others make one of their own.
HERE = ("pip", "uv")
#: Where the image's build has the checkout.
_MOUNTED = "/accel"
#: An image keeps what pip would cache.
_NO_CACHE = "--no-cache-dir"


def command(plan: Plan, form: str) -> str:
    """Return the plan in the format `form`, a key of `FORMATS`; empty if the plan has no torch."""
    return FORMATS[form](plan) if plan.torch else ""


def _reference(package: str) -> str:
    """The requirement as a file of requirements names it, PEP 508."""
    place = vendors.pip_argument(package)
    return f"{package} @ {Path(place).as_uri()}" if Path(place).is_absolute() else place


def _quoted(*words: str) -> str:
    return shlex.join(words)


def _arguments(plan: Plan) -> list[str]:
    """The packages as pip takes them: ours by the folder or the address that accel-core came from."""
    return [vendors.pip_argument(package) for package in plan.packages]


def _index_of(plan: Plan) -> str:
    """The address of the index that has torch; empty for PyPI."""
    if plan.torch_index:
        return plan.torch_index
    return builds.index_of(plan.torch_backend) if plan.torch_backend else ""


def _pip_commands(plan: Plan, *options: str) -> list[str]:
    """Two commands where torch comes from an index of its own: that has no other packages."""
    packages = _arguments(plan)
    install = ("pip", "install", *options)
    index = _index_of(plan)
    if not index:
        return [_quoted(*install, plan.torch, *packages)]
    commands = [_quoted(*install, plan.torch, "--index-url", index)]
    if packages:
        commands.append(_quoted(*install, *packages))
    return commands


def _pip(plan: Plan) -> str:
    return " && ".join(_pip_commands(plan))


def _uv(plan: Plan) -> str:
    if plan.torch_index:
        # AMD's index answers 403 for packages that it lacks, at which uv stops.
        return " && ".join(f"uv {line}" for line in _pip_commands(plan))
    backend = [f"--torch-backend={plan.torch_backend}"] if plan.torch_backend else []
    install = _quoted("uv", "pip", "install", plan.torch, *_arguments(plan), *backend)
    if plan.torch_backend == AUTO and plan.uv and plan.uv.variables:
        return f"{_quoted('env', *plan.uv.variables)} {install}"
    return install


def _conda(plan: Plan) -> str:
    """An environment of conda's with pip's packages: PyTorch publishes none for conda since 2.6."""
    return " && ".join(
        [
            f"conda create --yes --name torch python={plan.python} pip",
            *(f"conda run --name torch {line}" for line in _pip_commands(plan)),
        ]
    )


def _dockerfile(plan: Plan) -> str:
    """An image; a checkout of ours is mounted while it is built, as no registry has it."""
    checkout = vendors.pip_argument("accel-core")
    ours = [package for package in plan.packages if package in vendors.FOLDERS]
    is_mounted = bool(ours) and Path(checkout).is_absolute()
    theirs = tuple(
        package for package in plan.packages if not is_mounted or package not in ours
    )
    lines = _pip_commands(plan._replace(packages=theirs), _NO_CACHE)
    slim = "" if "git+" in checkout else "-slim"  # which has no git
    text = [f"# The image needs {plan.needs}"] if plan.needs else []
    text += [f"FROM python:{plan.python}{slim}", *(f"RUN {line}" for line in lines)]
    if is_mounted:
        folders = [f"{_MOUNTED}/{vendors.FOLDERS[name]}".rstrip("/") for name in ours]
        text += [
            f"# docker build --build-context accel={shlex.quote(checkout)} .",
            f"RUN --mount=from=accel,target={_MOUNTED},rw {_quoted('pip', 'install', _NO_CACHE, *folders)}",
        ]
    return "\n".join(text)


def _pyproject(plan: Plan) -> str:
    listed = ", ".join(
        f'"{requirement}"'
        for requirement in (plan.torch, *map(_reference, plan.packages))
    )
    lines = ["[project]", f"dependencies = [{listed}]"]
    if plan.torch_index:
        # The index also has what torch's extra needs. It answers 403 for packages that it lacks.
        lines += [
            "",
            "[[tool.uv.index]]",
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
            f'url = "{builds.index_of(plan.torch_backend)}"',
            "explicit = true",
        ]
    return "\n".join(lines)


def _requirements(plan: Plan) -> str:
    """A file's lines: torch's index beside PyPI could serve any other name, so that it stands alone."""
    index = _index_of(plan)
    if not index:
        return "\n".join([plan.torch, *map(_reference, plan.packages)])
    packages = _arguments(plan)
    then = [f"# then: {_quoted('pip', 'install', *packages)}"] if packages else []
    return "\n".join([f"--index-url {index}", plan.torch, *then])


FORMATS: Mapping[str, Callable[[Plan], str]] = {
    "pip": _pip,
    "uv": _uv,
    "conda": _conda,
    "dockerfile": _dockerfile,
    "pyproject": _pyproject,
    "requirements": _requirements,
}
