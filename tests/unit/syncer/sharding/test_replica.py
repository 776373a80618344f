# SPDX-License-Identifier: Apache-2.0
"""Replicas over one API server, in virtual time."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from daemonkit.kube.byte_budget import OverBudgetError
from daemonkit.kube.client import UnreachableError
from daemonkit.lease_times import Instant
from daemonkit.tasks import Tasks
from devkit.kube.storage import Selection
from devkit.syncer.fake_control_plane import FakeControlPlane
from syncer.core.sharding import SHARDS, shard_of, shards_of
from syncer.sharding.fenced_client import FREE_BODY_BYTES, FencedClient, NotHeldError
from syncer.sharding.lease_objects import LEASES, LeaseNames
from syncer.sharding.port import SoleOwner, TenantOwnership
from syncer.sharding.replica import Replica

NAMES = LeaseNames("vc-manager", "vc-syncer")
TENANTS = [f"vcs-7aad2b-tenant-{number:02}" for number in range(40)]


class ReplicaEnvironment:
    def __init__(self) -> None:
        self.plane = FakeControlPlane()
        self.changes: list[str] = []
        self.replicas: list[Replica] = []
        self._running: dict[Replica, Tasks] = {}

    def add(self, name: str, identity: str) -> Replica:
        replica = Replica(
            self.plane, NAMES, name, identity, lambda: self.changes.append(name), clocks=self.clocks
        )
        self.replicas.append(replica)
        self.resume(replica)
        return replica

    def clocks(self) -> Instant:
        now = asyncio.get_running_loop().time()
        return Instant(now, now)

    def resume(self, replica: Replica) -> None:
        self._running[replica] = Tasks("test")
        self._running[replica].spawn(replica.run(), "replica")

    async def stop(self, replica: Replica) -> None:
        """As SIGSTOP: nothing more happens, and nothing is released."""
        await self._running.pop(replica).close(1.0)

    async def pass_time(self, seconds: float) -> None:
        """Time passes; at no time two replicas may write for one tenant."""
        for _ in range(int(seconds * 10)):
            await asyncio.sleep(0.1)
            for tenant in TENANTS:
                assert sum(each.may_write(tenant) for each in self.replicas) <= 1

    async def close(self) -> None:
        for replica in list(self._running):
            await self.stop(replica)

    def writer(self, tenant: str) -> Replica | None:
        return next((each for each in self.replicas if each.may_write(tenant)), None)

    def lease(self, name: str) -> dict[str, object]:
        found: dict[str, object] = self.plane.storage.get(LEASES, "vc-manager", name)["spec"]
        return found


@pytest.mark.asyncio
async def test_one_replica_takes_all_at_once() -> None:
    environment = ReplicaEnvironment()
    one = environment.add("a", "a_1")
    await environment.pass_time(0.2)
    assert (one.held_shards, one.live_replicas, environment.changes) == (SHARDS, 1, ["a", "a"])
    assert environment.lease("vc-syncer-a")["holderIdentity"] == "a_1"
    await environment.close()


@pytest.mark.asyncio
async def test_a_replica_that_joins_gets_its_share() -> None:
    environment = ReplicaEnvironment()
    one = environment.add("a", "a_1")
    await environment.pass_time(1.0)
    two = environment.add("b", "b_1")
    await environment.pass_time(6.0)
    for tenant in TENANTS:
        is_of_two = shard_of(tenant) in shards_of("b", frozenset("ab"))
        assert environment.writer(tenant) is (two if is_of_two else one)
    await environment.close()


@pytest.mark.asyncio
async def test_a_shard_moves_after_its_write_ended() -> None:
    environment = ReplicaEnvironment()
    one = environment.add("a", "a_1")
    await environment.pass_time(1.0)
    tenant = next(each for each in TENANTS if shard_of(each) in shards_of("b", frozenset("ab")))
    write = one.begin_write(tenant)
    assert write is not None
    two = environment.add("b", "b_1")
    await environment.pass_time(20.0)
    assert environment.writer(tenant) is None
    write.end()
    await environment.pass_time(6.0)
    assert environment.writer(tenant) is two
    await environment.close()


@pytest.mark.asyncio
async def test_a_stopped_replica_is_fenced_and_comes_back() -> None:
    environment = ReplicaEnvironment()
    one, two = environment.add("a", "a_1"), environment.add("b", "b_1")
    await environment.pass_time(6.0)
    await environment.stop(one)
    await environment.pass_time(20.0)
    assert all(environment.writer(tenant) is two for tenant in TENANTS)
    assert environment.lease("vc-syncer-a")["holderIdentity"] == ""
    assert environment.lease("vc-syncer-a")["leaseTransitions"] == 1
    environment.resume(one)
    await environment.pass_time(8.0)
    assert (one.held_shards + two.held_shards, one.held_shards > 0) == (SHARDS, True)
    assert environment.lease("vc-syncer-a")["leaseTransitions"] == 2
    await environment.close()


@pytest.mark.asyncio
async def test_a_replica_without_api_server_stops_writing() -> None:
    environment = ReplicaEnvironment()
    one = environment.add("a", "a_1")
    await environment.pass_time(1.0)
    environment.plane.failures = [UnreachableError("connect: refused")] * 12
    await environment.pass_time(12.0)
    assert (environment.writer(TENANTS[0]), one.last_error) == (None, "connect: refused")
    # Nobody has fenced it meanwhile: it goes on with what it had.
    await environment.pass_time(20.0)
    assert (environment.writer(TENANTS[0]), one.last_error) == (one, "")
    assert environment.lease("vc-syncer-a")["leaseTransitions"] == 0
    await environment.close()


@pytest.mark.asyncio
async def test_another_process_of_a_name_waits_for_its_lease() -> None:
    environment = ReplicaEnvironment()
    one = environment.add("a", "a_1")
    await environment.pass_time(1.0)
    again = environment.add("a", "a_2")
    await environment.pass_time(30.0)
    assert (environment.writer(TENANTS[0]), again.held_shards) == (one, 0)
    await environment.stop(one)
    await environment.pass_time(20.0)
    assert environment.writer(TENANTS[0]) is again
    assert environment.lease("vc-syncer-a")["leaseTransitions"] == 1
    await environment.close()


@pytest.mark.asyncio
async def test_a_replica_that_leaves_hands_over_at_once() -> None:
    environment = ReplicaEnvironment()
    one, two = environment.add("a", "a_1"), environment.add("b", "b_1")
    await environment.pass_time(6.0)
    await environment.stop(one)
    await one.leave(5.0)
    await environment.pass_time(5.0)
    assert all(environment.writer(tenant) is two for tenant in TENANTS)
    await environment.pass_time(700.0)
    assert [
        each["metadata"]["name"] for each in environment.plane.storage.select(Selection(LEASES, "vc-manager"))
    ] == ["vc-syncer-b"]
    await environment.close()


@pytest.mark.asyncio
async def test_a_write_under_way_is_cut_at_the_deadline() -> None:
    environment = ReplicaEnvironment()
    one = environment.add("a", "a_1")
    tasks = Tasks("test")
    tasks.spawn(one.cut_expired(), "cut")
    await environment.pass_time(1.0)
    client = HangingApiserver()
    fenced = FencedClient(client, one, TENANTS[0])
    asked = tasks.spawn(fails_as_not_held(fenced), "write")
    await environment.pass_time(0.5)
    environment.plane.failures = [UnreachableError("connect: refused")] * 12
    await environment.pass_time(8.0)
    assert (client.sent, asked.done()) == (1, False)
    await environment.pass_time(4.0)
    assert asked.done()
    assert await asked == "the tenant's Lease expired while the write was under way"
    await tasks.close(1.0)
    await environment.close()


@pytest.mark.asyncio
async def test_a_write_that_is_late_is_not_sent() -> None:
    environment = ReplicaEnvironment()
    one = environment.add("a", "a_1")
    await environment.pass_time(1.0)
    client = HangingApiserver(connect_s=60.0)
    asking = Tasks("test")
    asked = asking.spawn(fails_as_not_held(FencedClient(client, one, TENANTS[0])), "write")
    await environment.pass_time(0.5)
    await environment.stop(one)
    await environment.pass_time(60.0)
    assert await asked == "the tenant's Lease expired before the write was sent"
    assert client.sent == 0
    await asking.close(1.0)
    await environment.close()


@pytest.mark.asyncio
async def test_no_answer_about_one_object_is_read_without_end() -> None:
    """A tenant's API server may send what it likes, to each of the requests that are under way at once."""
    limits: list[int] = []

    class Answering:
        async def request(self, *_: object, limit_bytes: int = 0, **__: object) -> bytes:
            limits.append(limit_bytes)
            return b"{}"

    fenced = FencedClient(Answering(), SoleOwner(), TENANTS[0])
    await fenced.request("GET", "/api/v1/namespaces/a", {})
    await fenced.request("POST", "/api/v1/namespaces", {}, b"{}")
    assert limits == [10 << 20, 10 << 20]


class BudgetOfWrites:
    """Has room for so many bytes."""

    is_short = False

    def __init__(self, room_bytes: int) -> None:
        self.held_bytes = self.most_bytes = 0
        self._room_bytes = room_bytes

    def note_waiting(self, size_bytes: int) -> None:
        """Nothing of a connection is asked for here."""

    def note_received(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self.most_bytes = max(self.most_bytes, self.held_bytes)
        if self.held_bytes > self._room_bytes:
            raise OverBudgetError("no room")


@pytest.mark.asyncio
async def test_a_large_write_is_counted() -> None:
    sent: list[int] = []

    class Answering:
        async def request(self, *given: object, **_: object) -> bytes:
            sent.append(counted.held_bytes)
            return b"{}"

    counted = BudgetOfWrites(5 << 20)
    fenced = FencedClient(Answering(), SoleOwner(), TENANTS[0], held=counted)
    await fenced.request("POST", "/api/v1/namespaces", {}, b"x" * (1 << 20))
    with pytest.raises(UnreachableError, match="no room"):
        await fenced.request("POST", "/api/v1/namespaces", {}, b"x" * (1 << 20) + b"y")
    await fenced.request("POST", "/api/v1/namespaces", {}, b"x" * (FREE_BODY_BYTES - 1))
    assert (sent, counted.held_bytes) == ([5 << 20, 0], 0)


async def fails_as_not_held(client: FencedClient) -> str:
    """The message of a write's NotHeldError."""
    with pytest.raises(NotHeldError) as error:
        await client.request("POST", "/api/v1/namespaces", {}, b"{}")
    return str(error.value)


class HangingApiserver:
    """It never answers; a connection to it takes a while."""

    def __init__(self, connect_s: float = 0.0) -> None:
        self.sent = 0
        self._connect_s = connect_s

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = 0,
        before_send: Callable[[], None] | None = None,
    ) -> bytes:
        await asyncio.sleep(self._connect_s)
        if before_send is not None:
            before_send()
        self.sent += 1
        await asyncio.Event().wait()
        raise AssertionError("never reached")


@pytest.mark.asyncio
async def test_a_lone_process_owns_every_tenant() -> None:
    owner: TenantOwnership = SoleOwner()
    write = owner.begin_write("a")
    assert write is not None
    assert (owner.may_write("a"), owner.holds("a"), write.may_send()) == (True, True, True)
    write.end()
