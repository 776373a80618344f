# SPDX-License-Identifier: Apache-2.0
"""Replicas as processes that are stopped, go on, and are killed."""

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, Resource
from daemonkit.lease_times import LEASE_DURATION_S
from devkit.kube.apiserver import FakeApiserver
from devkit.kube.storage import Object, Selection
from syncer.core.sharding import parse_claims, shard_of, shards_of
from syncer.sharding.lease_objects import LEASES
from tests import waiting
from tests.packages import ROOT

pytestmark = [pytest.mark.functional, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("writing_replica.py")
REPLICAS = frozenset({"a", "b"})
TENANTS = [f"tenant-{number}" for number in range(6)]


class ReplicaProcesses:
    """Processes on one API server, which checks each write: its replica's Lease claims the tenant's shard.

    `wrong` has the writes that no Lease allowed, `counts` how many each replica made of late.
    """

    def __init__(self, directory: Path) -> None:
        self.apiserver = FakeApiserver()
        self.wrong: list[Object] = []
        self.counts: Counter[str] = Counter()
        self._directory = directory
        self._revision = 1
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.apiserver.storage.on_write.append(self._check)

    async def start(self, name: str) -> None:
        path = self._directory / "kubeconfig"
        path.write_text(self.apiserver.kubeconfig(), encoding="utf-8")
        with (self._directory / f"{name}.log").open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                str(PROGRAM),
                str(path),
                name,
                *TENANTS,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={"PYTHONPATH": str(ROOT)},
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    async def until_written_by(self, *names: str) -> None:
        self.counts.clear()
        await waiting.until(
            lambda: all(self.counts[name] > 10 for name in names), within_s=3 * LEASE_DURATION_S
        )

    def _check(self, changed: Resource | None) -> None:
        storage = self.apiserver.storage
        events = storage.events(Selection(CONFIG_MAPS), self._revision)
        self._revision = storage.revision
        for _, value in events:
            data = value["data"]
            self.counts[data["replica"]] += 1
            lease = storage.get(LEASES, "vc-manager", f"vc-syncer-{data['replica']}")
            claims = parse_claims(lease["metadata"]["annotations"]["vcnode.io/shards"])
            if shard_of(data["tenant"]) not in claims:
                self.wrong.append(value)


@contextlib.asynccontextmanager
async def replicas(directory: Path) -> AsyncIterator[ReplicaProcesses]:
    found = ReplicaProcesses(directory)
    async with found.apiserver:
        try:
            yield found
        finally:
            for process in found.processes.values():
                if process.returncode is None:
                    process.kill()
                await process.wait()


def test_both_replicas_have_tenants() -> None:
    """Or else the tests below would prove nothing."""
    found = {
        replica
        for replica in REPLICAS
        for tenant in TENANTS
        if shard_of(tenant) in shards_of(replica, REPLICAS)
    }
    assert found == REPLICAS


@pytest.mark.asyncio
async def test_a_stopped_process_writes_nothing_when_it_goes_on(tmp_path: Path) -> None:
    async with replicas(tmp_path) as running:
        await running.start("a")
        await running.start("b")
        await running.until_written_by("a", "b")
        running.signal("a", signal.SIGSTOP)
        # Another one has all tenants once the stopped one's Lease is fenced.
        path = "vc-syncer-a"
        await waiting.until(
            lambda: running.apiserver.storage.get(LEASES, "vc-manager", path)["spec"]["holderIdentity"] == "",
            within_s=3 * LEASE_DURATION_S,
        )
        await running.until_written_by("b")
        running.signal("a", signal.SIGCONT)
        await running.until_written_by("a", "b")
        assert running.wrong == []
        assert running.apiserver.storage.get(LEASES, "vc-manager", path)["spec"]["leaseTransitions"] == 2


@pytest.mark.asyncio
async def test_a_killed_process_is_followed_by_one_of_its_name(tmp_path: Path) -> None:
    async with replicas(tmp_path) as running:
        await running.start("a")
        await running.until_written_by("a")
        running.signal("a", signal.SIGKILL)
        await running.processes["a"].wait()
        await running.start("a")
        await running.until_written_by("a")
        assert running.wrong == []
        lease = running.apiserver.storage.get(LEASES, "vc-manager", "vc-syncer-a")
        assert lease["spec"]["leaseTransitions"] == 1
