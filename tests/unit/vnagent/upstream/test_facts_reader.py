# SPDX-License-Identifier: Apache-2.0
"""When the kubelet's own facts are read: at the start, and for a reader of /status who finds them old."""

import asyncio

import pytest

from daemonkit.tasks import Tasks
from tests.unit.vnagent.fake_upstream_pool import FakeUpstreamPool
from vnagent.core.kubelet_facts import KubeletFacts
from vnagent.core.requests import Endpoint, Protocol, Stream, Upgrade
from vnagent.upstream.facts_reader import FIRST_READ_S, MAX_AGE_S, RETRY_S, FactsReader

pytestmark = pytest.mark.asyncio

BOTH = ["/metrics", "/configz"]


async def test_old_facts_are_read_for_those_who_ask() -> None:
    pool = FakeUpstreamPool()
    reader = FactsReader(pool.as_pool, Tasks("test"))
    await reader.read_first()
    assert (reader.facts.version, reader.facts.has_debugging_handlers) == ("v1.34.4", True)
    await asyncio.sleep(10 * MAX_AGE_S)
    assert pool.paths == BOTH
    for _ in range(3):
        assert reader.current().version == "v1.34.4"
    await asyncio.sleep(MAX_AGE_S - 1.0)
    assert reader.current().version == "v1.34.4"
    assert pool.paths == BOTH * 2


@pytest.mark.parametrize(
    ("status", "failure", "again_s"),
    [(404, "failed", MAX_AGE_S), (403, "refused", MAX_AGE_S), (None, "unreachable", RETRY_S)],
)
async def test_a_page_that_cannot_be_read_is_unknown(
    status: int | None, failure: str, again_s: float
) -> None:
    pool = FakeUpstreamPool()
    pool.status, pool.failure = status or 200, None if status else f"kubelet-{failure}"
    reader = FactsReader(pool.as_pool, Tasks("test"))
    await reader.read_first()
    assert reader.facts.version is None
    assert reader.facts.problems == (f"/metrics: kubelet-{failure}", f"/configz: kubelet-{failure}")
    pool.status, pool.failure = 200, None
    await asyncio.sleep(again_s - 1.0)
    reader.current()
    await asyncio.sleep(0.5)
    assert pool.paths == BOTH
    await asyncio.sleep(1.0)
    reader.current()
    await asyncio.sleep(0.5)
    assert reader.current().document()["version"] == "v1.34.4"
    assert reader.current().document()["problems"] == []


async def test_a_hanging_kubelet_does_not_hold_up_the_start() -> None:
    pool, loop = FakeUpstreamPool(takes_s=3600.0), asyncio.get_running_loop()
    begun_s = loop.time()
    reader = FactsReader(pool.as_pool, Tasks("test"))
    assert not reader.is_first_read_done
    await reader.read_first()
    assert (loop.time() - begun_s, reader.facts) == (FIRST_READ_S, KubeletFacts())
    assert reader.is_first_read_done


async def test_another_version_has_other_stream_protocols() -> None:
    pool = FakeUpstreamPool()
    reader = FactsReader(pool.as_pool, Tasks("test"))
    await reader.read()
    offered = Upgrade(Protocol.SPDY, ("v4.channel.k8s.io",), None)
    pool.stream_protocols.refused(Stream(Endpoint.EXEC, "web", "shop", None, "app", (), offered))
    await reader.read()
    assert len(pool.stream_protocols.document()) == 1
    reader.facts = KubeletFacts("v1.33.0")
    await reader.read()
    assert pool.stream_protocols.document() == []
