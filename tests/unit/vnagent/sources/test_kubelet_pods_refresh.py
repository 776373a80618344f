# SPDX-License-Identifier: Apache-2.0
"""A request for an unknown pod waits for a read that begins after it; waiting requests share it."""

import asyncio
import itertools

import pytest

from daemonkit.tasks import Tasks
from devkit.kubelet.pods import FakePod
from tenancy import keys
from tenancy.ownership import ContainerPolicy
from tests.unit.vnagent.fake_upstream_pool import FakeUpstreamPool
from vnagent.sources.kubelet_pods import MAX_REFRESH_S, MIN_REFRESH_S, REFRESH_S, KubeletPods

pytestmark = pytest.mark.asyncio

INTERVAL_S = 5.0
TAKES_S = 0.05


class ReadKubelet:
    """A kubelet to which the test adds pods, and a source that reads them."""

    def __init__(self, takes_s: float = TAKES_S) -> None:
        self.pool = FakeUpstreamPool(takes_s=takes_s)
        self.known: set[str] = set()
        self.feed = KubeletPods(
            self.pool.as_pool,
            ContainerPolicy(),
            INTERVAL_S,
            Tasks("test"),
            lambda pods, _: self.known.update(pod.name for pod in pods),
        )

    @property
    def reads(self) -> list[float]:
        """The times at which reads began."""
        return self.pool.begins_s

    def add_pod(self, name: str) -> None:
        annotations = {keys.CLUSTER: "ten-b", keys.NAMESPACE: "web", keys.UID: f"t-{name}"}
        self.pool.pods += (FakePod("ten-b-web", name, f"s-{name}", annotations=annotations),)


async def test_a_fresh_pod_is_found_despite_other_lookups() -> None:
    kubelet = ReadKubelet()
    loop, tasks = asyncio.get_running_loop(), Tasks("test")

    async def refresh_for_missing_pods() -> None:
        while True:
            assert await kubelet.feed.refresh()

    tasks.spawn(kubelet.feed.run(), "run")
    others = [tasks.spawn(refresh_for_missing_pods(), "other") for _ in range(20)]
    began_s = loop.time()
    for number in range(48):
        await asyncio.sleep(0.3 + number * 0.037)
        kubelet.add_pod(f"p{number}")
        begin_s = loop.time()
        assert await kubelet.feed.refresh()
        assert f"p{number}" in kubelet.known
        assert loop.time() - begin_s <= MAX_REFRESH_S + 2 * TAKES_S + 0.001
    assert not any(other.done() for other in others)
    seconds = loop.time() - began_s
    # 50 ms are a twentieth of a second: one requested read a second, and the regular ones.
    assert len(kubelet.reads) <= seconds / MAX_REFRESH_S + seconds / INTERVAL_S + 2
    await tasks.close(1.0)


async def test_a_read_in_progress_confirms_no_later_lookup() -> None:
    kubelet = ReadKubelet(takes_s=0.5)
    first = Tasks("test").spawn(kubelet.feed.refresh(), "first")
    await asyncio.sleep(0.2)
    kubelet.add_pod("late")
    assert await kubelet.feed.refresh()
    assert first.done()
    assert (kubelet.known, len(kubelet.reads)) == ({"late"}, 2)


async def test_waiting_lookups_share_one_read() -> None:
    kubelet = ReadKubelet()
    assert await kubelet.feed.refresh()
    assert await asyncio.gather(*(kubelet.feed.refresh() for _ in range(100))) == [True] * 100
    assert len(kubelet.reads) == 2


async def test_a_regular_read_serves_waiting_lookups() -> None:
    kubelet, tasks = ReadKubelet(takes_s=1.0), Tasks("test")
    assert await kubelet.feed.refresh()
    refreshing = tasks.spawn(kubelet.feed.refresh(), "request")
    await asyncio.sleep(0.5)
    tasks.spawn(kubelet.feed.run(), "run")
    assert await refreshing
    assert len(kubelet.reads) == 2
    await tasks.close(1.0)


async def test_a_failed_or_slow_read_confirms_nothing() -> None:
    kubelet, loop = ReadKubelet(), asyncio.get_running_loop()
    kubelet.pool.status = 500
    assert not await kubelet.feed.refresh()
    kubelet.pool.status, kubelet.pool.takes_s = 200, 3600.0
    began_s = loop.time()
    assert not await kubelet.feed.refresh()
    assert loop.time() - began_s <= REFRESH_S + 0.001


async def test_a_slow_list_is_read_half_of_the_time_at_most() -> None:
    kubelet = ReadKubelet(takes_s=3.0)
    for _ in range(4):
        assert await kubelet.feed.refresh()
    assert [later - earlier for earlier, later in itertools.pairwise(kubelet.reads)] == pytest.approx(
        [6.0] * 3
    )


@pytest.mark.parametrize(("takes_s", "pause_s"), [(0.0, MIN_REFRESH_S), (0.02, 0.4), (0.2, MAX_REFRESH_S)])
async def test_reads_on_demand_take_a_twentieth_of_the_time(takes_s: float, pause_s: float) -> None:
    kubelet = ReadKubelet(takes_s)
    for _ in range(4):
        assert await kubelet.feed.refresh()
    pauses = [later - earlier for earlier, later in itertools.pairwise(kubelet.reads)]
    assert pauses == pytest.approx([pause_s] * 3, abs=0.001)


async def test_a_cancelled_waiter_leaves_the_read_to_others() -> None:
    kubelet, tasks = ReadKubelet(), Tasks("test")
    assert await kubelet.feed.refresh()
    first, second = (tasks.spawn(kubelet.feed.refresh(), "request") for _ in range(2))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second
    assert len(kubelet.reads) == 2
