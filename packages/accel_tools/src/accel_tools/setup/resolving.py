"""Resolve the packages of an environment with pip, write them to a lock file, and install them."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from accel_core.errors import SettingError
from accel_core.hardware import vendors
from accel_tools.setup.folder import base_python, write_atomically
from accel_tools.setup.plan import Plan

__all__ = [
    "Package",
    "install",
    "read_lock",
    "resolve",
    "shared",
    "sizes",
    "write_lock",
]

#: The time limit in seconds for the request of a file's size.
_SIZE_SECONDS = 20.0
#: How many requests of a file's size run at the same time.
_AT_ONCE = 8


class Package(NamedTuple):
    """A package of an environment, at one version."""

    name: str
    version: str
    #: The requirement for exactly one file, such as `"torch @ https://…/torch-2.13.0….whl#sha256=…"`.
    requirement: str
    #: Whether the version is specific to the environment's build of torch. This is true for torch, the
    #: vendor's packages and their version-bound dependencies; other environments share the version.
    is_own: bool

    @property
    def url(self) -> str:
        """Return the URL of the package's file; empty if the requirement has no URL."""
        return self.requirement.partition(" @ ")[2].partition("#")[0]


def resolve(
    plan: Plan, requirements: str, fixed: Mapping[str, str], index: str
) -> list[Package]:
    """Return all packages of an environment for the plan, sorted by name.

    torch and its version-bound dependencies come from PyTorch's index. Other packages come from the index
    that pip is configured to use.

    Args:
        plan: The plan with the requirements for torch and the vendor's packages.
        requirements: The packages of all environments, in the format of a requirements file.
        fixed: The versions, by name, that the folder's other environments share.
        index: The URL under which PyTorch's indexes are, such as `cu130`.

    Raises:
        SettingError: No versions fit. The message has pip's reason.
    """
    address = f"{index}/{plan.torch_backend}" if plan.torch_backend else ""
    of_torch = _report(plan.torch, *_option("--index-url", address))
    own = {name: of_torch[name] for name in _bound_to({"torch"}, of_torch)}
    vendor_packages = [name for name in plan.packages if name not in vendors.FOLDERS]
    others = {name: version for name, version in fixed.items() if name not in own}
    every = _report_all(
        [
            *(f"{name}=={item['metadata']['version']}" for name, item in own.items()),
            *vendor_packages,
            *map(vendors.pip_argument, _accel_packages(plan)),
            *_option("--extra-index-url", address),
        ],
        requirements,
        others,
    )
    roots = {canonicalize_name(Requirement(text).name) for text in vendor_packages}
    bound = _bound_to({"torch", *roots}, every)
    return [
        _package(name, own.get(name, every[name]), is_own=name in bound)
        for name in sorted(every)
    ]


def _option(name: str, value: str) -> list[str]:
    return [name, value] if value else []


def _accel_packages(plan: Plan) -> list[str]:
    """Return accel's distributions that the environment needs."""
    names = ["accel-core", "accel-train", "accel-tools", *plan.packages]
    return [name for name in dict.fromkeys(names) if name in vendors.FOLDERS]


def _report_all(
    arguments: Sequence[str], requirements: str, fixed: Mapping[str, str]
) -> dict[str, Any]:
    """Return the packages that pip would install for the arguments and requirements, by name.

    `fixed` has versions by name, which pip gets as constraints.
    """
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        lines = [f"{name}=={version}\n" for name, version in fixed.items()]
        constraints.write_text("".join(lines), "utf-8")
        listed = Path(folder, "requirements.txt")
        listed.write_text(requirements, "utf-8")
        return _report(*arguments, "-r", str(listed), "-c", str(constraints))


@functools.cache
def _pip() -> list[str]:
    """Return the command that runs pip, from a temporary environment if this Python has no pip."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    folder = tempfile.mkdtemp(prefix="accel-pip-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [base_python(), "-m", "venv", folder]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        output = completed.stdout or completed.stderr
        raise SettingError(
            f"this Python has no pip, and venv cannot install pip: {output}"
        )
    return [f"{folder}/bin/python", "-m", "pip"]


def _report(*arguments: str) -> dict[str, Any]:
    """Return the packages that pip would install, by name, without installing them.

    The values are the items of pip's installation report. Raises `SettingError` with pip's reason
    if no versions fit.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        options = ["--dry-run", "--ignore-installed", "--report", str(file)]
        command = [*_pip(), "install", *options, *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        if completed.returncode:
            _, _, conflict = completed.stdout.partition("The conflict is caused by:\n")
            lines = conflict.partition("\n\n")[0].splitlines()
            for line in completed.stderr.splitlines():
                if line.startswith("ERROR"):
                    lines.append(line)
            raise SettingError("pip finds no versions that fit:\n" + "\n".join(lines))
        items = json.loads(file.read_text("utf-8"))["install"]
    return {canonicalize_name(item["metadata"]["name"]): item for item in items}


def _bound_to(roots: Iterable[str], items: Mapping[str, Any]) -> set[str]:
    """Return the packages `roots` and their version-bound dependencies, direct and indirect.

    A dependency is version-bound if its requirement has an upper bound or an exact version. Such
    dependencies differ between builds: torch 2.13.0 for CUDA 13 requires `nvidia-nccl-cu13==2.29.7`
    and `cuda-bindings<14`. Requirements that all builds have, such as `sympy>=1.13.3`, have no upper
    bound.
    """
    found = set(roots) & set(items)
    waiting = list(found)
    while waiting:
        for text in items[waiting.pop()]["metadata"].get("requires_dist", ()):
            required = Requirement(text)
            name = canonicalize_name(required.name)
            is_bound = any(
                s.operator not in (">=", ">", "!=") for s in required.specifier
            )
            if is_bound and name in items and name not in found:
                found.add(name)
                waiting.append(name)
    return found


def _package(name: str, item: Mapping[str, Any], *, is_own: bool) -> Package:
    source, version = item["download_info"], item["metadata"]["version"]
    requirement = f"{name} @ {source['url']}"
    if "vcs_info" in source:
        requirement = vendors.pip_argument(name)
    digest = source.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if digest:
        requirement += f"#sha256={digest}"
    return Package(name, version, requirement, is_own)


# --- The lock file ----------------------------------------------------------------------


def write_lock(path: Path, packages: Iterable[Package]) -> None:
    """Write the packages as a requirements file.

    The comment in each line has the package's version, and `own` or `shared` (`Package.is_own`).
    """
    lines = [
        f"{p.requirement}  # {p.version} {'own' if p.is_own else 'shared'}\n"
        for p in packages
    ]
    write_atomically(path, "".join(lines))


def read_lock(path: Path) -> list[Package]:
    """Return the packages of a lock file; an empty list if the file does not exist."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_text("utf-8").splitlines():
        requirement, _, comment = line.partition("  # ")
        version, _, kind = comment.partition(" ")
        found.append(
            Package(requirement.split(" @ ")[0], version, requirement, kind == "own")
        )
    return found


def shared(packages: Iterable[Package]) -> dict[str, str]:
    """Return the versions, by name, of the packages that all environments of the folder share."""
    return {p.name: p.version for p in packages if not p.is_own}


# --- Sizes ------------------------------------------------------------------------------


def sizes(packages: Iterable[Package]) -> dict[str, int | None]:
    """Return the size in bytes of each package's file, by URL; `None` if the size is unknown."""
    urls = sorted({p.url for p in packages if p.url})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(urls, pool.map(_size, urls), strict=True))


def _size(url: str) -> int | None:
    if url.startswith("file:"):
        path = Path(urllib.request.url2pathname(urlsplit(url).path))
        return path.stat().st_size if path.is_file() else 0
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=_SIZE_SECONDS) as response:
            return int(response.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


# --- Installing -------------------------------------------------------------------------


def install(path: Path, lock: Path, form: str) -> list[Sequence[str]]:
    """Return the commands that make the environment `path` with the packages of a lock file.

    `form` is the installer, `"uv"` or `"pip"`. The commands also compile the packages to byte code,
    because ranks on other hosts may not be able to write it.
    """
    python = str(path / "bin" / "python")
    if form == "uv":
        install = ["uv", "pip", "install", "--python", python, "--compile-bytecode"]
        return [
            ["uv", "venv", "--python", base_python(), str(path)],
            [*install, "--no-deps", "-r", str(lock)],
        ]
    return [
        [base_python(), "-m", "venv", str(path)],
        [python, "-m", "pip", "install", "--no-deps", "-r", str(lock)],
    ]
