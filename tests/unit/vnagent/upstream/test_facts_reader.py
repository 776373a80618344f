# SPDX-License-Identifier: Apache-2.0
"""When the kubelet's own facts are read: at start, after a new handshake, and again after a failure."""

import asyncio

import pytest

from daemonkit.tasks import Tasks
from tests.unit.vnagent.fake_kubelet_pool import FakeKubeletPool
from vnagent.core.kubelet_facts import KubeletFacts
from vnagent.core.requests import Endpoint, Protocol, Stream, Upgrade
from vnagent.upstream.facts_reader import PERIOD_S, RETRY_S, FactsReader

pytestmark = pytest.mark.asyncio

BOTH = ["/metrics", "/configz"]


async def test_facts_are_read_once_for_each_handshake() -> None:
    pool, tasks = FakeKubeletPool(), Tasks("test")
    reader = FactsReader(pool.as_pool)
    tasks.spawn(reader.run(), "facts")
    await asyncio.sleep(10 * PERIOD_S)
    assert pool.paths == BOTH
    assert (reader.facts.version, reader.facts.has_debugging_handlers) == ("v1.34.4", True)
    pool.full_count += 1
    await asyncio.sleep(10 * PERIOD_S)
    assert pool.paths == BOTH * 2
    await tasks.close(1.0)


@pytest.mark.parametrize(
    ("status", "failure", "again_s"), [(500, "failed", RETRY_S), (403, "refused", PERIOD_S)]
)
async def test_a_page_that_cannot_be_read_is_unknown(status: int, failure: str, again_s: float) -> None:
    pool, tasks = FakeKubeletPool(), Tasks("test")
    pool.status = status
    reader = FactsReader(pool.as_pool)
    tasks.spawn(reader.run(), "facts")
    await asyncio.sleep(RETRY_S / 2)
    assert reader.facts.version is None
    assert reader.facts.problems == (f"/metrics: kubelet-{failure}", f"/configz: kubelet-{failure}")
    pool.status = 200
    await asyncio.sleep(again_s - RETRY_S / 2 - 1.0)
    assert pool.paths == BOTH
    await asyncio.sleep(RETRY_S / 2)
    assert reader.facts.document()["version"] == "v1.34.4"
    assert reader.facts.document()["problems"] == []
    await tasks.close(1.0)


async def test_another_version_has_other_stream_protocols() -> None:
    pool = FakeKubeletPool()
    reader = FactsReader(pool.as_pool)
    await reader.read()
    offered = Upgrade(Protocol.SPDY, ("v4.channel.k8s.io",), None)
    pool.stream_protocols.refused(Stream(Endpoint.EXEC, "web", "shop", None, "app", (), offered))
    await reader.read()
    assert len(pool.stream_protocols.document()) == 1
    reader.facts = KubeletFacts("v1.33.0")
    await reader.read()
    assert pool.stream_protocols.document() == []
