# SPDX-License-Identifier: Apache-2.0
"""The files in which a daemon keeps what it knows for its next start: bounds, age, damage, a full disk.

A file's modification time is when its content was last confirmed, so that confirming costs no writing.
Losing a file costs only what it is for: what cannot be read or written is logged, and the daemon goes on.
"""

import asyncio
import math
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from daemonkit import logs
from daemonkit.files import directories
from daemonkit.files.atomic import remove_leftovers, write_atomically
from daemonkit.metrics import Counter

# After a reboot, or a control plane's repair overnight, yesterday's state still helps. In older state, names
# and addresses are more likely to belong to other owners by now.
MAX_AGE_S = 24 * 3600.0
MAX_FILE_BYTES = 16 << 20

T = TypeVar("T")

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """The content of a file, and how many seconds ago it was confirmed."""

    value: T
    age_s: float


class SavedFiles:
    """The files of one directory, named `*.json`. `load` blocks; writes happen in threads.

    State that was confirmed more than `max_ahead_s` in the future is not used: its age is unknown.
    """

    def __init__(
        self,
        directory: Path,
        errors: Counter,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_total_bytes: int | None = None,
        max_ahead_s: float = math.inf,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._errors = errors
        self._max_file_bytes = max_file_bytes
        self._max_total_bytes = max_total_bytes
        self._max_ahead_s = max_ahead_s
        self._wall = wall
        self._is_failing = False

    def prepare(self) -> None:
        """Make the directory for us alone, and remove what a killed writer left. Raises OSError."""
        directories.prepare(self._directory, 0o700)
        remove_leftovers(self._directory)

    def remove_old(self) -> None:
        """Remove files that were confirmed too long ago to be used. Raises OSError."""
        for path, status in self._saved().items():
            if self._wall() - status.st_mtime > MAX_AGE_S:
                path.unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        return self._directory / name

    def load(
        self,
        name: str,
        decode: Callable[[bytes], T],
        is_usable: Callable[[T], bool],
        confirmed_at: Callable[[T], float] | None = None,
    ) -> Loaded[T] | None:
        """The file's content; None if there is none, or none that can be used.

        `decode` raises for what is damaged, `is_usable` is false for another version or owner, and
        `confirmed_at` is for content that has that time in it.
        """
        path = self.path(name)
        try:
            with path.open("rb") as file:
                data = file.read(self._max_file_bytes + 1)
                at = os.fstat(file.fileno()).st_mtime
            if len(data) > self._max_file_bytes:
                raise ValueError(f"more than {self._max_file_bytes} bytes")
            value = decode(data)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, ValueError, RecursionError) as error:
            _log.error("saved state cannot be read, starting without it", file=path, reason=error)
            return None
        age_s = self._wall() - (at if confirmed_at is None else confirmed_at(value))
        if not is_usable(value):
            reason = "another version or owner"
        elif age_s > MAX_AGE_S:
            reason = f"confirmed {age_s:.0f} s ago, at most {MAX_AGE_S:.0f} s are used"
        elif -age_s > self._max_ahead_s:
            reason = f"confirmed {-age_s:.0f} s in the future, check the clock"
        else:
            return Loaded(value, max(0.0, age_s))
        _log.warning("saved state is not used, starting without it", file=path, reason=reason)
        return None

    async def write(self, name: str, data: bytes, confirmed_at: float | None = None) -> bool:
        """Replace the file. False, and one line in the log until the next success, if that fails."""

        def step() -> None:
            if len(data) > self._max_file_bytes:
                raise OSError(f"more than {self._max_file_bytes} bytes")
            if self._max_total_bytes is not None:
                self._make_room(self._max_total_bytes - len(data), self.path(name))
            write_atomically(self.path(name), data)
            if confirmed_at is not None:
                os.utime(self.path(name), (confirmed_at, confirmed_at))

        return await self._attempt(name, step)

    async def confirm(self, name: str, confirmed_at: float) -> bool:
        """Note that the content is still right. False if it has to be written again."""
        is_there = True

        def step() -> None:
            nonlocal is_there
            try:
                os.utime(self.path(name), (confirmed_at, confirmed_at))
            except FileNotFoundError:
                is_there = False

        return await self._attempt(name, step) and is_there

    async def _attempt(self, name: str, step: Callable[[], None]) -> bool:
        try:
            await asyncio.to_thread(step)
        except OSError as error:
            self._errors.inc()
            if not self._is_failing:
                self._is_failing = True
                _log.error("state cannot be saved, trying again", file=self.path(name), reason=error)
            return False
        self._is_failing = False
        return True

    def _make_room(self, limit_bytes: int, path: Path) -> None:
        """Remove the files that were confirmed the longest ago, until the others fit."""
        others = {each: status for each, status in self._saved().items() if each != path}
        total = sum(status.st_size for status in others.values())
        for each in sorted(others, key=lambda other: others[other].st_mtime):
            if total <= limit_bytes:
                break
            each.unlink(missing_ok=True)
            total -= others[each].st_size

    def _saved(self) -> dict[Path, os.stat_result]:
        """Saved state alone: an operator may keep other files in the directory."""
        found = {path: path.lstat() for path in self._directory.glob("[!.]*.json")}
        return {path: status for path, status in found.items() if stat.S_ISREG(status.st_mode)}
