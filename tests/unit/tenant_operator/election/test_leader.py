# SPDX-License-Identifier: Apache-2.0
"""Operators over one API server, in virtual time."""

import asyncio
from collections.abc import Callable

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.lease_times import Instant
from daemonkit.tasks import Tasks
from devkit.syncer.fake_control_plane import FakeControlPlane
from tenant_operator.election.leader import Leader
from tenant_operator.election.lease import LEASES

pytestmark = pytest.mark.asyncio


def clocks() -> Instant:
    now = asyncio.get_running_loop().time()
    return Instant(now, now)


class Operators:
    """Several leaders. `events` has what was called, `name:started` and `name:lost`."""

    def __init__(self) -> None:
        self.plane = FakeControlPlane()
        self.events: list[str] = []
        self.leaders: dict[str, Leader] = {}
        self._tasks: dict[str, Tasks] = {}

    def add(self, name: str) -> Leader:
        leader = Leader(self.plane, "vcnode-system", "vc-operator", name, clocks=clocks)
        self.leaders[name] = leader
        self._tasks[name] = Tasks("test")
        self._tasks[name].spawn(leader.run(self._note(name, "started"), self._note(name, "lost")), "leader")
        return leader

    def _note(self, name: str, what: str) -> Callable[[], "asyncio.Future[None]"]:
        async def note() -> None:
            self.events.append(f"{name}:{what}")

        return note  # type: ignore[return-value]

    async def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds * 10)):
            await asyncio.sleep(0.1)
            assert sum(each.may_write() for each in self.leaders.values()) <= 1

    async def stop(self, name: str) -> None:
        """As SIGTERM: the Lease is released."""
        await self._tasks.pop(name).close(5.0)

    async def close(self) -> None:
        for name in list(self._tasks):
            await self.stop(name)

    @property
    def spec(self) -> dict[str, object]:
        found: dict[str, object] = self.plane.storage.get(LEASES, "vcnode-system", "vc-operator")["spec"]
        return found


async def test_one_leads_at_once_and_renews_without_reading() -> None:
    operators = Operators()
    one = operators.add("a")
    await operators.pass_time(10.0)
    assert (one.may_write(), one.leader, operators.events) == (True, "a", ["a:started"])
    path = "/apis/coordination.k8s.io/v1/namespaces/vcnode-system/leases"
    assert operators.plane.requests == [f"GET {path}/vc-operator", f"POST {path}"] + 5 * [
        f"PATCH {path}/vc-operator"
    ]
    await operators.close()


async def test_a_clean_stop_hands_over_within_a_retry() -> None:
    operators = Operators()
    operators.add("a")
    await operators.pass_time(1.0)
    two = operators.add("b")
    await operators.pass_time(3.0)
    assert two.leader == "a"
    await operators.stop("a")
    assert operators.events == ["a:started", "a:lost"]
    assert (operators.spec["holderIdentity"], operators.spec["leaseDurationSeconds"]) == ("", 1)
    await operators.pass_time(2.5)
    assert (two.may_write(), operators.spec["leaseTransitions"]) == (True, 1)
    await operators.close()


async def test_a_leader_without_an_api_server_stops_in_time() -> None:
    operators = Operators()
    one = operators.add("a")
    await operators.pass_time(1.0)
    operators.plane.failures = [UnreachableError("connection refused")] * 1000
    await operators.pass_time(9.0)
    assert operators.events == ["a:started"]
    await operators.pass_time(2.1)
    assert (one.may_write(), operators.events) == (False, ["a:started", "a:lost"])
    assert one.last_error == "connection refused"
    operators.plane.failures.clear()
    await operators.pass_time(2.5)
    assert (one.may_write(), one.last_error) == (True, "")
    assert operators.events == ["a:started", "a:lost", "a:started"]
    await operators.close()


async def test_a_silent_api_server_does_not_outlast_the_deadline() -> None:
    operators = Operators()
    one = operators.add("a")
    await operators.pass_time(1.0)
    operators.plane.delay_s = 3600.0
    await operators.pass_time(11.0)
    assert (one.may_write(), operators.events) == (False, ["a:started", "a:lost"])
    operators.plane.delay_s = 0.0
    await operators.close()


async def test_another_takes_over_from_one_that_is_cut_off() -> None:
    operators = Operators()
    operators.add("a")
    await operators.pass_time(1.0)
    two = operators.add("b")
    await operators.pass_time(1.0)
    operators.plane.delay_s = 6.0  # no request is answered within its 5 s
    await operators.pass_time(30.0)
    operators.plane.delay_s = 0.0
    await operators.pass_time(20.0)
    assert sum(each.may_write() for each in (operators.leaders["a"], two)) == 1
    await operators.close()


async def test_an_answer_that_is_no_lease_is_an_error() -> None:
    class Broken(FakeControlPlane):
        async def request(self, *_arguments: object, **_options: object) -> bytes:
            return b"<html>"

    leader = Leader(Broken(), "vcnode-system", "vc-operator", "a", clocks=clocks)
    tasks = Tasks("test")

    async def nothing() -> None:
        raise AssertionError

    tasks.spawn(leader.run(nothing, nothing), "leader")
    await asyncio.sleep(1.0)
    assert (leader.may_write(), leader.last_error) == (False, "the answer is no Lease")
    await tasks.close(5.0)
