# SPDX-License-Identifier: Apache-2.0
"""Two real processes divide the tenants; what they write is checked where it arrives, at the API servers."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from daemonkit.kube.resources import CONFIG_MAPS
from daemonkit.lease_times import LEASE_DURATION_S, RETRY_S
from daemonkit.tasks import Tasks
from devkit.kube.apiserver import Seen
from devkit.kube.storage import Selection
from syncer.core.sharding import parse_claims, shard_of
from syncer.sharding.lease_objects import LEASES
from tenancy import keys
from tests import waiting
from tests.functional.syncer.clusters import RecordingApiserver
from tests.functional.syncer.processes import SyncerProcess

pytestmark = pytest.mark.functional

TENANTS = tuple(f"tenant-{number}" for number in range(6))
READS = frozenset({"get", "list", "watch"})
# A machine that is busy with other tests.
SLACK_S = 40.0


class ReplicatedSyncer:
    """Six tenants, replicas `one` and `two`, and a check of each write as it arrives.

    A write for a tenant is allowed while its replica's Lease, as stored then, claims the tenant's shard.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.super = RecordingApiserver("super")
        self.super.server.authorize = lambda seen: self._note(seen, _tenant_of(seen.namespace))
        self.tenants = {key: RecordingApiserver(key) for key in TENANTS}
        for key, plane in self.tenants.items():
            plane.server.authorize = lambda seen, key=key: self._note(seen, key)
        self.writes: list[tuple[str, str]] = []
        self.not_covered: list[str] = []
        self._number = 0

    def _note(self, seen: Seen, key: str) -> bool:
        replica = seen.user_agent.partition("/")[2]
        if key and seen.verb not in READS:
            self.writes.append((replica, key))
            if shard_of(key) not in self.claims(replica):
                self.not_covered.append(f"{replica} for {key}: {seen.verb} {seen.resource} {seen.name}")
        return True

    def claims(self, replica: str) -> frozenset[int]:
        for lease in self.super.storage.select(Selection(LEASES, "vc-manager")):
            if lease["metadata"]["name"] == f"vc-syncer-{replica}" and lease["spec"]["holderIdentity"]:
                return parse_claims(lease["metadata"]["annotations"][keys.SHARDS])
        return frozenset()

    def replica(self, name: str) -> SyncerProcess:
        return SyncerProcess(
            self.directory,
            name,
            {
                "superCluster": {"kubeconfigFile": str(self.directory / "super.kubeconfig")},
                "tenants": {"directory": str(self.directory / "tenants")},
                "sharding": {"lease": {"namespace": "vc-manager", "name": "vc-syncer"}},
            },
        )

    async def start(self) -> None:
        for plane in (self.super, *self.tenants.values()):
            await plane.server.start()
        (self.directory / "super.kubeconfig").write_text(self.super.kubeconfig())
        (self.directory / "tenants").mkdir()
        for key, plane in self.tenants.items():
            (self.directory / "tenants" / f"{key}.kubeconfig").write_text(plane.kubeconfig())
            plane.create_namespace("web")

    async def stop(self) -> None:
        for plane in (self.super, *self.tenants.values()):
            await plane.server.stop()

    def write_in_each(self) -> str:
        """Create a ConfigMap in each tenant; returns its name."""
        self._number += 1
        name = f"change-{self._number}"
        for plane in self.tenants.values():
            plane.create_config_map("web", name, {"number": str(self._number)})
        return name

    def has_arrived(self, name: str) -> bool:
        return all(self.super.get(CONFIG_MAPS, f"{key}-web", name) for key in TENANTS)

    async def until_arrived(self, name: str, within_s: float = SLACK_S) -> None:
        await waiting.until(lambda: self.has_arrived(name), within_s=within_s)

    def writers(self, since: int = 0) -> dict[str, set[str]]:
        """The tenants for which each replica wrote, from the write of this number on."""
        found: dict[str, set[str]] = {}
        for replica, key in self.writes[since:]:
            found.setdefault(replica, set()).add(key)
        return found

    async def change_all_the_time(self) -> None:
        while True:
            self.write_in_each()
            await asyncio.sleep(0.1)  # pace: a steady load


def _tenant_of(super_namespace: str) -> str:
    return next((key for key in TENANTS if super_namespace.startswith(f"{key}-")), "")


@contextlib.asynccontextmanager
async def two_replicas(
    directory: Path,
) -> AsyncIterator[tuple[ReplicatedSyncer, SyncerProcess, SyncerProcess]]:
    """Both run, and have divided the tenants."""
    syncer = ReplicatedSyncer(directory)
    one, two = syncer.replica("one"), syncer.replica("two")
    await syncer.start()
    try:
        await asyncio.gather(one.start(), two.start())
        for each in (one, two):
            await each.until_status(lambda found: found["sharding"]["replicasAlive"] == 2)
        await waiting.until(lambda: len(syncer.claims("one") | syncer.claims("two")) == 256, within_s=SLACK_S)
        await waiting.until(lambda: not syncer.claims("one") & syncer.claims("two"), within_s=SLACK_S)
        await syncer.until_arrived(syncer.write_in_each())
        yield syncer, one, two
    finally:
        await asyncio.gather(one.stop(), two.stop())
        await syncer.stop()


@pytest.mark.asyncio
async def test_two_replicas_divide_the_tenants(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as (syncer, one, two):
        since = len(syncer.writes)
        await syncer.until_arrived(syncer.write_in_each())
        writers = syncer.writers(since)
        assert writers["one"] | writers["two"] == set(TENANTS)
        assert not writers["one"] & writers["two"]
        pages = [(await each.status())["sharding"] for each in (one, two)]
        assert sum(each["shardsHeld"] for each in pages) == 256
        assert all(each["isLeaseRenewed"] for each in pages)
        code, text = await one.ready_page()
        assert code == 200
        assert f"sharding: ok: {pages[0]['shardsHeld']} of 256 shards, 2 replicas alive" in text
        assert f"vcnode_syncer_held_shards {float(pages[0]['shardsHeld'])}" in await one.metrics()
        assert syncer.not_covered == []


@pytest.mark.asyncio
async def test_a_replica_that_stops_hands_over_at_once(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as (syncer, one, _):
        assert await one.stop() == 0
        assert syncer.claims("one") == frozenset()
        name = syncer.write_in_each()
        await syncer.until_arrived(name, within_s=LEASE_DURATION_S - RETRY_S)
        assert syncer.not_covered == []


@pytest.mark.asyncio
async def test_a_killed_replicas_tenants_move_in_time(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as (syncer, one, two):
        load = Tasks("load")
        load.spawn(syncer.change_all_the_time(), "changes")
        await asyncio.sleep(0.5)  # pace: some writes are under way
        await one.stop(signal.SIGKILL)
        await load.close(1.0)
        since = len(syncer.writes)
        name = syncer.write_in_each()
        await syncer.until_arrived(name, within_s=LEASE_DURATION_S + 3 * RETRY_S + SLACK_S)
        assert syncer.writers(since) == {"two": set(TENANTS)}
        page = await two.until_status(lambda found: found["sharding"]["replicasAlive"] == 1)
        assert page["sharding"]["shardsHeld"] == 256
        assert syncer.not_covered == []


@pytest.mark.asyncio
async def test_a_stopped_replica_writes_nothing_of_others(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as (syncer, one, _):
        load = Tasks("load")
        load.spawn(syncer.change_all_the_time(), "changes")
        await asyncio.sleep(0.5)  # pace: some writes are under way
        one.send(signal.SIGSTOP)
        moved = LEASE_DURATION_S + 3 * RETRY_S + SLACK_S
        await waiting.until(lambda: len(syncer.claims("two")) == 256, within_s=moved)
        name = syncer.write_in_each()
        await syncer.until_arrived(name)
        since = len(syncer.writes)
        one.send(signal.SIGCONT)
        # It comes back, and gets its tenants again in order: all the while each write is covered by a claim.
        await waiting.until(lambda: "one" in syncer.writers(since), within_s=SLACK_S)
        await load.close(1.0)
        await syncer.until_arrived(syncer.write_in_each())
        assert syncer.not_covered == []
