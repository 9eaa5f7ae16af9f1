"""Check that a file or folder belongs to this user only, and that nobody else can replace it.

A user who can write to a folder can rename what is in it. So each folder above the library, from the root of
the file system down, must belong to root or to this user. Checked in that order, a result for one folder
still holds when the next is checked.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

from accel_core.errors import OpCacheError

__all__ = ["check", "check_above", "check_opened", "elsewhere"]

#: Links on the way to a folder; Linux follows as many.
_MOST_LINKS = 40


def check(path: Path, right_kind: Callable[[int], bool], kind: str) -> None:
    """Raise `OpCacheError` unless this is a file or folder of this user that nobody else can write to."""
    try:
        status = path.lstat()
    except OSError as error:
        raise OpCacheError(
            f"{path} cannot be examined: {error.strerror}. {elsewhere()}"
        ) from error
    if stat.S_ISLNK(status.st_mode):
        raise OpCacheError(
            f"{path} is a symbolic link, which is not followed for loading. "
            f"Set ACCEL_CACHE to the real folder, or remove the link: rm {shlex.quote(str(path))}"
        )
    _check_status(path, status, right_kind, kind)


def check_opened(path: Path, descriptor: int) -> None:
    """Check the file that `descriptor` is open on as `check` does; `path` may name another file by now."""
    _check_status(path, os.fstat(descriptor), stat.S_ISREG, "file")


def check_above(folder: Path, *, make: bool = False) -> bool:
    """Return whether all folders above this absolute one exist; `make` creates missing ones, private to us.

    Raises `OpCacheError` for a folder that belongs neither to root nor to this user, or in which others may
    rename files of ours. Links are followed, and the folders on their way are checked too. Raises `OSError`
    if a folder cannot be created. On Windows nothing is checked: the profile's access lists keep others out.
    """
    if not hasattr(os, "geteuid"):
        if make:
            folder.parent.mkdir(parents=True, exist_ok=True)
        return folder.parent.is_dir()
    left = [*reversed(folder.parent.parts[1:])]
    place, links = Path(folder.anchor), 0
    _check_owners(place, place.lstat())
    while left:
        name = left.pop()
        place = place.parent if name == ".." else place / name
        try:
            status = place.lstat()
        except FileNotFoundError:
            if not make:
                return False
            status = _made(place)
        except OSError as error:
            raise OpCacheError(
                f"{place} cannot be examined: {error.strerror}. {elsewhere()}"
            ) from error
        _check_owners(place, status)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OpCacheError(
                    f"{folder} lies behind too many symbolic links. {elsewhere()}"
                )
            target = place.readlink()
            place = Path(target.anchor) if target.is_absolute() else place.parent
            left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        elif not stat.S_ISDIR(status.st_mode):
            raise OpCacheError(
                f"{folder} cannot be reached: {place} is not a folder. {elsewhere()}"
            )
    return True


def elsewhere() -> str:
    """Return the next step if a folder cannot be used."""
    return (
        "Set ACCEL_CACHE to a folder of your own, as in ACCEL_CACHE=$HOME/accel-cache."
    )


def _made(folder: Path) -> os.stat_result:
    """Make a folder for this user alone: what the umask takes away is put back, as it may be any."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:  # another process was first
        pass
    else:
        folder.chmod(0o700)
    return folder.lstat()


def _check_status(
    path: Path, status: os.stat_result, right_kind: Callable[[int], bool], kind: str
) -> None:
    if not right_kind(status.st_mode):
        raise OpCacheError(f"{path} is not a {kind}. {elsewhere()}")
    if not hasattr(os, "geteuid"):
        return  # Windows: the profile's access lists keep others out
    if status.st_uid != os.geteuid():
        raise OpCacheError(
            f"{path} belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}: "
            f"nothing is loaded from there. {elsewhere()}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OpCacheError(
            f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o}): nothing is loaded "
            f"from there. If you trust what is in it: chmod go-w {shlex.quote(str(path))}. "
            f"Else: rm -r {shlex.quote(str(path))}"
        )


def _check_owners(place: Path, status: os.stat_result) -> None:
    """Raise `OpCacheError` unless only root and this user can rename what lies in this folder above ours."""
    if status.st_uid not in (0, os.geteuid()) and not _is_unmapped(status.st_uid):
        raise OpCacheError(
            f"{place}, above the folder for compiled operators, belongs to user {status.st_uid}, who could "
            f"put other code in its place; this process runs as user {os.geteuid()}. {elsewhere()}"
        )
    if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX:
        return  # a link has no mode of its own; of a sticky folder each renames only what is theirs
    if status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and not _is_alone(place, status)
    ):
        raise OpCacheError(
            f"{place}, above the folder for compiled operators, can be written by others (mode "
            f"{stat.S_IMODE(status.st_mode):04o}), who could put other code in its place. "
            f"If it is yours alone: chmod go-w {shlex.quote(str(place))}. {elsewhere()}"
        )


def _is_alone(place: Path, status: os.stat_result) -> bool:
    """Whether a folder's group is root's, or this user's private one, as many systems give to each user.

    With an access list the mode does not say who else may write.
    """
    if hasattr(os, "listxattr") and "system.posix_acl_access" in _attributes(place):
        return False
    if status.st_gid == 0:
        return True
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    own = user.pw_gid == status.st_gid and group.gr_name == user.pw_name
    return own and not set(group.gr_mem) - {user.pw_name}


def _attributes(place: Path) -> list[str]:
    try:
        return os.listxattr(place)
    except OSError:  # a file system without
        return []


def _is_unmapped(user: int) -> bool:
    """Whether this stands for users without a number here, as root is in a container of a user's own.

    user_namespaces(7): the kernel shows them as one user, which then is nobody in particular. Who of them
    owns a folder cannot be told, and / is always one of theirs.
    """
    try:
        if user != int(Path("/proc/sys/kernel/overflowuid").read_text()):
            return False
        rows = [
            list(map(int, line.split()))
            for line in Path("/proc/self/uid_map").read_text().splitlines()
        ]
    except (OSError, ValueError):
        return False
    return not any(first <= user < first + count for first, _, count in rows)
