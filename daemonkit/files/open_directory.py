# SPDX-License-Identifier: Apache-2.0
"""Reads and replaces files for other users, in directories that these users may write.

Root that opens a path in a daemon's directory would follow a symbolic link which the daemon has put there.
So a directory is opened once, with the owner of each parent checked (`files.directories`), and each name in
it is opened below that descriptor, without following links. A file is never changed in place: it could be a
hard link to another one.
"""

import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from daemonkit.files import directories
from daemonkit.files.directories import UnusableDirectoryError

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO would block, and a device could act.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Owner:
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class FoundFile:
    data: bytes = field(repr=False)
    owner: Owner
    mode: int


class OpenDirectory:
    """A directory that stays open; a context manager. All methods raise OSError."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def __enter__(self) -> "OpenDirectory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    @classmethod
    def prepare(cls, path: Path, mode: int = 0o755) -> "OpenDirectory":
        """Make it if needed, as `directories.prepare`, and open it."""
        return cls(path, directories.open_prepared(path, mode))

    @classmethod
    def find(cls, path: Path) -> "OpenDirectory | None":
        """Open it if it exists. Changes nothing."""
        descriptor = directories.open_existing(path)
        return None if descriptor is None else cls(path, descriptor)

    def child(self, name: str, owner: Owner, mode: int) -> "OpenDirectory":
        """A directory in this one, made if needed, that belongs to `owner` with at most `mode`."""
        try:
            os.mkdir(name, 0o700, dir_fd=self._descriptor)
        except FileExistsError:
            pass
        except OSError as error:
            raise self._named(error, name) from None
        child = self._open_child(name, owner)
        try:
            status = os.fstat(child._descriptor)  # noqa: SLF001 - of its own class
            if (status.st_uid, status.st_gid) != (owner.uid, owner.gid):
                os.fchown(child._descriptor, owner.uid, owner.gid)  # noqa: SLF001 - as above
            if stat.S_IMODE(status.st_mode) != mode:
                os.fchmod(child._descriptor, mode)  # noqa: SLF001 - as above
        except OSError as error:
            os.close(child._descriptor)  # noqa: SLF001 - as above
            raise self._named(error, name) from None
        return child

    def find_child(self, name: str, owner: Owner | None) -> "OpenDirectory | None":
        """A directory in this one, if it exists, that belongs to `owner`, root or us. Changes nothing."""
        try:
            return self._open_child(name, owner)
        except FileNotFoundError:
            return None

    def _open_child(self, name: str, owner: Owner | None) -> "OpenDirectory":
        path = self.path / name
        try:
            descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise UnusableDirectoryError(path, "not a directory", "remove it, and check why") from None
            raise self._named(error, name) from None
        status = os.fstat(descriptor)
        accepted = os.geteuid() if owner is None else owner.uid
        if status.st_uid not in (0, os.geteuid(), accepted):
            os.close(descriptor)
            remedy = f"chown it to uid {accepted}, and check its content"
            raise UnusableDirectoryError(path, f"it belongs to uid {status.st_uid}", remedy)
        return OpenDirectory(path, descriptor)

    def read(self, name: str, max_bytes: int) -> FoundFile | None:
        """A regular file in it; None if there is none."""
        try:
            descriptor = os.open(name, _READ, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._named(error, name) from None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", str(self.path / name))
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", str(self.path / name))
        return FoundFile(data, Owner(status.st_uid, status.st_gid), stat.S_IMODE(status.st_mode))

    def replace(self, name: str, data: bytes, mode: int, owner: Owner | None = None) -> None:
        """Replace a file in it whole or not at all, and durably; `owner` is by default our user."""
        temporary = f".{name}.{os.urandom(6).hex()}.tmp"
        try:
            descriptor = os.open(temporary, _CREATE, 0o600, dir_fd=self._descriptor)
            try:
                try:
                    view = memoryview(data)
                    while view:
                        view = view[os.write(descriptor, view) :]
                    if owner is not None and owner != Owner(os.geteuid(), os.getegid()):
                        os.fchown(descriptor, owner.uid, owner.gid)
                    os.fchmod(descriptor, mode)  # not at open, where the umask applies
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            except BaseException:
                os.unlink(temporary, dir_fd=self._descriptor)
                raise
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._named(error, name) from None

    def _named(self, error: OSError, name: str) -> OSError:
        return type(error)(error.errno, error.strerror, str(self.path / name))
