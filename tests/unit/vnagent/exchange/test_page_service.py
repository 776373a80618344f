# SPDX-License-Identifier: Apache-2.0
"""Pages: one read of the kubelet's page for all tenants, and a render for each."""

import asyncio
import gzip
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from daemonkit.fairness.scheduler import Account, TenantScheduler
from daemonkit.metrics import Registry
from daemonkit.tasks import Tasks
from devkit.kubelet.pods import FakePod, page_for
from tenancy import keys
from tenancy.ownership import Owned, OwnerIndex
from tenancy.tenant import Role
from tests.unit.vnagent.fake_upstream_pool import FakeUpstreamPool
from tests.waiting import last_seen, source
from vnagent.core.access import Caller
from vnagent.core.limits import TenantUsage
from vnagent.core.requests import Endpoint, PageRequest
from vnagent.downstream.client_connection import ClientConnection
from vnagent.exchange import page_service
from vnagent.exchange.node_totals import NodeTotals
from vnagent.exchange.page import PIECE_BYTES, PageExchange
from vnagent.exchange.page_service import (
    PAGE_BURST_BYTES,
    PAGE_BYTES_PER_S,
    PageQueueTimeoutError,
    PageService,
)
from vnagent.pages import page as pages
from vnagent.pages.kinds import PAGE_KINDS
from vnagent.pages.page import PageError
from vnagent.saved_state import SavedState
from vnagent.state import AgentState
from vnagent.upstream.page_fetch import INLINE_BYTES, FetchError

pytestmark = pytest.mark.asyncio

PODS = PageRequest(Endpoint.PODS, is_head=False, only_cpu_and_memory=False)
STATS = PageRequest(Endpoint.STATS_SUMMARY, is_head=False, only_cpu_and_memory=False)


def pod(tenant: str, name: str, number: int = 0) -> FakePod:
    annotations = {keys.CLUSTER: tenant, keys.NAMESPACE: "web", keys.UID: f"t-{tenant}-{name}"}
    return FakePod(f"{tenant}-web", name, f"s-{tenant}-{name}-{number}", annotations=annotations)


def owned(each: FakePod) -> Owned:
    uid, tenant = each.annotations[keys.UID], each.annotations[keys.CLUSTER]
    containers = frozenset(each.every_container)
    return Owned(tenant, "web", each.name, uid, each.namespace, each.name, each.uid, containers)


class ServedPages:
    """A service over a kubelet, and its tasks' failures."""

    def __init__(self, kubelet: FakeUpstreamPool, max_age_s: float, totals: NodeTotals | None = None) -> None:
        self.kubelet = kubelet
        self.failures: list[str] = []
        tasks = Tasks("test", on_failure=lambda name, _error: self.failures.append(name))
        self.totals = totals or NodeTotals(lambda: {"ten-a", "ten-b"})
        self.service = PageService(kubelet.as_pool, max_age_s, tasks, self.totals)
        self.index = OwnerIndex([owned(each) for each in kubelet.pods])

    async def uids(self, tenant: str, page: PageRequest = PODS) -> list[str]:
        async with self.service.rendered(page, lambda: self.index, tenant) as found:
            assert found.content_type == "application/json"
            document = json.loads(found.body)
        if page.endpoint is Endpoint.STATS_SUMMARY:
            return [each["podRef"]["uid"] for each in document["pods"]]
        return [each["metadata"]["uid"] for each in document["items"]]


A, B = pod("ten-a", "shop"), pod("ten-b", "bank")


async def test_tenants_share_a_read_and_never_a_render() -> None:
    served = ServedPages(FakeUpstreamPool(A, B, takes_s=0.5), 2.0)
    found = await asyncio.gather(*(served.uids(tenant) for tenant in ("ten-a", "ten-b", "ten-a", "none")))
    assert found == [["t-ten-a-shop"], ["t-ten-b-bank"], ["t-ten-a-shop"], []]
    assert served.kubelet.paths == ["/pods"]


async def test_a_read_is_shared_for_its_maximum_age() -> None:
    served = ServedPages(FakeUpstreamPool(A), 2.0)
    for _ in range(4):
        await served.uids("ten-a")
        await asyncio.sleep(0.9)
    assert len(served.kubelet.paths) == 2  # at 0 and, when it was 2.7 s old, anew


async def test_a_slow_kubelets_page_is_served() -> None:
    """12 s, as of a busy node with many pods: Prometheus may wait for a minute."""
    served = ServedPages(FakeUpstreamPool(A, takes_s=12.0), 2.0)
    assert await served.uids("ten-a", STATS) == ["t-ten-a-shop"]


async def test_reads_of_a_slow_kubelet_do_not_pile_up() -> None:
    """Each may be 64 MiB."""
    served = ServedPages(FakeUpstreamPool(A, takes_s=50.0), 2.0)
    tasks = Tasks("test")
    waiting = []
    for _ in range(40):
        waiting.append(tasks.spawn(served.uids("ten-a", STATS), "request"))
        await asyncio.sleep(1.0)
    assert await asyncio.gather(*waiting) == [["t-ten-a-shop"]] * 40
    assert len(served.kubelet.paths) == 4


async def test_with_age_zero_each_request_reads() -> None:
    served = ServedPages(FakeUpstreamPool(A, takes_s=0.5), 0.0)
    await asyncio.gather(*(served.uids("ten-a") for _ in range(3)))
    assert served.kubelet.paths == ["/pods"] * 3


async def test_different_pages_are_read_separately() -> None:
    served = ServedPages(FakeUpstreamPool(A), 2.0)
    assert await served.uids("ten-a") == await served.uids("ten-a", STATS)
    await served.uids("ten-a", STATS._replace(only_cpu_and_memory=True))
    assert served.kubelet.paths == [
        "/pods",
        "/stats/summary",
        "/stats/summary?only_cpu_and_memory=true",
    ]


async def test_ownership_is_decided_at_render_time() -> None:
    """A pod that changed its owner during the read of the page, or since: its uid differs."""
    served = ServedPages(FakeUpstreamPool(A, takes_s=1.0), 30.0)
    waiting = Tasks("test").spawn(served.uids("ten-a"), "request")
    await asyncio.sleep(0.5)
    taken_over = Owned("ten-b", "web", "shop", "t-new", A.namespace, A.name, "s-new", frozenset({"app"}))
    served.index = OwnerIndex([taken_over])
    assert await waiting == []
    assert await served.uids("ten-b") == []  # the shared read knows the old body only
    assert len(served.kubelet.paths) == 1


async def test_a_failed_read_reaches_all_waiters_and_is_not_kept() -> None:
    served = ServedPages(FakeUpstreamPool(A, takes_s=0.5), 30.0)
    served.kubelet.status = 500
    found = await asyncio.gather(*(served.uids("ten-a") for _ in range(3)), return_exceptions=True)
    assert [str(each) for each in found] == ["kubelet-failed"] * 3
    assert all(isinstance(each, FetchError) for each in found)
    served.kubelet.status = 200
    assert await served.uids("ten-a") == ["t-ten-a-shop"]
    assert len(served.kubelet.paths) == 2
    # The requester got it, so it is not a failure of the daemon.
    assert served.failures == []


async def test_a_truncated_page_is_an_error() -> None:
    served = ServedPages(FakeUpstreamPool(A), 30.0)
    served.kubelet.is_cut = True
    with pytest.raises(PageError):
        await served.uids("ten-a")
    served.kubelet.is_cut = False
    assert await served.uids("ten-a") == ["t-ten-a-shop"]
    assert served.failures == []


async def test_a_cancelled_waiter_leaves_the_read_to_others() -> None:
    served = ServedPages(FakeUpstreamPool(A, takes_s=1.0), 30.0)
    tasks = Tasks("test")
    first, second = tasks.spawn(served.uids("ten-a"), "first"), tasks.spawn(served.uids("ten-a"), "second")
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == ["t-ten-a-shop"]
    assert served.kubelet.paths == ["/pods"]


async def test_a_page_that_is_costly_to_parse_is_shared_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that parsing takes a twentieth of a core at most, whatever tenants ask."""
    cost_s = 0.3
    monkeypatch.setattr("time.thread_time", itertools.count(0.0, cost_s).__next__)
    served, loop = ServedPages(FakeUpstreamPool(A), 2.0), asyncio.get_running_loop()
    end_s = loop.time() + 60
    while loop.time() < end_s:
        await served.uids("ten-a")
        await asyncio.sleep(0.5)
    assert len(served.kubelet.paths) == 60 * page_service.READ_PART / cost_s


async def test_a_page_is_compressed_for_a_client_that_takes_it() -> None:
    served = ServedPages(FakeUpstreamPool(*(pod("ten-a", f"p{number}") for number in range(20))), 30.0)
    taken = []
    for page in (PODS, PODS._replace(accepts_gzip=True)):
        async with served.service.rendered(page, lambda: served.index, "ten-a") as found:
            taken.append(found)
    plain, packed = taken
    assert plain.compressed is None
    assert packed.compressed is not None
    assert gzip.decompress(packed.compressed) == packed.body == plain.body
    assert len(packed.compressed) < len(plain.body) / 4


async def test_a_small_page_is_not_compressed() -> None:
    served = ServedPages(FakeUpstreamPool(A), 30.0)
    page = PODS._replace(accepts_gzip=True)
    async with served.service.rendered(page, lambda: served.index, "none") as found:
        assert (found.compressed, len(found.body)) == (None, 61)


RESOURCE = PageRequest(Endpoint.METRICS_RESOURCE, is_head=False, only_cpu_and_memory=False)


async def node_seconds(served: ServedPages, tenant: str) -> float:
    async with served.service.rendered(RESOURCE, lambda: served.index, tenant) as found:
        rows = [line.split() for line in found.body.decode().splitlines()]
    return next(float(row[1]) for row in rows if row[0] == "node_cpu_usage_seconds_total")


async def test_a_vnodes_processor_time_outlives_a_pod_and_a_restart(tmp_path: Path) -> None:
    errors = Registry().counter("vcnode_vnagent_state_errors_total", "Errors.")
    saved = SavedState(tmp_path, errors, lambda: 1e9)
    saved.prepare()
    more = pod("ten-a", "more")
    kubelet = FakeUpstreamPool(A, B, more)
    served = ServedPages(kubelet, 0.0, NodeTotals(lambda: {"ten-a", "ten-b"}, saved))
    both, other = await node_seconds(served, "ten-a"), await node_seconds(served, "ten-b")
    kubelet.pods = (A, B)
    served.index = OwnerIndex([owned(each) for each in kubelet.pods])
    assert await node_seconds(served, "ten-a") == both > other
    served.totals.save()
    await saved.close()
    restarted = NodeTotals(lambda: {"ten-a"}, SavedState(tmp_path, errors, lambda: 1e9))
    restarted.restore()
    served = ServedPages(kubelet, 0.0, restarted)
    assert await node_seconds(served, "ten-a") == both
    # A tenant that was removed meanwhile has no total, and one that comes back begins anew.
    assert await node_seconds(served, "ten-b") == 1e-9


async def test_a_page_rendered_in_a_thread_is_the_same() -> None:
    """Parsed and rendered in a thread."""
    many = [pod("ten-a", f"p{number}") for number in range(200)]
    served = ServedPages(FakeUpstreamPool(*many, B), 0.0)
    page = page_for("/pods", served.kubelet.pods, "node-1")
    assert page is not None
    assert len(page[1]) > INLINE_BYTES
    assert await served.uids("ten-a") == [each.annotations[keys.UID] for each in many]
    assert await served.uids("ten-b") == ["t-ten-b-bank"]


# ---- one tenant's pages, one after the other


class RecordedRenders:
    """A fake for the page of `/pods`. Counts its renders, and the concurrent ones, by tenant."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, body: bytes = b"page") -> None:
        self.body = body
        self.count = 0
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.may_end = threading.Event()
        self.may_end.set()
        page = pages.PageKind(pages.JSON, lambda raw: raw, self._render)
        monkeypatch.setitem(PAGE_KINDS, Endpoint.PODS, page)

    def _render(self, _parsed: bytes, view: pages.View) -> bytes:
        tenant = view.tenant
        self.count += 1
        self.now[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self.now[tenant])
        self.may_end.wait(10)
        self.now[tenant] -= 1
        return self.body


async def until(condition: Callable[[], bool]) -> None:
    """Iterate the loop without a pause: an idle loop's clock jumps, while a thread takes real time."""
    for _ in range(1_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError(f"never: {source(condition)}; {dict(last_seen(condition))}")


async def take(served: ServedPages, tenant: str) -> bytes:
    async with served.service.rendered(PODS, lambda: served.index, tenant) as found:
        return found.body


async def test_a_tenant_renders_one_page_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the clients leave: a thread cannot be stopped, so the next one waits for it."""
    monkeypatch.setattr(page_service, "INLINE_BYTES", 0)
    rendering = RecordedRenders(monkeypatch)
    served, tasks = ServedPages(FakeUpstreamPool(A), 30.0), Tasks("test")
    rendering.may_end.clear()
    for _ in range(20):
        waiting = tasks.spawn(take(served, "ten-a"), "request")
        await until(lambda: rendering.count > 0)
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.cancel()
    left = [tasks.spawn(take(served, "ten-a"), "request") for _ in range(20)]
    other = tasks.spawn(take(served, "ten-b"), "request")
    await until(lambda: rendering.count == 2)
    assert rendering.now == {"ten-a": 1, "ten-b": 1}
    rendering.may_end.set()
    await until(lambda: all(each.done() for each in (other, *left)))
    await asyncio.gather(other, *left)
    assert rendering.most == {"ten-a": 1, "ten-b": 1}


async def test_waiting_requests_share_a_later_render(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And none gets a render that began before: a change may be the reason of the request."""
    monkeypatch.setattr(page_service, "INLINE_BYTES", 0)
    rendering = RecordedRenders(monkeypatch, b"old")
    served, tasks = ServedPages(FakeUpstreamPool(A), 30.0), Tasks("test")
    rendering.may_end.clear()
    first = tasks.spawn(take(served, "ten-a"), "request")
    await until(lambda: rendering.count > 0)
    later = [tasks.spawn(take(served, "ten-a"), "request") for _ in range(50)]
    for _ in range(10):
        await asyncio.sleep(0)
    rendering.may_end.set()
    await until(first.done)
    assert await first == b"old"
    rendering.body = b"new"
    await until(lambda: all(each.done() for each in later))
    await asyncio.gather(*later)
    assert rendering.count == 2
    last = tasks.spawn(take(served, "ten-a"), "request")
    await until(last.done)
    assert await last == b"new"
    assert rendering.count == 3  # without waiters the render is not kept


async def test_a_tenants_pages_have_a_rate_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    RecordedRenders(monkeypatch, b"x" * (4 << 20))
    served, loop = ServedPages(FakeUpstreamPool(A), 3600.0), asyncio.get_running_loop()
    begin_s, taken = loop.time(), 0
    while loop.time() - begin_s < 60:
        taken += len(await take(served, "ten-a"))
        assert taken <= PAGE_BURST_BYTES + PAGE_BYTES_PER_S * (loop.time() - begin_s) + 2 * (4 << 20)
    assert taken >= PAGE_BYTES_PER_S * 60
    begin_s = loop.time()
    await take(served, "ten-b")  # another tenant has its own
    assert loop.time() == begin_s


async def test_a_page_that_waits_too_long_in_the_queue_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    RecordedRenders(monkeypatch, b"x" * (16 << 20))
    served = ServedPages(FakeUpstreamPool(A), 3600.0)
    found = await asyncio.gather(*(take(served, "ten-a") for _ in range(50)), return_exceptions=True)
    refused = sum(isinstance(each, PageQueueTimeoutError) for each in found)
    assert refused + sum(isinstance(each, bytes) for each in found) == 50
    # The burst, and 5 s at the rate.
    assert 50 - refused <= (PAGE_BURST_BYTES + 5 * PAGE_BYTES_PER_S) // (16 << 20) + 2
    await asyncio.sleep(10)
    assert len(await take(served, "ten-a")) == 16 << 20


class BrokenIndex(OwnerIndex):
    def pods_of(self, tenant: str) -> tuple[Owned, ...]:
        raise ZeroDivisionError(tenant)


class FakeRequestLog:
    date = ""

    def next_request_id(self) -> str:
        return "1"

    def record(self, *_: object) -> None:
        pass


def page_exchange(client: "PageClient", served: ServedPages) -> PageExchange:
    port, state = cast(ClientConnection, client), cast(AgentState, client)
    return PageExchange(port, state, PODS, served.service, client.tasks)


class PageClient:
    """A connection that records how it is refused, with as much of the state as a page needs."""

    def __init__(self, index: OwnerIndex) -> None:
        self.request_log = FakeRequestLog()
        self.index = index
        self.tasks = Tasks("test")
        self.caller = Caller("ten-a", Role.APISERVER, "00")
        self.exchange: object = None
        self.begun_s = 0.0
        self.refused: list[tuple[int, str]] = []
        self.account = TenantScheduler().open("ten-a")

    def account_of(self, _tenant: str) -> Account:
        return self.account

    def refuse(
        self,
        _page: PageRequest,
        _id: str,
        status: int,
        reason: str,
        *,
        is_close: bool,
        retry_after_s: int | None,
    ) -> None:
        assert not is_close
        assert retry_after_s is None
        self.refused.append((status, reason))


@pytest.mark.parametrize("max_age_s", [0.0, 30.0])
@pytest.mark.parametrize("is_fault_in", ["reading", "rendering"])
async def test_a_bug_gets_a_response_one_log_line_and_is_not_kept(
    capsys: pytest.CaptureFixture[str], max_age_s: float, is_fault_in: str
) -> None:
    kubelet = FakeUpstreamPool(A, takes_s=0.5)
    served = ServedPages(kubelet, max_age_s)
    client = PageClient(BrokenIndex([]) if is_fault_in == "rendering" else served.index)
    if is_fault_in == "reading":
        kubelet.error = ValueError()  # as a dial that fails in Python
    page_exchange(client, served).start()
    await asyncio.sleep(1.0)
    assert client.refused == [(502, "page-malformed")]
    assert capsys.readouterr().err.count("ERROR") == 1
    assert len(client.tasks) == 0


async def test_a_page_is_charged_to_its_tenant() -> None:
    served = ServedPages(FakeUpstreamPool(A), 30.0)
    client = PageClient(served.index)
    client.account = TenantScheduler(clock_ns=itertools.count().__next__).open("ten-a")
    page_exchange(client, served).start()
    await asyncio.sleep(1.0)
    assert client.account.used_ns >= 3  # the start, the read, and what is behind it


def broken() -> None:
    raise ValueError


class OpenTransport:
    """Takes all that is written to it but for the first piece."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.calls: list[Callable[[], None]] = []

    def write(self, data: bytes | memoryview) -> None:
        self.sizes.append(len(data))

    def flush(self) -> None:
        pass

    def await_if_congested(self) -> bool:
        return len(self.sizes) == 2  # the head, and a piece

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)


class ReadingClient(PageClient):
    """A connection that takes a large page."""

    def __init__(self, served: ServedPages) -> None:
        super().__init__(served.index)
        self.transport: OpenTransport = OpenTransport()
        self.is_draining = False
        self.use = TenantUsage()
        self.is_finished = False
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def usage_of_caller(self, _caller: Caller) -> TenantUsage:
        return self.use

    def finish(self, *, is_close: bool) -> None:
        assert not is_close
        self.is_finished = True


async def test_a_page_is_sent_one_piece_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once got all that its socket took within one event: up to 22 pieces, 7 ms."""
    RecordedRenders(monkeypatch, b"x" * (10 * PIECE_BYTES + 1))
    served = ServedPages(FakeUpstreamPool(A), 0.0)
    reader = ReadingClient(served)
    transport = reader.transport
    exchange = page_exchange(reader, served)
    exchange.start()
    await asyncio.sleep(1.0)
    assert transport.sizes[1:] == [PIECE_BYTES]
    transport.calls.append(exchange.on_client_writable)
    for count in range(2, 12):
        transport.calls.pop()()
        assert len(transport.sizes) == 1 + count
    assert transport.calls == []
    assert transport.sizes[1:] == [PIECE_BYTES] * 10 + [1]
    assert reader.is_finished
    assert reader.use.unsent_bytes == 0


async def test_a_failure_after_the_head_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client waited for the rest, and its connection took no other request."""
    RecordedRenders(monkeypatch, b"x" * (10 * PIECE_BYTES))
    served = ServedPages(FakeUpstreamPool(A), 0.0)
    reader = ReadingClient(served)
    monkeypatch.setattr(reader.transport, "flush", broken)
    page_exchange(reader, served).start()
    await asyncio.sleep(1.0)
    assert reader.is_aborted
    assert reader.refused == []
    assert capsys.readouterr().err.count("ERROR") == 1
