# SPDX-License-Identifier: Apache-2.0
"""Checks the owner and mode of the directories in which a daemon keeps files, and of all their parents.

A user with write permission on a directory can replace a file in it by a symbolic link. A daemon that opens
files there then writes the link's target, and kata-bridge does that as root. So the directory and each of its
parents must belong to root or to the daemon's own user, and must be writable by that owner alone. A parent
with the sticky bit (/tmp) is accepted, because other users cannot replace the daemon's own entries there.
The check resolves symbolic links itself, one by one, and checks the owner of each link too.

/run/vcnode therefore belongs to root, mode 0755. A daemon that runs as another user has its own directory
below it (`/run/vcnode/dnsconfig`, systemd's `RuntimeDirectory=vcnode/dnsconfig`).
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, runtime_checkable

# path_resolution(7): the kernel gives up after as many.
_MAX_LINKS = 40
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnusableDirectoryError(OSError):
    """A directory cannot be created, or others can write to it. The text names it and what to do."""

    def __init__(self, path: Path, problem: str, remedy: str = "", *, number: int = errno.EPERM) -> None:
        super().__init__(number, f"{problem}; {remedy}" if remedy else problem, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


@runtime_checkable
class HasDirectories(Protocol):
    """A configuration that names directories."""

    def directories(self) -> Iterable[tuple[str, Path]]:
        """Where its daemon keeps files and sockets, each with the key that names it."""


def problem(path: Path) -> str:
    """Why this user cannot keep files in `path`, which need not exist yet; empty if it can.

    Changes nothing: for `--check-config`.
    """
    try:
        place, missing = _walk(path)
    except UnusableDirectoryError as error:
        return str(error)
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        uid = os.geteuid()
        if missing:
            return f"{path}: it does not exist, and uid {uid} cannot create it in {place}; create it for it"
        return f"{path}: uid {uid} cannot write to it; chown it to this user"
    return ""


def prepare(path: Path, mode: int = 0o755) -> None:
    """Make the directory if it is not there, and those on the way to it (0755), for our user alone to
    write. One that is there and is ours loses what `mode` does not have.

    Raises `UnusableDirectoryError`.
    """
    os.close(open_prepared(path, mode))


def open_prepared(path: Path, mode: int = 0o755) -> int:
    """`prepare` it, and return a descriptor of it, for `dir_fd`."""
    place, missing = _walk(path)
    for index, name in enumerate(missing):
        place /= name
        _make(place, mode if index == len(missing) - 1 else 0o755)
    place, missing = _walk(path)
    try:
        descriptor = os.open(place.joinpath(*missing), _OPEN)
    except OSError as error:
        raise UnusableDirectoryError(path, error.strerror or "cannot be opened") from None
    try:
        status = os.fstat(descriptor)
        _check(place, status, is_last=True)
        now = stat.S_IMODE(status.st_mode)
        if status.st_uid == os.geteuid() and now & 0o777 & ~mode:
            os.fchmod(descriptor, now & (mode | 0o7000))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_existing(path: Path) -> int | None:
    """A descriptor of the directory, or None if it does not exist. Changes nothing.

    Raises `UnusableDirectoryError`.
    """
    place, missing = _walk(path)
    if missing:
        return None
    try:
        descriptor = os.open(place, _OPEN)
    except OSError as error:
        raise UnusableDirectoryError(path, error.strerror or "cannot be opened") from None
    try:
        _check(place, os.fstat(descriptor), is_last=True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _make(path: Path, mode: int) -> None:
    try:
        path.mkdir(mode=0o700)
        descriptor = os.open(path, _OPEN)
    except FileExistsError:
        return  # another daemon created it, or it is a file: `_walk` decides
    except OSError as error:
        problem = f"it does not exist and cannot be created: {error.strerror}"
        remedy = f"create it for uid {os.geteuid()}"
        raise UnusableDirectoryError(path, problem, remedy, number=error.errno or errno.EIO) from None
    try:
        os.fchmod(descriptor, mode)  # not by mkdir, where the umask applies
    finally:
        os.close(descriptor)


def _walk(path: Path) -> tuple[Path, list[str]]:
    """The last directory of the path that exists, without links, and the missing names below it."""
    place = Path("/")
    remaining = list(reversed(path.absolute().parts[1:]))
    links = 0
    _check(place, place.lstat(), is_last=False)
    while remaining:
        name = remaining.pop()
        if name == "..":
            place = place.parent
            continue
        inside = place / name
        try:
            status = inside.lstat()
        except FileNotFoundError:
            return place, [name, *reversed(remaining)]
        except OSError as error:
            raise UnusableDirectoryError(inside, error.strerror or "cannot be examined") from None
        if stat.S_ISLNK(status.st_mode):
            _check_owner(inside, status)
            links += 1
            if links > _MAX_LINKS:
                raise UnusableDirectoryError(path, "too many links", number=errno.ELOOP)
            target = inside.readlink()
            if target.is_absolute():
                place = Path("/")
            remaining += [part for part in reversed(target.parts) if part != "/"]
            continue
        _check(inside, status, is_last=not remaining)
        place = inside
    return place, []


def _check(path: Path, status: os.stat_result, *, is_last: bool) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise UnusableDirectoryError(path, "not a directory", number=errno.ENOTDIR)
    _check_owner(path, status)
    is_sticky = bool(status.st_mode & stat.S_ISVTX) and not is_last
    if status.st_mode & _WRITABLE_BY_OTHERS and not is_sticky:
        mode = stat.S_IMODE(status.st_mode)
        raise UnusableDirectoryError(
            path,
            f"users other than its owner can write to it (mode {mode:04o})",
            # /tmp and its like are meant to be so.
            "name a directory below it"
            if status.st_mode & stat.S_ISVTX
            else f"chmod go-w {path}, and check its content",
        )


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        ours = "root" if os.geteuid() == 0 else f"root or uid {os.geteuid()}"
        raise UnusableDirectoryError(
            path, f"it belongs to uid {status.st_uid}, not to {ours}", f"chown it to {ours}, or name another"
        )
