# SPDX-License-Identifier: Apache-2.0
import asyncio
import datetime as dt
import json
from collections.abc import Mapping

import pytest

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import Status
from daemonkit.tasks import Tasks
from dnsconfig.cluster.objects import PodObject
from dnsconfig.events import (
    BURST,
    MAX_MESSAGE_CHARACTERS,
    MAX_WAITING,
    RETRY_S,
    Events,
    FairQueue,
    Letter,
    letter,
)
from dnsconfig.metrics import Metrics
from dnsconfig.resolve.resolver import PodEvent
from tests.unit.dnsconfig.objects import pod
from tests.unit.dnsconfig.reading import read_all

pytestmark = pytest.mark.asyncio

AT = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
EVENT = PodEvent("DNSConfigForming", "too much")


def a_pod(name: str = "web-0") -> PodObject:
    found = read_all([pod("a", name)])["Pod"]["a-shop", name]
    assert isinstance(found, PodObject)
    return found


class Server:
    """Takes what is posted, or raises what it is told to."""

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


async def posted(server: Server, *events: PodEvent, seconds: float = 1.0) -> dict[str, float]:
    """What the metric says after so much time."""
    metrics, tasks = Metrics(), Tasks("test")
    poster = Events(server, "n1", AT.timestamp, metrics.events)
    for event in events:
        poster.tell(a_pod(), event, "a")
    tasks.spawn(poster.run(), "events")
    await asyncio.sleep(seconds)
    await tasks.close(1.0)
    results = ("posted", "refused", "unreachable", "dropped")
    return {name: n for name in results if (n := metrics.events.labels(name).value)}


async def test_the_event_that_is_posted() -> None:
    server = Server()
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


async def test_an_events_name_tells_what_it_says_and_fits() -> None:
    def name(pod_name: str, message: str) -> str:
        made = letter(a_pod(pod_name), PodEvent("R", message), "n1", AT)
        value: str = json.loads(made.body)["metadata"]["name"]
        return value

    assert name("web-0", "x") == name("web-0", "x") != name("web-0", "y")
    assert len(name("p" * 253, "x")) == 253
    long = letter(a_pod(), PodEvent("R", "x" * 5000), "n1", AT)
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
async def test_failures(failures: list[Exception], seconds: float, expected: dict[str, float]) -> None:
    assert await posted(Server(*failures), EVENT, seconds=seconds) == expected


async def test_a_burst_and_then_one_after_the_other() -> None:
    many = [PodEvent("R", str(number)) for number in range(BURST + 10)]
    assert await posted(Server(), *many, seconds=0.5) == {"posted": BURST}
    assert await posted(Server(), *many, seconds=20.0) == {"posted": BURST + 10}


async def test_what_does_not_fit_is_counted_and_lost() -> None:
    many = [PodEvent("R", str(number)) for number in range(MAX_WAITING + 7)]
    assert (await posted(Server(), *many))["dropped"] == 7


async def test_a_neighbours_event_does_not_wait_for_those_of_a_tenant_that_has_many() -> None:
    metrics, tasks, server = Metrics(), Tasks("test"), Server()
    poster = Events(server, "n1", AT.timestamp, metrics.events)
    for number in range(MAX_WAITING + 50):
        poster.tell(a_pod(f"web-{number}"), EVENT, "a")
    for number in range(3):
        poster.tell(a_pod(f"mine-{number}"), EVENT, "b")
    tasks.spawn(poster.run(), "events")
    await asyncio.sleep(1)
    await tasks.close(1.0)
    names = [json.loads(body)["involvedObject"]["name"] for _, _, body in server.posted]
    assert names[:6] == ["web-0", "mine-0", "web-1", "mine-1", "web-2", "mine-2"]
    # All that was lost is of the tenant that had most, and the oldest of it stayed.
    assert metrics.events.labels("dropped").value == 53


async def test_what_waits_is_bounded_and_those_that_wait_take_turns() -> None:
    queue = FairQueue(4)
    items = {name: Letter(name, b"") for name in ("a1", "a2", "a3", "b1", "b2", "c1")}
    lost = [name for name, item in items.items() if not queue.put(name[0], item)]
    assert lost == ["b2", "c1"]
    assert [queue.pop().namespace for _ in range(len(queue))] == ["a1", "b1", "c1", "b2"]
