"""A plan as a command or a file: for pip, uv, conda, a Dockerfile, pyproject.toml, requirements.txt."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from accel_core.probing import vendors
from accel_tools.setup import builds
from accel_tools.setup.plan import Plan

__all__ = ["FORMATS", "command"]


def command(plan: Plan, form: str, python: str) -> str:
    """The plan in that format; empty where the plan has no torch."""
    return vendors.sourced(FORMATS[form](plan, python)) if plan.torch else ""


def _quoted(*words: str) -> str:
    return shlex.join(words)


def _pip(plan: Plan, python: str) -> str:
    """Two commands where torch comes from an index of its own: that has no other packages."""
    extra = ["--extra-index-url", plan.extra_index] if plan.extra_index else []
    if not plan.index:
        return _quoted("pip", "install", plan.torch, *plan.packages, *extra)
    first = _quoted("pip", "install", plan.torch, "--index-url", builds.index_of(plan.index))
    return f"{first} && {_quoted('pip', 'install', *plan.packages, *extra)}" if plan.packages else first


def _uv(plan: Plan, python: str) -> str:
    backend = [f"--torch-backend={plan.index}"] if plan.index else []
    extra = ["--index", plan.extra_index] if plan.extra_index else []
    return _quoted("uv", "pip", "install", plan.torch, *plan.packages, *backend, *extra)


def _conda(plan: Plan, python: str) -> str:
    """An environment of conda's with pip's packages: PyTorch publishes none for conda since 2.6."""
    inner = _pip(plan, python).split(" && ")
    return " && ".join(
        [
            f"conda create --yes --name torch python={python} pip",
            *(f"conda run --name torch {line}" for line in inner),
        ]
    )


def _dockerfile(plan: Plan, python: str) -> str:
    lines = _pip(plan, python).replace("pip install", "pip install --no-cache-dir").split(" && ")
    return "\n".join([f"FROM python:{python}-slim", *(f"RUN {line}" for line in lines)])


def _pyproject(plan: Plan, python: str) -> str:
    listed = ", ".join(f'"{requirement}"' for requirement in (plan.torch, *plan.packages))
    lines = ["[project]", f"dependencies = [{listed}]"]
    if plan.index:
        name = f"pytorch-{plan.index}"
        lines += [
            "",
            "[tool.uv.sources]",
            f'torch = {{ index = "{name}" }}',
            "",
            "[[tool.uv.index]]",
            f'name = "{name}"',
            f'url = "{builds.index_of(plan.index)}"',
            "explicit = true",
        ]
    if plan.extra_index:
        lines += ["", "[[tool.uv.index]]", 'name = "vendor"', f'url = "{plan.extra_index}"']
    return "\n".join(lines)


def _requirements(plan: Plan, python: str) -> str:
    """A file's lines. pip takes the highest version of all its indexes, so an open torch allows one alone."""
    lines = [f"--index-url {builds.index_of(plan.index)}"] if plan.index else []
    lines += [f"--extra-index-url {plan.extra_index}"] if plan.extra_index else []
    if plan.index and "==" not in plan.torch and plan.packages:
        return "\n".join([*lines, plan.torch, f"# then: {_quoted('pip', 'install', *plan.packages)}"])
    if plan.index and plan.packages:
        lines += ["--extra-index-url https://pypi.org/simple"]
    return "\n".join([*lines, plan.torch, *plan.packages])


FORMATS: Mapping[str, Callable[[Plan, str], str]] = {
    "pip": _pip,
    "uv": _uv,
    "conda": _conda,
    "dockerfile": _dockerfile,
    "pyproject": _pyproject,
    "requirements": _requirements,
}
