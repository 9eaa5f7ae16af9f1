"""`accel setup --into FOLDER`: make an environment per build of torch, and launchers.

A launcher starts a program in the environment that fits the machine.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from accel_core.errors import SettingError
from accel_tools.setup import builds, environment, folder, machines, resolving
from accel_tools.setup.folder import Wanted
from accel_tools.setup.resolving import Package

__all__ = ["Request", "SetupCommand", "default_form", "set_up"]

#: The name of the folder's file that lists the packages of all environments.
_REQUIREMENTS = "requirements.txt"


class SetupCommand(click.Command):
    """A command whose arguments after `--` are packages."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remove the packages from `args` and store them as `ctx.obj`.

        Otherwise click would add the packages to the names.
        """
        end = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])


class Request:
    """The arguments of `accel setup --into`."""

    def __init__(
        self,
        into: Path,
        names: Sequence[str],
        packages: Sequence[str],
        requirements: Path | None,
        index: str,
    ) -> None:
        self.folder = into.absolute()
        self.names = names
        lines = [requirements.read_text("utf-8").strip()] if requirements else []
        #: The packages of all environments, in the format of a requirements file.
        self.requirements = "".join(f"{line}\n" for line in (*lines, *packages))
        #: The URL of PyTorch's indexes, or of a mirror.
        self.index = index or builds.INDEX


def set_up(request: Request, form: str, torch: str, driver: str, *, yes: bool) -> None:
    """Make the environments that the folder lacks, after asking unless `yes`.

    Args:
        request: The folder, the environments' names and the packages.
        form: The installer, `"uv"` or `"pip"`.
        torch: The version of torch, or an empty string for the newest that fits.
        driver: The version of NVIDIA's driver to plan for, or an empty string.
        yes: Whether to install without asking.

    Raises:
        SettingError: A build or a package has no version that fits. Nothing was downloaded.
    """
    into = request.folder
    fault = folder.problem(into, request.requirements)
    if fault:
        raise SettingError(fault)
    machine = machines.here()
    wanted = folder.wanted(request.names, machine, torch, driver)
    with _alone(into):
        missing = [each for each in wanted if not folder.is_whole(_place(into, each))]
        locked = _locked(request, missing)
        if missing:
            _show_sizes(missing, locked)
            if not yes:
                click.confirm("Download and install them?", abort=True, err=True)
            _keep(request, locked)
        folder.write_hardware(into)
        for each in missing:
            _make(into, each, locked[each.name], form, machine.architecture)
        folder.write_launchers(into)
    click.echo(f"Done. Next step: accel doctor {shlex.quote(str(into))}", err=True)


@contextmanager
def _alone(into: Path) -> Iterator[None]:
    """Create the folder `into`, and lock it against other `accel setup` processes.

    Raises `SettingError` if the folder cannot be written, or if another `accel setup`
    process has locked it.
    """
    import fcntl  # Windows does not have this module.

    try:
        into.mkdir(parents=True, exist_ok=True)
        file = (into / ".setup").open("w")
    except OSError as error:
        raise SettingError(f"{into} cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SettingError(
                f"another accel setup process is setting up {into}. Next step: wait until it ends"
            ) from error
        yield


def _place(into: Path, each: Wanted) -> Path:
    return into / "environments" / each.name


def _lock(into: Path, name: str) -> Path:
    return into / "environments" / f"{name}.lock"


def _locked(request: Request, wanted: Sequence[Wanted]) -> dict[str, list[Package]]:
    """Return the packages of each environment, by the environment's name.

    The packages are read from the environment's lock file, or resolved with pip if there
    is none.
    """
    into = request.folder
    kept = into / _REQUIREMENTS
    requirements = kept.read_text("utf-8") if kept.is_file() else request.requirements
    fixed: dict[str, str] = {}
    for lock in sorted(into.glob("environments/*.lock")):
        fixed.update(resolving.shared(resolving.read_lock(lock)))
    locked = {}
    for each in wanted:
        packages = resolving.read_lock(_lock(into, each.name))
        if not packages:
            click.echo(f"{each.name}: resolving {each.plan.torch} ...", err=True)
            try:
                packages = resolving.resolve(
                    each.plan, requirements, fixed, request.index
                )
            except SettingError as error:
                raise SettingError(f"{each.name}: {error}") from None
        fixed = {**resolving.shared(packages), **fixed}
        locked[each.name] = packages
    return locked


def _keep(request: Request, locked: dict[str, list[Package]]) -> None:
    """Write the requirements and the resolved packages, so that a later run uses the same files."""
    kept = request.folder / _REQUIREMENTS
    if not kept.is_file():
        folder.write_atomically(kept, request.requirements)
    for name, packages in locked.items():
        resolving.write_lock(_lock(request.folder, name), packages)


def _show_sizes(missing: Sequence[Wanted], locked: dict[str, list[Package]]) -> None:
    """Print the download size of each environment, and the total size of all files.

    A file that several environments share is counted once in the total.
    """
    every = [package for each in missing for package in locked[each.name]]
    size_of = resolving.sizes(every)
    for each in missing:
        packages = locked[each.name]
        torch = next(p.version for p in packages if p.name == "torch")
        amount = _total(size_of[url] for url in {p.url for p in packages} if url)
        count = f"{len(packages)} packages"
        line = f"{each.name}: torch {torch}, {count}, {_megabytes(amount)}"
        click.echo(line, err=True)
    total = _megabytes(_total(size_of.values()))
    unknown = list(size_of.values()).count(None)
    more = f", and {unknown} files of unknown size" if unknown else ""
    click.echo(
        f"To download: {total}{more}. Files in the cache of pip or uv are not downloaded again.",
        err=True,
    )


def _total(sizes: Iterable[int | None]) -> int:
    """Return the sum of the known sizes."""
    return sum(size for size in sizes if size is not None)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _make(
    into: Path, each: Wanted, packages: Sequence[Package], form: str, architecture: str
) -> None:
    """Make one environment, after removing what an earlier run left of it.

    Raises `click.ClickException` if a command of the installer fails.
    """
    place = _place(into, each)
    folder.remove(place)
    for words in resolving.install(place, _lock(into, each.name), form):
        click.echo(f"$ {shlex.join(words)}", err=True)
        completed = subprocess.run(words, check=False)
        if completed.returncode:
            raise click.ClickException(
                f"{shlex.join(words)} exited with status {completed.returncode}. Next step: run "
                "accel setup again, which continues with this environment"
            )
    torch = next(package.version for package in packages if package.name == "torch")
    folder.mark(place, folder.mark_of(each.plan, torch, architecture))


def default_form(form: str | None) -> str:
    """Return the installer, `"uv"` or `"pip"`; raise `click.UsageError` for other formats."""
    chosen = form or environment.default_format()
    if chosen not in ("pip", "uv"):
        raise click.UsageError(f"--into needs --format pip or uv, not {chosen}.")
    return chosen
