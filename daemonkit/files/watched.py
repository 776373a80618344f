# SPDX-License-Identifier: Apache-2.0
"""Watches files that other programs change: certificates, tenants, the node's settings.

Content, not times: a Kubernetes Secret is mounted as `tls.crt -> ..data/tls.crt`,
`..data -> ..2026_11_20_...`, and an update swaps the link in the middle; the files' own times may
well go backwards. Times only save the reading: an unchanged signature of `stat` means unchanged
content, except for a file that changed so lately that a second change may carry the same times
(the file system's clock ticks coarsely; git calls such an entry racily clean).
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

# A tenant file is about 20 KB, a CA bundle of a distribution 220 KB.
MAX_FILE_BYTES = 1 << 20
MAX_FILES = 5_000

# Ext4 and XFS stamp with the kernel tick (1-10 ms), FAT with 2 s; NFS clients may lag by more, but
# then by their own attribute cache (3 s by default), which hides the change itself.
RACY_S = 3.0

_READS_UNTIL_STABLE = 3

_Signature = tuple[int, ...] | str


class FilesError(Exception):
    """The whole set cannot be read; the text names the directory and the reason."""


class Watched:
    """A set of files, or the files of one directory by name pattern, watched by their content.

    `poll` returns whether the content has changed since the last `poll` or `snapshot`; the first one returns
    true. Hidden files are never part of a directory's set: they are editors', ours while we
    write, and the inside of Secret mounts.
    """

    def __init__(
        self,
        list_paths: Callable[[], Iterable[Path]],
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_files: int = MAX_FILES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.problems: dict[Path, str] = {}
        self._list_paths = list_paths
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        self._clock = clock
        self._signatures: dict[Path, _Signature] | str | None = None
        self._digests: dict[Path, bytes] | str | None = None
        self._is_racy = False

    @classmethod
    def files(
        cls,
        paths: Iterable[Path],
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> "Watched":
        """Watch these files, which need not exist yet."""
        fixed = tuple(paths)
        return cls(lambda: fixed, max_file_bytes=max_file_bytes, max_files=len(fixed), clock=clock)

    @classmethod
    def directory(
        cls,
        directory: Path,
        pattern: str,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_files: int = MAX_FILES,
        clock: Callable[[], float] = time.time,
    ) -> "Watched":
        """Watch the files directly in `directory` whose names match `pattern` (fnmatch)."""
        return cls(
            lambda: _listing(directory, pattern),
            max_file_bytes=max_file_bytes,
            max_files=max_files,
            clock=clock,
        )

    def poll(self) -> bool:
        """Return whether the content changed. Reads nothing while every file's `stat` is the same.

        Never raises: a directory that cannot be listed is a state like another, and going into it
        or out of it is a change; `snapshot` then has the reason.
        """
        before = self._digests
        signatures = self._scan()
        if signatures == self._signatures and not self._is_racy:
            return False
        self._read(signatures)
        return self._digests != before

    def snapshot(self) -> dict[Path, bytes]:
        """Read all files now. A file that is missing is not in the result.

        A file that exists and cannot be used (too large, unreadable, not a regular file) is not in
        the result either, but in `problems` with the reason: it concerns that file alone. Raises
        `FilesError` when the directory cannot be listed or holds too many files: that differs from
        an empty one.
        """
        content = self._read(self._scan())
        if isinstance(self._digests, str):
            raise FilesError(self._digests)
        return content

    def _scan(self) -> dict[Path, _Signature] | str:
        try:
            paths = sorted(self._list_paths())
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        if len(paths) > self._max_files:
            return f"{paths[0].parent}: more than {self._max_files} files"
        return {path: signature(path) for path in paths}

    def _read(self, signatures: dict[Path, _Signature] | str) -> dict[Path, bytes]:
        """Read and remember. Reads again when something changed meanwhile.

        So that a certificate and its key come from one side of a swap, not from both. It cannot be
        promised: a writer who never rests gets what there was.
        """
        content: dict[Path, bytes] = {}
        for _ in range(_READS_UNTIL_STABLE):
            self.problems = {}
            content = {}
            if isinstance(signatures, str):
                self._signatures, self._digests, self._is_racy = signatures, signatures, False
                return {}
            digests: dict[Path, bytes] = {}
            for path in signatures:
                data = self._content(path)
                if data is not None:
                    content[path] = data
                    digests[path] = hashlib.blake2b(data, digest_size=20).digest()
                elif path in self.problems:
                    digests[path] = self.problems[path].encode()
            after = self._scan()
            self._signatures, self._digests = signatures, digests
            if after == signatures:
                break
            signatures = after
        self._is_racy = self._changed_recently()
        return content

    def _content(self, path: Path) -> bytes | None:
        try:
            # Not blocking, or a FIFO under the name of a file would hold the whole daemon.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    self.problems[path] = "not a regular file"
                    return None
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    data = file.read(self._max_file_bytes + 1)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.problems[path] = error.strerror or type(error).__name__
            return None
        if len(data) > self._max_file_bytes:
            self.problems[path] = f"larger than {self._max_file_bytes} bytes"
            return None
        return data

    def _changed_recently(self) -> bool:
        if not isinstance(self._signatures, dict):
            return False
        limit_ns = int((self._clock() - RACY_S) * 1e9)
        return any(
            not isinstance(seen, str) and max(seen[-2:]) > limit_ns for seen in self._signatures.values()
        )


def _listing(directory: Path, pattern: str) -> list[Path]:
    with os.scandir(directory) as entries:
        return [
            directory / entry.name
            for entry in entries
            if not entry.name.startswith(".") and fnmatchcase(entry.name, pattern)
        ]


def signature(path: Path) -> _Signature:
    """What changes when the file does: which file the name leads to, its size and its times.

    The change time is there because a content can be written under an old modification time
    (`cp -p`, `tar`), which the inode's own change time does not follow.
    """
    try:
        status = path.stat()
    except OSError as error:
        return error.strerror or type(error).__name__
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
