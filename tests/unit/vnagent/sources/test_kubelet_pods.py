# SPDX-License-Identifier: Apache-2.0
"""The kubelet as the source of pods: a failed read is logged once and ends no later one."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from daemonkit.tasks import Tasks
from tenancy.ownership import ContainerPolicy, Owned
from vnagent.sources.kubelet_pods import KubeletPods
from vnagent.upstream.kubelet import KubeletPool

pytestmark = pytest.mark.asyncio


class BrokenPool:
    """Fails as only a programming error could. Counts its requests."""

    class Address:
        authority = "127.0.0.1:10250"

    def __init__(self) -> None:
        self.poller = SimpleNamespace(loop=asyncio.get_running_loop())
        self.address = self.Address()
        self.request_count = 0

    def acquire(self, *_: object, **__: object) -> None:
        self.request_count += 1
        raise ZeroDivisionError


async def test_a_bug_ends_neither_reads_nor_waiting_requests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool, tasks = BrokenPool(), Tasks("test")
    published: list[tuple[Owned, ...]] = []
    feed = KubeletPods(
        cast(KubeletPool, pool), ContainerPolicy(), 5.0, tasks, lambda pods, _: published.append(pods)
    )
    run = tasks.spawn(feed.run(), "run")
    await asyncio.sleep(10.0)
    await feed.refresh()
    assert not run.done()
    assert pool.request_count > 5
    assert (published, feed.age_s()) == ([], None)
    assert capsys.readouterr().err.count("ERROR") == 1
    await tasks.close(1.0)
