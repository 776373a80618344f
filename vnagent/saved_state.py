# SPDX-License-Identifier: Apache-2.0
"""The last good state on disk: the tenants, their certificates in rotation, the tenants' pods, and the
processor time that these pods have used.

It is served after a restart until the sources have synced, so that logs work while the control plane is
away. Nothing else depends on it: a full disk is reported, and a damaged file is reported and ignored.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from daemonkit import logs
from daemonkit.files.saved_state import Loaded, SavedFiles
from daemonkit.metrics import Counter
from tenancy import registry as registries
from tenancy.document import TenantError
from tenancy.ownership import Owned, OwnerIndex
from tenancy.registry import Problem, Registry, SpiffeTrust
from tenancy.removals import Distrust
from tenancy.tenant import Role
from vnagent.pages import node_cpu
from vnagent.pages.node_cpu import NodeCpu
from vnagent.tenants.client_lists import ClientLists

TENANTS_FILE = "tenants.json"
PODS_FILE = "pods.json"
ROTATIONS_FILE = "rotations.json"
NODE_CPU_FILE = "node-cpu.json"
# 10 000 tenants of 20 KB.
MAX_FILE_BYTES = 256 << 20
# How often what did not change is confirmed on disk: so much older than true a saved age may be.
CONFIRM_S = 60.0
# As the interval of metrics-server. What a pod has used since the last write is lost if the daemon is killed
# and the pod ends before the next start: a vNode's total then falls by it.
NODE_CPU_S = 15.0
# Changes come in bursts.
SETTLE_S = 0.5

_VERSION = 1
_NO_LISTS = ClientLists()
_log = logs.get(__name__)


class _Saved(msgspec.Struct, rename="camel", omit_defaults=True):
    version: int
    confirmed_at: float
    content: msgspec.Raw
    # With tenants, while readings of their source are distrusted.
    distrust: Distrust | None = None
    # With tenants: the clients that a list beside each source adds, and the same for these lists.
    client_lists: Mapping[str, Mapping[str, Role]] = {}
    lists_distrust: Distrust | None = None


class _Due(NamedTuple):
    content: Callable[[], bytes]
    confirmed_at: float
    distrust: Distrust | None
    lists: ClientLists


class SavedTenants(NamedTuple):
    """The served tenants with their client lists, and the distrust of each at that time."""

    registry: Registry
    problems: tuple[Problem, ...]
    distrust: Distrust | None
    lists: ClientLists


class SavedState:
    """Reads its files once, and writes changes in a thread."""

    def __init__(self, directory: Path, errors: Counter, clock: Callable[[], float] = time.time) -> None:
        self._files = SavedFiles(directory, errors, max_file_bytes=MAX_FILE_BYTES, wall=clock)
        self._clock = clock
        self._due: dict[str, _Due] = {}
        self._written_at: dict[str, float] = {}
        self._is_closed = False

    def prepare(self) -> None:
        """Make the directory and clear what a killed writer left. Raises OSError."""
        self._files.prepare()

    # ---- reading

    def load_tenants(self, spiffe: SpiffeTrust | None) -> Loaded[SavedTenants] | None:
        saved = self._load(TENANTS_FILE)
        if saved is None:
            return None
        try:
            registry, problems = registries.load(bytes(saved.value.content), spiffe)
        except TenantError as error:
            _log.error("saved tenants are invalid and not served", reason=error)
            return None
        lists = ClientLists(saved.value.client_lists, distrust=saved.value.lists_distrust)
        return Loaded(SavedTenants(registry, problems, saved.value.distrust, lists), saved.age_s)

    def load_rotations(self) -> bytes | None:
        """What was given to `rotations_confirmed`."""
        saved = self._load(ROTATIONS_FILE)
        return None if saved is None else bytes(saved.value.content)

    def load_pods(self) -> Loaded[OwnerIndex] | None:
        saved = self._load(PODS_FILE)
        if saved is None:
            return None
        try:
            pods = msgspec.json.decode(saved.value.content, type=tuple[Owned, ...])
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            _log.error("saved pods are invalid and not served", reason=error)
            return None
        return Loaded(OwnerIndex(pods), saved.age_s)

    def load_node_cpu(self) -> dict[str, NodeCpu]:
        """The processor times of vNodes, by page; empty if none can be used."""
        saved = self._load(NODE_CPU_FILE)
        try:
            return {} if saved is None else node_cpu.load(saved.value.content)
        except (ValueError, RecursionError) as error:
            _log.error("saved processor times are invalid: vNodes' totals start again", reason=error)
            return {}

    def _load(self, name: str) -> Loaded[_Saved] | None:
        return self._files.load(
            name,
            lambda data: msgspec.json.decode(data, type=_Saved),
            lambda saved: saved.version == _VERSION,
            lambda saved: saved.confirmed_at,
        )

    # ---- writing

    def tenants_confirmed(
        self,
        registry: Registry,
        distrust: Distrust | None = None,
        lists: ClientLists = _NO_LISTS,
        *,
        is_new: bool,
    ) -> None:
        self._confirm(
            TENANTS_FILE, lambda: registries.dump(registry), is_new=is_new, distrust=distrust, lists=lists
        )

    def rotations_confirmed(self, content: Callable[[], bytes], *, is_new: bool) -> None:
        """`content` makes JSON of the certificates in rotation, when it is written."""
        self._confirm(ROTATIONS_FILE, content, is_new=is_new)

    def pods_confirmed(self, index: OwnerIndex, *, is_new: bool) -> None:
        self._confirm(PODS_FILE, lambda: msgspec.json.encode(tuple(index)), is_new=is_new)

    def node_cpu_confirmed(self, totals: Mapping[str, NodeCpu], *, is_new: bool) -> None:
        """`is_new`: a pod has begun or ended. `totals` is read when it is written."""
        self._confirm(NODE_CPU_FILE, lambda: node_cpu.dump(totals), is_new=is_new, confirm_s=NODE_CPU_S)

    def _confirm(
        self,
        name: str,
        content: Callable[[], bytes],
        *,
        is_new: bool,
        confirm_s: float = CONFIRM_S,
        distrust: Distrust | None = None,
        lists: ClientLists = _NO_LISTS,
    ) -> None:
        now = self._clock()
        if self._is_closed:
            return
        # Also where the clock was set back.
        if is_new or abs(now - self._written_at.get(name, float("-inf"))) >= confirm_s:
            self._due[name] = _Due(content, now, distrust, lists)

    async def run(self) -> None:
        """Write what is due, until cancelled; a failure is tried again in the next round."""
        while True:
            await asyncio.sleep(SETTLE_S)
            await self.write_due()

    async def close(self) -> None:
        """Write what is due, and nothing after it: the files are the next process'."""
        if not self._is_closed:
            self._is_closed = True
            await self.write_due()

    async def write_due(self) -> None:
        for name, due in list(self._due.items()):
            # The age counts from the source's confirmation: the disk may have been full since.
            content, lists = msgspec.Raw(due.content()), due.lists
            saved = _Saved(_VERSION, due.confirmed_at, content, due.distrust, lists.served, lists.distrust)
            if not await self._files.write(name, msgspec.json.encode(saved)):
                await asyncio.sleep(SETTLE_S)
                continue
            self._written_at[name] = self._clock()
            if self._due.get(name) is due:
                del self._due[name]
