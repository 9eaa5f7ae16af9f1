"""A plan as a command or a file: for pip, uv, conda, a Dockerfile, pyproject.toml, requirements.txt."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from accel_core.toolkit import vendors
from accel_tools.setup import builds
from accel_tools.setup.plan import Plan

__all__ = ["FORMATS", "command"]


def command(plan: Plan, form: str) -> str:
    """The plan in that format; empty where the plan has no torch."""
    return vendors.sourced(FORMATS[form](plan)) if plan.torch else ""


def _quoted(*words: str) -> str:
    return shlex.join(words)


def _pip(plan: Plan) -> str:
    """Two commands where torch comes from an index of its own: that has no other packages."""
    if not plan.torch_backend:
        return _quoted("pip", "install", plan.torch, *plan.packages)
    first = _quoted("pip", "install", plan.torch, "--index-url", builds.index_of(plan.torch_backend))
    return f"{first} && {_quoted('pip', 'install', *plan.packages)}" if plan.packages else first


def _uv(plan: Plan) -> str:
    backend = [f"--torch-backend={plan.torch_backend}"] if plan.torch_backend else []
    return _quoted("uv", "pip", "install", plan.torch, *plan.packages, *backend)


def _conda(plan: Plan) -> str:
    """An environment of conda's with pip's packages: PyTorch publishes none for conda since 2.6."""
    inner = _pip(plan).split(" && ")
    return " && ".join(
        [
            f"conda create --yes --name torch python={plan.python} pip",
            *(f"conda run --name torch {line}" for line in inner),
        ]
    )


def _dockerfile(plan: Plan) -> str:
    lines = _pip(plan).replace("pip install", "pip install --no-cache-dir").split(" && ")
    return "\n".join([f"FROM python:{plan.python}-slim", *(f"RUN {line}" for line in lines)])


def _pyproject(plan: Plan) -> str:
    listed = ", ".join(f'"{requirement}"' for requirement in (plan.torch, *plan.packages))
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
    return "\n".join(lines)


def _requirements(plan: Plan) -> str:
    """A file's lines: torch's index beside PyPI could serve any other name, so that it stands alone."""
    if not plan.torch_backend:
        return "\n".join([plan.torch, *plan.packages])
    then = [f"# then: {_quoted('pip', 'install', *plan.packages)}"] if plan.packages else []
    return "\n".join([f"--index-url {builds.index_of(plan.torch_backend)}", plan.torch, *then])


FORMATS: Mapping[str, Callable[[Plan], str]] = {
    "pip": _pip,
    "uv": _uv,
    "conda": _conda,
    "dockerfile": _dockerfile,
    "pyproject": _pyproject,
    "requirements": _requirements,
}
