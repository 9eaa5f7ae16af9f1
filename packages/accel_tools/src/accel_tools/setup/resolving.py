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
from importlib.machinery import PathFinder
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
    "download_sizes",
    "install_commands",
    "read_lock_file",
    "resolve",
    "shared_versions",
    "write_lock_file",
]

#: The time limit in seconds for a request for a file's size.
_SIZE_SECONDS = 20.0
#: The maximum number of requests for file sizes that run at the same time.
_PARALLEL_REQUESTS = 8


class Package(NamedTuple):
    """A package to install in an environment, at one version."""

    name: str
    version: str
    #: The requirement for exactly one file, such as `"torch @ https://…/torch-2.13.0….whl#sha256=…"`.
    requirement: str
    #: Whether the version depends on the environment's build of torch. This is true for torch, the vendor's
    #: packages and their version-bound dependencies. All environments of a folder have the same versions
    #: of other packages.
    is_build_specific: bool

    @property
    def url(self) -> str:
        """Return the URL of the package's file, or an empty string if the requirement has no URL."""
        _, _, url_with_hash = self.requirement.partition(" @ ")
        url, _, _ = url_with_hash.partition("#")
        return url


def resolve(
    plan: Plan, requirements: str, shared_versions: Mapping[str, str], index: str
) -> list[Package]:
    """Return all packages that the plan's environment needs, sorted by name.

    torch, and the dependencies for which a maximum or exact version is required, come from PyTorch's index.
    Other packages come from the index that pip is configured to use.

    Args:
        plan: The plan with the requirements for torch and the vendor's packages.
        requirements: The packages of all environments, in the format of a requirements file.
        shared_versions: The versions, by name, of the packages that all environments of the folder share.
        index: The base URL of PyTorch's indexes. The name of an index, such as `cu130`, is appended to it.

    Raises:
        SettingError: No package versions fit. The message contains pip's reason.
    """
    torch_index = f"{index}/{plan.torch_backend}" if plan.torch_backend else ""
    # An item of pip's report describes one package.
    torch_items = _resolve_torch(plan.torch, torch_index)
    vendor_packages = [name for name in plan.packages if name not in vendors.FOLDERS]
    arguments = [*_pins(torch_items), *vendor_packages]
    for distribution in _accel_distributions(plan):
        arguments.append(vendors.pip_argument(distribution))
    if torch_index:
        arguments += ["--extra-index-url", torch_index]
    constraints = {
        name: version
        for name, version in shared_versions.items()
        if name not in torch_items
    }
    items = _pip_dry_run_with_files(arguments, requirements, constraints)
    items.update(torch_items)  # torch and its dependencies come from PyTorch's index.
    vendor_names = {
        canonicalize_name(Requirement(text).name) for text in vendor_packages
    }
    # The other packages have the same versions in all environments.
    build_specific = _dependencies_with_upper_bound({"torch", *vendor_names}, items)
    packages = []
    for name, item in sorted(items.items()):
        package = _package_from_report_item(
            name, item, is_build_specific=name in build_specific
        )
        packages.append(package)
    return packages


def _resolve_torch(requirement: str, index: str) -> dict[str, Any]:
    """Return the items of pip's report for torch and its version-bound dependencies, by name.

    `index` is the URL of the index with torch, or an empty string for the index that pip is configured
    to use.
    """
    options = ["--index-url", index] if index else []
    items = _pip_dry_run(requirement, *options)
    return {
        name: items[name] for name in _dependencies_with_upper_bound({"torch"}, items)
    }


def _pins(items: Mapping[str, Any]) -> list[str]:
    """Return a requirement such as `"torch==2.13.0"` for each item of pip's report."""
    return [f"{name}=={item['metadata']['version']}" for name, item in items.items()]


def _accel_distributions(plan: Plan) -> list[str]:
    """Return accel's distributions that the environment needs."""
    names = ["accel-core", "accel-train", "accel-tools", *plan.packages]
    without_duplicates = dict.fromkeys(names)
    return [name for name in without_duplicates if name in vendors.FOLDERS]


def _pip_dry_run_with_files(
    arguments: Sequence[str], requirements: str, constraints: Mapping[str, str]
) -> dict[str, Any]:
    """Return the items of pip's installation report for arguments and requirements, by name.

    `requirements` is the text of a requirements file. `constraints` has the required versions by name.
    """
    with tempfile.TemporaryDirectory() as folder:
        constraints_file = Path(folder, "constraints.txt")
        lines = [f"{name}=={version}\n" for name, version in constraints.items()]
        constraints_file.write_text("".join(lines), "utf-8")
        requirements_file = Path(folder, "requirements.txt")
        requirements_file.write_text(requirements, "utf-8")
        return _pip_dry_run(
            *arguments, "-r", str(requirements_file), "-c", str(constraints_file)
        )


@functools.cache
def _pip_command() -> list[str]:
    """Return the command that runs pip.

    If this Python has no pip, the command uses a temporary environment with pip.
    """
    # Unlike PathFinder, setuptools' finder would give up its distutils in this process.
    if PathFinder.find_spec("pip") is not None:
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


def _pip_dry_run(*arguments: str) -> dict[str, Any]:
    """Run pip in a dry run, and return the items of pip's installation report by package name.

    An item describes a package that pip would install: its metadata, version and file. Raises
    `SettingError` with pip's reason if no versions fit.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = ["--dry-run", "--ignore-installed", "--report", str(report)]
        command = [*_pip_command(), "install", *options, *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        if completed.returncode:
            reason = _reason_in_output(completed.stdout, completed.stderr)
            raise SettingError(f"pip finds no versions that fit:\n{reason}")
        items = json.loads(report.read_text("utf-8"))["install"]
    return {canonicalize_name(item["metadata"]["name"]): item for item in items}


def _reason_in_output(stdout: str, stderr: str) -> str:
    """Return the lines of pip's output that state why no versions fit."""
    _, _, after_heading = stdout.partition("The conflict is caused by:\n")
    conflict = after_heading.partition("\n\n")[0]
    lines = conflict.splitlines()
    for line in stderr.splitlines():
        if line.startswith("ERROR"):
            lines.append(line)
    return "\n".join(lines)


def _dependencies_with_upper_bound(
    roots: Iterable[str], items: Mapping[str, Any]
) -> set[str]:
    """Return the names of the packages `roots` and of their version-bound dependencies.

    Dependencies of dependencies are included. `items` has the items of pip's installation report by name.

    A dependency is version-bound if its requirement has an upper bound or an exact version. Such
    dependencies differ between builds: torch 2.13.0 for CUDA 13 requires `nvidia-nccl-cu13==2.29.7`
    and `cuda-bindings<14`. Requirements that all builds have, such as `sympy>=1.13.3`, have no upper
    bound.
    """
    result = set(roots) & set(items)
    unvisited = list(result)
    while unvisited:
        metadata = items[unvisited.pop()]["metadata"]
        for text in metadata.get("requires_dist", ()):
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            operators = {specifier.operator for specifier in requirement.specifier}
            operators_without_upper_bound = {">=", ">", "!="}
            has_upper_bound = not operators.issubset(operators_without_upper_bound)
            if has_upper_bound and name in items and name not in result:
                result.add(name)
                unvisited.append(name)
    return result


def _package_from_report_item(
    name: str, item: Mapping[str, Any], *, is_build_specific: bool
) -> Package:
    """Return the package that an item of pip's installation report describes."""
    source, version = item["download_info"], item["metadata"]["version"]
    requirement = f"{name} @ {source['url']}"
    if "vcs_info" in source:  # The package is from a Git repository.
        requirement = vendors.pip_argument(name)
    digest = source.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if digest:
        requirement += f"#sha256={digest}"
    return Package(name, version, requirement, is_build_specific)


# --- The lock file ----------------------------------------------------------------------


def write_lock_file(path: Path, packages: Iterable[Package]) -> None:
    """Write a lock file, which lists the packages in the format of a requirements file.

    A comment in each line contains the package's version. It also contains the word `own` if the version
    depends on the build of torch, and otherwise the word `shared`.
    """
    lines = []
    for package in packages:
        scope = "own" if package.is_build_specific else "shared"
        lines.append(f"{package.requirement}  # {package.version} {scope}\n")
    write_atomically(path, "".join(lines))


def read_lock_file(path: Path) -> list[Package]:
    """Return the packages in a lock file, or an empty list if the file does not exist."""
    if not path.is_file():
        return []
    packages = []
    for line in path.read_text("utf-8").splitlines():
        requirement, _, comment = line.partition("  # ")
        name, _, _ = requirement.partition(" @ ")
        version, _, scope = comment.partition(" ")
        is_build_specific = scope == "own"
        packages.append(Package(name, version, requirement, is_build_specific))
    return packages


def shared_versions(packages: Iterable[Package]) -> dict[str, str]:
    """Return the versions, by name, of the packages whose version all environments share."""
    return {p.name: p.version for p in packages if not p.is_build_specific}


# --- Sizes ------------------------------------------------------------------------------


def download_sizes(packages: Iterable[Package]) -> dict[str, int | None]:
    """Return the size in bytes of each package's file, by the file's URL.

    A size is `None` if it is unknown.
    """
    urls = sorted({p.url for p in packages if p.url})
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        sizes = pool.map(_download_size, urls)
        return dict(zip(urls, sizes, strict=True))


def _download_size(url: str) -> int | None:
    """Return the size in bytes of a file.

    Returns `None` if the server does not report the size.
    """
    if url.startswith("file:"):
        path = Path(urllib.request.url2pathname(urlsplit(url).path))
        # The URL of accel's checkout is a folder, from which nothing is downloaded.
        return path.stat().st_size if path.is_file() else 0
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=_SIZE_SECONDS) as response:
            return int(response.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


# --- Installing -------------------------------------------------------------------------


def install_commands(
    path: Path, lock_file: Path, installer: str
) -> list[Sequence[str]]:
    """Return the commands that create the environment at `path` from a lock file.

    `installer` is `"uv"` or `"pip"`. The commands also compile the packages to bytecode, because ranks on
    other hosts may not be able to write bytecode into the environment.
    """
    python = str(path / "bin" / "python")
    if installer == "uv":
        install = ["uv", "pip", "install", "--python", python, "--compile-bytecode"]
        return [
            ["uv", "venv", "--python", base_python(), str(path)],
            [*install, "--no-deps", "-r", str(lock_file)],
        ]
    return [
        [base_python(), "-m", "venv", str(path)],
        [python, "-m", "pip", "install", "--no-deps", "-r", str(lock_file)],
    ]
