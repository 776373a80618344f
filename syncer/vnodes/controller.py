# SPDX-License-Identifier: Apache-2.0
"""All tenants' vNodes, with one timer."""

import datetime as dt
import zlib
from collections.abc import Callable, Generator

from daemonkit.fairness.emptying import emptied
from daemonkit.fairness.scheduler import AccountRun, without_account
from daemonkit.kube.client import Requester
from daemonkit.tasks import Tasks
from daemonkit.ticks import next_tick
from syncer.core.objects import Object
from syncer.vnodes.desired import VNodePolicy
from syncer.vnodes.lease import RENEW_S, RenewTimes
from syncer.vnodes.super_nodes import AgentProbe, SuperNodes
from syncer.vnodes.tenant_vnodes import TenantVNodes, VNodeCounts

_SLOTS = int(RENEW_S)


class VNodes:
    """The vNodes of all tenants.

    `agent_addresses` finds where the vn-agent of a super node is, in the engine's caches; `wall` is the time
    of day in seconds, `jitter` draws from 0 to 1. `run` is the timer: each second a tenth of the tenants, and
    of the vn-agents, is due.
    """

    def __init__(
        self,
        agent_addresses: Callable[[Object], tuple[str, ...]],
        agent_port: int,
        probe: AgentProbe,
        tasks: Tasks,
        wall: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._wall = wall
        self._jitter = jitter
        self._tasks = tasks
        self._renew_times = RenewTimes()
        self._slots: list[dict[str, TenantVNodes]] = [{} for _ in range(_SLOTS)]
        self.counts = VNodeCounts()
        self.super_nodes = SuperNodes(agent_addresses, agent_port, probe, tasks, self._timestamp)

    def add_tenant(
        self, key: str, client: Requester, policy: VNodePolicy | None, run: AccountRun = without_account
    ) -> TenantVNodes:
        """Start a tenant's vNodes, for which it pays by `run`. A `key` that is there is started anew."""
        for _ in self.remove_tenant(key):
            pass
        added = TenantVNodes(
            client, policy, self.super_nodes, self._tasks, self.counts, self._renew_time, self._jitter, run
        )
        self._slots[_slot(key)][key] = added
        return added

    def remove_tenant(self, key: str) -> Generator[None, None, None]:
        """End a tenant's vNodes at once, and forget them in steps; its Nodes stay as they are."""
        removed = self._slots[_slot(key)].pop(key, None)
        if removed is not None:
            removed.close()
        return emptied() if removed is None else removed.forget()

    def node_changed(self, super_node: Object) -> None:
        """A node of the super cluster appeared or changed."""
        self.super_nodes.put(super_node)

    def node_gone(self, name: str) -> None:
        """A node of the super cluster was deleted: so are its vNodes."""
        self.super_nodes.remove(name)

    def node_unreadable(self, name: str) -> None:
        """A node of the super cluster is there and cannot be read: its vNodes stay."""
        self.super_nodes.note_unreadable(name)

    def mark_nodes_synced(self) -> None:
        """All nodes of the super cluster have been reported: one that is missing does not exist."""
        self.super_nodes.has_synced = True

    async def run(self) -> None:
        """Renew, probe, retry and remove; runs until cancelled."""
        while True:
            for slot in self._slots:
                for tenant in list(slot.values()):
                    tenant.tick()
                self.super_nodes.probe_due()
                # After a pause of the process nothing is made up for.
                await next_tick(RENEW_S / _SLOTS)

    def _renew_time(self) -> float:
        return self._renew_times.next(self._wall())

    def _timestamp(self) -> str:
        return dt.datetime.fromtimestamp(self._wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _slot(key: str) -> int:
    return zlib.crc32(key.encode()) % _SLOTS
