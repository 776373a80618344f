# SPDX-License-Identifier: Apache-2.0
"""The kubelet as the source of pods: a failed read is logged once and ends no later one."""

import asyncio

import pytest

from daemonkit.tasks import Tasks
from tenancy.ownership import ContainerPolicy, Owned
from tests.unit.vnagent.fake_upstream_pool import FakeUpstreamPool
from vnagent.sources.kubelet_pods import KubeletPods

pytestmark = pytest.mark.asyncio


async def test_a_bug_ends_neither_reads_nor_waiting_requests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool, tasks = FakeUpstreamPool(), Tasks("test")
    pool.error = ZeroDivisionError()  # as only a programming error could
    published: list[tuple[Owned, ...]] = []
    feed = KubeletPods(pool.as_pool, ContainerPolicy(), 5.0, tasks, lambda pods, _: published.append(pods))
    run = tasks.spawn(feed.run(), "run")
    await asyncio.sleep(10.0)
    await feed.refresh()
    assert not run.done()
    assert len(pool.connections) > 5
    assert (published, feed.age_s()) == ([], None)
    assert capsys.readouterr().err.count("ERROR") == 1
    await tasks.close(1.0)
