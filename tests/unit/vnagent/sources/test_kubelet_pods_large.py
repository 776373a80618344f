# SPDX-License-Identifier: Apache-2.0
"""The kubelet's list as large as tenants can make it: all pods are read, in the memory of one."""

import json
import tracemalloc
from collections.abc import Iterator

import pytest

from daemonkit.tasks import Tasks
from devkit.kubelet.pods import FakePod, pod_list
from tenancy import keys
from tenancy.ownership import ContainerPolicy, Owned, OwnerIndex
from tests.unit.vnagent.fake_upstream_pool import FakeUpstreamPool
from vnagent.core.list_splitter import MAX_ITEM_BYTES
from vnagent.core.requests import Endpoint, PageRequest
from vnagent.exchange.node_totals import NodeTotals
from vnagent.exchange.page_service import PageService
from vnagent.sources.kubelet_pods import KubeletPods
from vnagent.upstream import page_fetch as fetching
from vnagent.upstream.page_fetch import MAX_WHOLE_LIST_BYTES

pytestmark = pytest.mark.asyncio

PIECE_BYTES = 32 << 10
PODS_PAGE = PageRequest(Endpoint.PODS, is_head=False, only_cpu_and_memory=False)


def pod(tenant: str, name: str) -> FakePod:
    annotations = {keys.CLUSTER: tenant, keys.NAMESPACE: "web", keys.UID: f"t-{name}"}
    return FakePod(f"{tenant}-web", name, f"s-{name}", annotations=annotations)


def item(each: FakePod, more: bytes = b"") -> bytes:
    """A pod with `more` at the end of its spec."""
    document = pod_list([each])["items"][0]
    spec = json.dumps(document["spec"]).encode()
    rest = {key: value for key, value in document.items() if key not in ("metadata", "spec")}
    head = b'{"metadata":%s,"spec":%s' % (json.dumps(document["metadata"]).encode(), spec[:-1])
    return head + more + b"}," + json.dumps(rest).encode()[1:]


def owned(tenant: str, name: str, problem: str = "") -> Owned:
    containers = frozenset() if problem else frozenset({"app"})
    images = () if problem else (("app", f"registry.example/{name}:1"),)
    ids = (tenant, "web", name, f"t-{name}", f"{tenant}-web", name, f"s-{name}")
    return Owned(*ids, containers, problem, images)


class LargeList:
    """The list of `items` in the pieces in which Go sends it."""

    def __init__(self, *items: bytes) -> None:
        self.items = items
        self.is_cut = False
        self.pool = FakeUpstreamPool(pieces=self._pieces)

    def _pieces(self) -> Iterator[bytes]:
        yield b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":['
        for number, each in enumerate(self.items):
            whole = each if not number else b"," + each
            for at in range(0, len(whole), PIECE_BYTES):
                yield whole[at : at + PIECE_BYTES]
        if not self.is_cut:
            yield b"]}\n"


class Reader:
    """A source of a list, and its published pods."""

    def __init__(self, listed: LargeList) -> None:
        self.published: list[tuple[tuple[Owned, ...], tuple[str, ...]]] = []
        self.feed = KubeletPods(
            listed.pool.as_pool,
            ContainerPolicy(),
            5.0,
            Tasks("test"),
            lambda pods, problems: self.published.append((pods, problems)),
        )


def bulk(size: int) -> bytes:
    return b',"bulk":["%s"]' % (b"x" * size)


async def test_large_pods_of_one_tenant_hide_no_pod_of_another() -> None:
    large = item(pod("ten-a", "large"), bulk(1_400_000))
    listed = LargeList(*[large.replace(b"-large", b"-l%d" % n) for n in range(3)], item(pod("ten-b", "bank")))
    # The same bytes again and again: the list has 140 MB, the test's own memory does not.
    first, second, third, bank = listed.items
    listed.items = (*[first] * 33, *[second] * 33, *[third] * 34, bank)
    reader = Reader(listed)
    tracemalloc.start()
    try:
        assert await reader.feed.read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reader.published[-1][0][-1] == owned("ten-b", "bank")
    assert len(reader.published[-1][1]) == 100  # their names are there more than once
    assert peak < 24 << 20


async def test_whole_and_split_lists_give_the_same_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    containers = b",".join(b'{"name":"c%d"}' % n for n in range(1_001))
    items = (
        item(pod("ten-a", "shop")),
        item(pod("ten-a", "many"), b',"ephemeralContainers":[%s]' % containers),
        item(pod("ten-a", "huge"), bulk(5 << 20)),
        item(pod("ten-a", "vast"), bulk(MAX_ITEM_BYTES)),
        item(FakePod("kube-system", "etcd", "s-9"), bulk(5 << 20)),
        item(FakePod("kube-system", "dns", "s-8")),
        item(FakePod("x", "half", "s-7", annotations={keys.CLUSTER: "ten-a"}), bulk(MAX_ITEM_BYTES)),
        item(pod("ten-b", "bank")),
        item(pod("ten-c", "deep"), b',"x":%s%s' % (b"[" * 5_000, b"]" * 5_000)),
    )
    found = []
    for whole_bytes in (1 << 30, 0):
        monkeypatch.setattr(fetching, "MAX_WHOLE_LIST_BYTES", whole_bytes)
        reader = Reader(LargeList(*items))
        assert await reader.feed.read()
        found += reader.published
    assert found[0][0] == (
        owned("ten-a", "shop"),
        owned("ten-a", "many", "too large: spec.ephemeralContainers has more than 1000 entries"),
        owned("ten-a", "huge", "too large: it has more than 5242880 bytes"),
        owned("ten-a", "vast", "too large: it has more than 5242880 bytes"),
        owned("ten-b", "bank"),
        owned("ten-c", "deep"),
    )
    assert found[0] == found[1]


async def test_an_unchanged_long_list_is_published_once() -> None:
    reader = Reader(LargeList(item(pod("ten-a", "large"), bulk(MAX_WHOLE_LIST_BYTES))))
    assert await reader.feed.read()
    assert await reader.feed.read()
    assert [len(pods) for pods, _ in reader.published] == [1]


async def test_a_truncated_long_list_changes_nothing() -> None:
    listed = LargeList(item(pod("ten-a", "large"), bulk(MAX_WHOLE_LIST_BYTES)), item(pod("ten-b", "bank")))
    reader = Reader(listed)
    assert await reader.feed.read()
    listed.is_cut, listed.items = True, listed.items[:1]
    assert not await reader.feed.read()
    assert len(reader.published) == 1
    failure = reader.feed.failure()
    assert failure is not None
    assert failure.fault.error == "/pods: the list cannot be split: it is cut off"


async def test_an_endless_list_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = LargeList(item(pod("ten-a", "large"), bulk(MAX_WHOLE_LIST_BYTES)))
    reader = Reader(listed)
    assert await reader.feed.read()
    monkeypatch.setattr(fetching, "MAX_LIST_BYTES", MAX_WHOLE_LIST_BYTES + 1)
    assert not await reader.feed.read()
    assert (len(reader.published), listed.pool.abort_count) == (1, 1)
    failure = reader.feed.failure()
    assert failure is not None
    assert failure.fault.error.startswith("/pods: the kubelet of this node sent a page above")


@pytest.mark.parametrize("whole_bytes", [1 << 30, 0])
async def test_a_neighbours_page_is_served_meanwhile(
    monkeypatch: pytest.MonkeyPatch, whole_bytes: int
) -> None:
    """And of the tenant's pods those with few fields."""
    monkeypatch.setattr(fetching, "MAX_WHOLE_LIST_BYTES", whole_bytes)
    container = b',"ephemeralContainers":[{"name":"app","image":"%s"}]' % (b"x" * (128 << 10))
    listed = LargeList(
        item(pod("ten-a", "large"), bulk(1_400_000)),
        item(pod("ten-a", "much"), container),
        item(pod("ten-a", "vast"), bulk(MAX_ITEM_BYTES)),
        item(pod("ten-b", "bank")),
    )
    index = OwnerIndex(
        [owned("ten-a", name) for name in ("large", "much", "vast")] + [owned("ten-b", "bank")]
    )
    service = PageService(listed.pool.as_pool, 30.0, Tasks("test"), NodeTotals(tuple))
    found = {}
    for tenant in ("ten-a", "ten-b"):
        async with service.rendered(PODS_PAGE, lambda: index, tenant) as page:
            found[tenant] = [each["metadata"]["name"] for each in json.loads(page.body)["items"]]
    assert (found, len(listed.pool.connections)) == ({"ten-a": ["large"], "ten-b": ["bank"]}, 1)
    service.close()
