# SPDX-License-Identifier: Apache-2.0
import asyncio
import datetime as dt
import json
from collections.abc import Mapping

import pytest

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.event_recorder import (
    BURST,
    MAX_MESSAGE_CHARACTERS,
    MAX_WAITING,
    RETRY_S,
    EventBody,
    EventRecorder,
    EventSource,
    TenantQueue,
    build_event,
)
from daemonkit.kube.resources import EventReason, ObjectMeta, Status
from daemonkit.metrics import Registry
from daemonkit.tasks import Tasks

pytestmark = pytest.mark.asyncio

AT = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SOURCE = EventSource("dnsconfig", "n1")


class RecordedReason(EventReason):
    FORMING = "DNSConfigForming"


REASON, MESSAGE = EVENT = (RecordedReason.FORMING, "too much")


def a_pod(name: str = "web-0") -> ObjectMeta:
    return ObjectMeta(name, "a-shop", f"uid-a-shop-{name}")


class FakeEventApi:
    """Records posted Events, or raises the given failures first."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.posted: list[tuple[str, str, bytes]] = []

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None = None
    ) -> bytes:
        if self.failures:
            raise self.failures.pop(0)
        self.posted.append((method, path, body or b""))
        return b"{}"


def error(code: int) -> ApiError:
    return ApiError(Status(code))


async def posted(
    server: FakeEventApi, *events: tuple[RecordedReason, str], seconds: float = 1.0
) -> dict[str, float]:
    """The metric's counts after so much time."""
    counted, tasks = Registry().counter("vcnode_test_events_total", "Events.", ("result",)), Tasks("test")
    recorder = EventRecorder(server, SOURCE, AT.timestamp, counted)
    for reason, message in events:
        recorder.record(a_pod(), reason, message, "a")
    tasks.spawn(recorder.run(), "events")
    await asyncio.sleep(seconds)
    await tasks.close(1.0)
    results = ("posted", "refused", "unreachable", "dropped")
    return {name: n for name in results if (n := counted.labels(name).value)}


async def test_event_is_posted_as_the_kubelet_builds_it() -> None:
    server = FakeEventApi()
    assert await posted(server, EVENT) == {"posted": 1}
    ((method, path, body),) = server.posted
    assert (method, path) == ("POST", "/api/v1/namespaces/a-shop/events")
    value = json.loads(body)
    assert value.pop("metadata") == {"name": "web-0.44d5cb6570217186", "namespace": "a-shop"}
    assert value == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "a-shop",
            "name": "web-0",
            "uid": "uid-a-shop-web-0",
        },
        "reason": "DNSConfigForming",
        "message": "too much",
        "type": "Warning",
        "source": {"component": "dnsconfig", "host": "n1"},
        "firstTimestamp": "2026-11-20T12:00:00Z",
        "lastTimestamp": "2026-11-20T12:00:00Z",
        "count": 1,
    }


async def test_event_name_is_a_digest_within_253_characters() -> None:
    def name(pod_name: str, message: str) -> str:
        made = build_event(a_pod(pod_name), REASON, message, SOURCE, AT)
        value: str = json.loads(made.body)["metadata"]["name"]
        return value

    assert name("web-0", "x") == name("web-0", "x") != name("web-0", "y")
    assert len(name("p" * 253, "x")) == 253
    long = build_event(a_pod(), REASON, "x" * 5000, SOURCE, AT)
    assert len(json.loads(long.body)["message"]) == MAX_MESSAGE_CHARACTERS


@pytest.mark.parametrize(
    ("failures", "seconds", "expected"),
    [
        ([error(409)], 1.0, {"posted": 1.0}),
        ([error(403)], 1.0, {"refused": 1.0}),
        ([error(500), error(429)], 3 * RETRY_S, {"posted": 1.0}),
        ([UnreachableError("away")] * 3, 3 * RETRY_S, {"unreachable": 1.0}),
    ],
)
async def test_a_failed_post_is_retried_or_counted(
    failures: list[Exception], seconds: float, expected: dict[str, float]
) -> None:
    assert await posted(FakeEventApi(*failures), EVENT, seconds=seconds) == expected


async def test_posts_are_bounded_to_a_burst_and_a_rate() -> None:
    many = [(REASON, str(number)) for number in range(BURST + 10)]
    assert await posted(FakeEventApi(), *many, seconds=0.5) == {"posted": BURST}
    assert await posted(FakeEventApi(), *many, seconds=20.0) == {"posted": BURST + 10}


async def test_events_beyond_the_queue_are_counted_and_dropped() -> None:
    many = [(REASON, str(number)) for number in range(MAX_WAITING + 7)]
    assert (await posted(FakeEventApi(), *many))["dropped"] == 7


async def test_a_tenant_with_many_events_delays_only_its_own() -> None:
    counted, tasks, server = (
        Registry().counter("vcnode_test_events_total", "Events.", ("result",)),
        Tasks("test"),
        FakeEventApi(),
    )
    recorder = EventRecorder(server, SOURCE, AT.timestamp, counted)
    for number in range(MAX_WAITING + 50):
        recorder.record(a_pod(f"web-{number}"), REASON, MESSAGE, "a")
    for number in range(3):
        recorder.record(a_pod(f"mine-{number}"), REASON, MESSAGE, "b")
    tasks.spawn(recorder.run(), "events")
    await asyncio.sleep(1)
    await tasks.close(1.0)
    names = [json.loads(body)["involvedObject"]["name"] for _, _, body in server.posted]
    assert names[:6] == ["web-0", "mine-0", "web-1", "mine-1", "web-2", "mine-2"]
    # All that was lost is of the tenant that had most, and the oldest of it stayed.
    assert counted.labels("dropped").value == 53


async def test_queue_drops_the_newest_of_the_largest_tenant() -> None:
    queue = TenantQueue(4)
    items = {name: EventBody(name, b"") for name in ("a1", "a2", "a3", "b1", "b2", "c1")}
    lost = [name for name, item in items.items() if not queue.put(name[0], item)]
    assert lost == ["b2", "c1"]
    assert [queue.pop().namespace for _ in range(len(queue))] == ["a1", "b1", "c1", "b2"]
