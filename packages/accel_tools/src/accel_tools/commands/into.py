"""`accel setup --into FOLDER`: create one environment per build of torch, and launchers.

A launcher starts a program in the environment that fits the machine.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from accel_core.errors import SettingError
from accel_tools.setup import builds, folder, machines, resolving
from accel_tools.setup import environment as environment_checks
from accel_tools.setup.folder import PlannedEnvironment
from accel_tools.setup.resolving import Package

__all__ = ["Request", "SetupCommand", "choose_installer", "set_up"]

#: The name of the file in the folder that lists the packages of all environments.
_REQUIREMENTS = "requirements.txt"


class SetupCommand(click.Command):
    """A click command that accepts packages as arguments after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the packages, which are the arguments after `--`, from `args` to `ctx.obj`.

        Otherwise click would treat the packages as names of environments.
        """
        packages: list[str] = []
        if "--" in args:
            separator = args.index("--")
            packages = args[separator + 1 :]
            args = args[:separator]
        ctx.obj = tuple(packages)
        return super().parse_args(ctx, args)


class Request:
    """The arguments of one call to `accel setup --into`: the folder, the environments and the packages."""

    def __init__(
        self,
        folder_path: Path,
        names: Sequence[str],
        packages: Sequence[str],
        requirements: Path | None,
        index: str,
    ) -> None:
        self.folder = folder_path.absolute()
        #: The requested environments, such as `cuda=12.6` and `cpu`.
        self.names = names
        lines = [*packages]
        if requirements is not None:
            lines.insert(0, requirements.read_text("utf-8").strip())
        #: The packages of all environments, in the format of a requirements file.
        self.requirements = "".join(f"{line}\n" for line in lines)
        #: The URL of PyTorch's indexes, or of a mirror.
        self.index = index or builds.INDEX


def set_up(
    request: Request, installer: str, torch: str, driver: str, *, yes: bool
) -> None:
    """Create the requested environments that the folder lacks.

    Args:
        request: The folder, the names of the environments, and the packages.
        installer: `"uv"` or `"pip"`.
        torch: The torch version, or an empty string for the newest that fits.
        driver: The NVIDIA driver version to plan for, or an empty string.
        yes: Whether to install without asking.

    Raises:
        SettingError: No build of torch or no version of a package fits, or the folder cannot be used. Nothing
            was downloaded.
    """
    folder_path = request.folder
    conflict = folder.find_conflict(folder_path, request.requirements)
    if conflict:
        raise SettingError(conflict)
    machine = machines.here()
    environments = folder.plan_environments(request.names, machine, torch, driver)
    with _locked_folder(folder_path):  # Another `accel setup` now raises an error.
        missing = _missing_environments(folder_path, environments)
        packages_by_name = _resolve_packages(request, missing)
        if missing:
            _print_sizes(packages_by_name)
            if not yes:
                click.confirm("Download and install them?", abort=True, err=True)
            _write_requirements_and_locks(request, packages_by_name)
        folder.write_hardware_and_choice_module(folder_path)
        for environment in missing:
            path = _environment_path(folder_path, environment.name)
            torch_version = _torch_version(packages_by_name[environment.name])
            record = folder.environment_record(
                environment.plan, torch_version, machine.architecture
            )
            _install_environment(folder_path, environment.name, installer)
            folder.mark_complete(path, record)
        folder.write_launchers(folder_path)
    click.echo(
        f"Done. Next step: accel doctor {shlex.quote(str(folder_path))}", err=True
    )


@contextmanager
def _locked_folder(folder_path: Path) -> Iterator[None]:
    """Create the folder `folder_path`, and lock it against other `accel setup` processes.

    Raises `SettingError` if the folder cannot be written, or if another `accel setup`
    process has locked it.
    """
    import fcntl  # Windows does not have this module.

    try:
        folder_path.mkdir(parents=True, exist_ok=True)
        file = (folder_path / ".setup").open("w")
    except OSError as error:
        raise SettingError(
            f"{folder_path} cannot be written: {error.strerror}"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SettingError(
                f"another accel setup process is setting up {folder_path}. Next step: wait until it ends"
            ) from error
        yield


def _missing_environments(
    folder_path: Path, environments: Sequence[PlannedEnvironment]
) -> list[PlannedEnvironment]:
    """Return the environments that are not installed completely in the folder."""
    missing = []
    for environment in environments:
        path = _environment_path(folder_path, environment.name)
        if not folder.is_complete(path):
            missing.append(environment)
    return missing


def _environment_path(folder_path: Path, name: str) -> Path:
    return folder_path / "environments" / name


def _lock_file(folder_path: Path, name: str) -> Path:
    return folder_path / "environments" / f"{name}.lock"


def _resolve_packages(
    request: Request, environments: Sequence[PlannedEnvironment]
) -> dict[str, list[Package]]:
    """Return the packages to install in each environment, by the environment's name.

    The packages are read from the environment's lock file, or resolved with pip if there
    is no lock file.
    """
    folder_path = request.folder
    requirements_file = folder_path / _REQUIREMENTS
    requirements = request.requirements
    if requirements_file.is_file():  # An earlier call has set up the folder.
        requirements = requirements_file.read_text("utf-8")
    # All environments of a folder get the same versions of these packages.
    shared_versions: dict[str, str] = {}
    for lock_file in sorted(folder_path.glob("environments/*.lock")):
        locked_packages = resolving.read_lock_file(lock_file)
        shared_versions.update(resolving.shared_versions(locked_packages))
    packages_by_name = {}
    for environment in environments:
        name, plan = environment.name, environment.plan
        packages = resolving.read_lock_file(_lock_file(folder_path, name))
        if not packages:  # The environment has no lock file yet.
            click.echo(f"{name}: resolving {plan.torch} ...", err=True)
            try:
                packages = resolving.resolve(
                    plan, requirements, shared_versions, request.index
                )
            except SettingError as error:
                raise SettingError(f"{name}: {error}") from None
        # A version that an earlier environment has fixed takes precedence.
        shared_versions = {**resolving.shared_versions(packages), **shared_versions}
        packages_by_name[name] = packages
    return packages_by_name


def _write_requirements_and_locks(
    request: Request, packages_by_name: Mapping[str, Sequence[Package]]
) -> None:
    """Write the requirements and the resolved packages, so that a later run uses the same versions."""
    requirements_file = request.folder / _REQUIREMENTS
    if not requirements_file.is_file():
        folder.write_atomically(requirements_file, request.requirements)
    for name, packages in packages_by_name.items():
        resolving.write_lock_file(_lock_file(request.folder, name), packages)


def _print_sizes(packages_by_name: Mapping[str, Sequence[Package]]) -> None:
    """Print the download size of each environment, and the total size of all files.

    A file that several environments share is counted once in the total.
    """
    all_packages: list[Package] = []
    for packages in packages_by_name.values():
        all_packages += packages
    size_by_url = resolving.download_sizes(all_packages)
    for name, packages in packages_by_name.items():
        urls = {package.url for package in packages if package.url}
        size = _sum_of_known([size_by_url[url] for url in urls])
        click.echo(
            f"{name}: torch {_torch_version(packages)}, {len(packages)} packages, "
            f"{_megabytes(size)}",
            err=True,
        )
    total = _megabytes(_sum_of_known(size_by_url.values()))
    unknown_count = list(size_by_url.values()).count(None)
    if unknown_count:
        total += f", and {unknown_count} files of unknown size"
    click.echo(
        f"To download: {total}. Files in the cache of pip or uv are not downloaded again.",
        err=True,
    )


def _torch_version(packages: Sequence[Package]) -> str:
    return next(package.version for package in packages if package.name == "torch")


def _sum_of_known(sizes: Iterable[int | None]) -> int:
    """Return the sum of the sizes; sizes of `None`, which are unknown, are left out."""
    return sum(size for size in sizes if size is not None)


def _megabytes(size: int) -> str:
    """Return a size in bytes as text, such as `"1,234 MB"`."""
    return f"{size / 1e6:,.0f} MB"


def _install_environment(folder_path: Path, name: str, installer: str) -> None:
    """Install an environment from its lock file, after removing an incomplete installation.

    Raises `click.ClickException` if an installer command fails.
    """
    path = _environment_path(folder_path, name)
    folder.remove_environment(path)
    lock_file = _lock_file(folder_path, name)
    for command in resolving.install_commands(path, lock_file, installer):
        click.echo(f"$ {shlex.join(command)}", err=True)
        completed = subprocess.run(command, check=False)
        if completed.returncode:
            raise click.ClickException(
                f"{shlex.join(command)} exited with status {completed.returncode}. Next step: run "
                "accel setup again, which continues with this environment"
            )


def choose_installer(format_name: str | None) -> str:
    """Return the installer for the value of `--format`: `"uv"` or `"pip"`.

    If the value is `None`, the installer is uv if it is installed, and otherwise pip. Raises
    `click.UsageError` if the format is not an installer.
    """
    installer = format_name or environment_checks.default_installer()
    if installer not in ("pip", "uv"):
        raise click.UsageError(f"--into needs --format pip or uv, not {installer}.")
    return installer
