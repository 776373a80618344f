# SPDX-License-Identifier: Apache-2.0
"""The saved state: each tenant's objects on disk, for new guests while the API server is unreachable.

There is one file for each tenant, with the cached objects as JSON, replaced whole. Its modification time is
when the objects were last confirmed, so without changes nothing is written.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from daemonkit import logs
from daemonkit.files.saved_state import SavedFiles
from daemonkit.metrics import Counter
from kubeproxy_ext.cache.tenants import RestoredTenant, SavedTenant
from kubeproxy_ext.compute.packed_slices import endpoints_of, pack
from tenancy.names import is_dns_label

# 1 000 Services with 5 endpoints each are 1.5 MB.
MAX_FILE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 128 << 20
# The shortest time between two writes of a tenant. After a restart its state is that much older.
INTERVAL_S = 30.0
# How often an unchanged file is confirmed.
CONFIRM_S = 60.0

_READABLE = (1, 2)
_log = logs.get(__name__)


class SavedTenants:
    """The files of one directory. Reads and writes happen in threads, one at a time.

    `snapshot` returns a tenant's current objects; it runs on the event loop.
    """

    def __init__(
        self,
        directory: Path,
        snapshot: Callable[[str], SavedTenant],
        errors: Counter,
        *,
        wall: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = SavedFiles(
            directory, errors, max_file_bytes=MAX_FILE_BYTES, max_total_bytes=MAX_TOTAL_BYTES, wall=wall
        )
        self._snapshot = snapshot
        self._wall = wall
        self._now = now
        self._due: set[str] = set()
        self._written_at: dict[str, float] = {}
        self._confirmed_at: dict[str, float] = {}
        self._too_large: set[str] = set()

    def prepare(self) -> None:
        """Make the directory, and remove leftovers and files that are too old. Raises OSError."""
        self._files.prepare()
        self._files.remove_old()

    # ---- reading

    async def load(self, tenant: str) -> RestoredTenant | None:
        """A tenant's saved state; None if there is none that can be used."""
        return await asyncio.to_thread(self._load, tenant)

    def _load(self, tenant: str) -> RestoredTenant | None:
        loaded = self._files.load(
            _name(tenant),
            _decode,
            lambda state: state.version in _READABLE and state.tenant == tenant,
        )
        return None if loaded is None else RestoredTenant(loaded.value, loaded.age_s)

    # ---- writing

    def changed(self, tenants: Iterable[str]) -> None:
        """The objects of these tenants have changed. Only tenants that have synced count."""
        self._due.update(tenant for tenant in tenants if is_dns_label(tenant))

    async def keep(self, confirmed: Mapping[str, float]) -> None:
        """Write changed tenants and confirm the others; `confirmed` has the age of each one's objects."""
        for tenant in sorted(self._due & confirmed.keys()):
            if self._now() - self._written_at.get(tenant, float("-inf")) >= INTERVAL_S:
                await self._write(tenant, confirmed[tenant])
        for tenant in confirmed.keys() - self._due:
            if self._now() - self._confirmed_at.get(tenant, float("-inf")) >= CONFIRM_S:
                await self._confirm(tenant, confirmed[tenant])

    async def write_due(self, confirmed: Mapping[str, float]) -> None:
        """Write all changed tenants, at the end."""
        for tenant in sorted(self._due & confirmed.keys()):
            await self._write(tenant, confirmed[tenant])

    async def _write(self, tenant: str, age_s: float) -> None:
        self._due.discard(tenant)
        self._written_at[tenant] = self._confirmed_at[tenant] = self._now()
        data = msgspec.json.encode(self._snapshot(tenant))
        if len(data) > MAX_FILE_BYTES:
            if tenant not in self._too_large:
                self._too_large.add(tenant)
                _log.warning("tenant is too large, its state is not saved", tenant=tenant, bytes=len(data))
            return
        self._too_large.discard(tenant)
        if not await self._files.write(_name(tenant), data, self._wall() - age_s):
            self._due.add(tenant)

    async def _confirm(self, tenant: str, age_s: float) -> None:
        self._confirmed_at[tenant] = self._now()
        if not await self._files.confirm(_name(tenant), self._wall() - age_s):
            self._due.add(tenant)


def _decode(data: bytes) -> SavedTenant:
    state = msgspec.json.decode(data, type=SavedTenant)
    state.slices = [pack(each) for each in state.slices]
    for each in state.slices:
        endpoints_of(each)  # raises for a damaged slice
    return state


def _name(tenant: str) -> str:
    if not is_dns_label(tenant):
        raise ValueError(f"not a cluster key: {tenant[:80]!r}")
    return f"{tenant}.json"
