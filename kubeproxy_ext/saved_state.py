# SPDX-License-Identifier: Apache-2.0
"""The last known Services of each tenant on disk, for new guests while the API server is away.

One file for each tenant, replaced whole, in msgspec's JSON of the objects as they were watched. When
one was last confirmed is its modification time, so that an hour without changes costs no writing.
Losing any of it costs only what it is for: a full disk is reported and survived, a damaged file is
reported and ignored, and what is larger or older than it may be is left out.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from daemonkit import logs
from daemonkit.files import directories
from daemonkit.files.atomic import remove_leftovers, write_atomically
from daemonkit.metrics import Counter
from kubeproxy_ext.cache.tenants import Restored, TenantState
from kubeproxy_ext.compute.packed_slices import endpoints_of, pack
from tenancy.names import is_label

# Older rules are more likely to send packets to what is somebody else's by now.
MAX_AGE_S = 24 * 3600.0
# 1 000 Services with 5 endpoints each are 1.5 MB.
MAX_FILE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 128 << 20
# A tenant under churn is written this often; a restart finds it that much too old.
INTERVAL_S = 30.0
# How often what did not change is confirmed.
CONFIRM_S = 60.0

_SUFFIX = ".json"
_READABLE = (1, 2)
_log = logs.get(__name__)


class SavedState:
    """The files of one directory. Reads and writes happen in threads, one at a time.

    `snapshot` gives a tenant's present state, on the loop; `now` and `wall` are clocks, monotonic
    and of the calendar.
    """

    def __init__(
        self,
        directory: Path,
        snapshot: Callable[[str], TenantState],
        errors: Counter,
        *,
        wall: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._snapshot = snapshot
        self._errors = errors
        self._wall = wall
        self._now = now
        self._due: set[str] = set()
        self._written_at: dict[str, float] = {}
        self._confirmed_at: dict[str, float] = {}
        self._too_large: set[str] = set()
        self._is_failing = False

    def prepare(self) -> None:
        """Make the directory; remove what a killed writer left, and what is too old. Raises OSError."""
        directories.prepare(self._directory, 0o700)
        remove_leftovers(self._directory)
        for path in self._directory.glob(f"*{_SUFFIX}"):
            if self._age(path.stat().st_mtime) > MAX_AGE_S:
                path.unlink(missing_ok=True)

    # ---- reading

    async def load(self, tenant: str) -> Restored | None:
        """What was saved of a tenant; None if there is nothing that can be used."""
        return await asyncio.to_thread(self._load, tenant)

    def _load(self, tenant: str) -> Restored | None:
        path = self._path(tenant)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
                confirmed_at = os.fstat(file.fileno()).st_mtime
            state = msgspec.json.decode(data, type=TenantState)
            state.slices = [pack(each) for each in state.slices]
            for each in state.slices:
                endpoints_of(each)  # raises for what is damaged
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _log.error("saved state cannot be read", file=path, reason=error)
            return None
        restored = Restored(state, self._age(confirmed_at))
        if state.version not in _READABLE or state.tenant != tenant or restored.age_s > MAX_AGE_S:
            _log.warning("saved state is not used", file=path, age_s=round(restored.age_s))
            return None
        return restored

    def _age(self, confirmed_at: float) -> float:
        """A clock that was set back makes state look younger, never of the future."""
        return max(0.0, self._wall() - confirmed_at)

    # ---- writing

    def changed(self, tenants: Iterable[str]) -> None:
        """What is known of these tenants, from the API server itself, has changed."""
        self._due.update(tenant for tenant in tenants if is_label(tenant))

    async def keep(self, confirmed: Mapping[str, float]) -> None:
        """Write what is due and confirm the rest; `confirmed` has the age of each tenant's state."""
        for tenant in sorted(self._due & confirmed.keys()):
            if self._now() - self._written_at.get(tenant, float("-inf")) >= INTERVAL_S:
                await self._write(tenant, confirmed[tenant])
        for tenant in confirmed.keys() - self._due:
            if self._now() - self._confirmed_at.get(tenant, float("-inf")) >= CONFIRM_S:
                await self._confirm(tenant, confirmed[tenant])

    async def write_due(self, confirmed: Mapping[str, float]) -> None:
        """Write all that is due, at the end."""
        for tenant in sorted(self._due & confirmed.keys()):
            await self._write(tenant, confirmed[tenant])

    async def _write(self, tenant: str, age_s: float) -> None:
        self._due.discard(tenant)
        self._written_at[tenant] = self._confirmed_at[tenant] = self._now()
        data = msgspec.json.encode(self._snapshot(tenant))
        if len(data) > MAX_FILE_BYTES:
            if tenant not in self._too_large:
                self._too_large.add(tenant)
                _log.warning("a tenant has too much to be saved", tenant=tenant, bytes=len(data))
            return
        self._too_large.discard(tenant)
        try:
            await asyncio.to_thread(self._put, self._path(tenant), data, self._wall() - age_s)
        except OSError as error:
            self._failed(tenant, error)
        else:
            self._is_failing = False

    async def _confirm(self, tenant: str, age_s: float) -> None:
        self._confirmed_at[tenant] = self._now()
        at = self._wall() - age_s
        try:
            await asyncio.to_thread(os.utime, self._path(tenant), (at, at))
        except FileNotFoundError:
            self._due.add(tenant)
        except OSError as error:
            self._failed(tenant, error)

    def _failed(self, tenant: str, error: OSError) -> None:
        self._due.add(tenant)
        self._errors.inc()
        if not self._is_failing:
            self._is_failing = True
            _log.error("state cannot be saved", file=self._path(tenant), reason=error)

    def _put(self, path: Path, data: bytes, confirmed_at: float) -> None:
        self._make_room(path, len(data))
        write_atomically(path, data)
        os.utime(path, (confirmed_at, confirmed_at))

    def _make_room(self, path: Path, size: int) -> None:
        """Remove the files that were confirmed the longest ago, until all that is left is little."""
        others = {each: each.stat() for each in self._directory.glob(f"*{_SUFFIX}") if each != path}
        total = size + sum(status.st_size for status in others.values())
        for each in sorted(others, key=lambda other: others[other].st_mtime):
            if total <= MAX_TOTAL_BYTES:
                break
            each.unlink(missing_ok=True)
            total -= others[each].st_size

    def _path(self, tenant: str) -> Path:
        if not is_label(tenant):
            raise ValueError(f"no cluster key: {tenant[:80]!r}")
        return self._directory / f"{tenant}{_SUFFIX}"
