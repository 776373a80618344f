# SPDX-License-Identifier: Apache-2.0
"""The memory of the real process, with tenants whose API servers make it take all that they can."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemonkit.kube.resources import CONFIG_MAPS
from devkit.kube import wire
from syncer.core import memory
from tests.functional.syncer.clusters import SyncedClusters, synced_clusters

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(500)]

KIB, MIB = 1 << 10, 1 << 20
WITHIN_S = 200.0
COUNT = 20
USED_UP = "memory of the process is used up"
EMPTY = b'{"metadata":{"resourceVersion":"7"},"items":[]}'
# Who has sent so much has tried, also if it is not refused.
SENT_BYTES = 32 * MIB
# Of what all may hold together, the last eighth is for tenants below their shares.
REACHED = 0.95 * 7 / 8
# Of what one answer sends; a hostile server has no end of answers.
ANSWER_BYTES = 64 * MIB

Pieces = Callable[[], Iterator[bytes]]


def put(name: int, text: bytes) -> bytes:
    """An object of any kind."""
    return (
        b'{"metadata":{"name":"n-%d","namespace":"web","uid":"u-%d","resourceVersion":"8"},"data":{"t":"%s"}}'
        % (name, name, text)
    )


def endless_line() -> Iterator[bytes]:
    """A line of a watch may have 16 MiB. Each of these watches holds almost that."""
    yield b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"8"},"x":"'
    for _ in range(15 * MIB // (64 * KIB)):
        yield b"x" * (64 * KIB)


def listed(items: Iterator[bytes]) -> Iterator[bytes]:
    """A page that says that more come."""
    yield b'{"metadata":{"resourceVersion":"7","continue":"more"},"items":['
    yield from items
    yield b"]}"


def endless_page() -> Iterator[bytes]:
    """No page and no list of it ends: what is held of it is never decoded."""
    return listed(itertools.repeat(b"{}," * (20 * KIB)))


_numbers = itertools.count()


def huge_objects() -> Iterator[bytes]:
    """A page of one object that is just small enough, and many such pages."""
    return listed(iter([put(next(_numbers), b"x" * (4 * MIB))]))


def many_objects() -> Iterator[bytes]:
    """As many objects as a page of 8 MiB has room for."""
    found = [put(next(_numbers), b"") for _ in range(60_000)]
    return listed(iter([b",".join(found)]))


def small_events() -> Iterator[bytes]:
    """Of each only the name is held: the rest does not decode."""
    while True:
        yield b"".join(
            b'{"type":"ADDED","object":{"metadata":{"name":"n-%d","namespace":"web","resourceVersion":"8"},'
            b'"spec":7,"data":7,"status":7}}\n' % next(_numbers)
            for _ in range(200)
        )


class HostileServer:
    """Answers each list by `page` and each watch by `watch`; without them by nothing."""

    def __init__(self, page: Pieces | None = None, watch: Pieces | None = None) -> None:
        self._page = page
        self._watch = watch
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.sent_bytes = 0

    async def start(self) -> str:
        """Returns its kubeconfig."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return wire.kubeconfig(f"http://127.0.0.1:{port}", None, None, token="t")

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    await self._answer(await reader.readuntil(b"\r\n\r\n"), writer)
        finally:
            self._serving.discard(task)
            writer.transport.abort()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        answer = self._watch if b"watch=1" in head else self._page
        if answer is None and b"watch=1" not in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(EMPTY) + EMPTY)
            return
        # pace: what this costs in processor time is no question here
        await asyncio.sleep(1.0)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        for piece in () if answer is None else answer():
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            sent += len(piece)
            self.sent_bytes += len(piece)
            if sent > ANSWER_BYTES:
                break
        if answer is self._page:
            writer.write(b"0\r\n\r\n")
        else:
            await asyncio.Event().wait()


SERVERS: dict[str, Callable[[], HostileServer]] = {
    "line": lambda: HostileServer(watch=endless_line),
    "page": lambda: HostileServer(page=endless_page),
    "huge": lambda: HostileServer(page=huge_objects),
    "many": lambda: HostileServer(page=many_objects),
    "events": lambda: HostileServer(watch=small_events),
}


@contextlib.asynccontextmanager
async def _attacked(
    directory: Path, limit_bytes: int, honest: tuple[str, ...]
) -> AsyncIterator[tuple[SyncedClusters, dict[str, HostileServer]]]:
    settings: Any = {"maxMemoryBytes": limit_bytes, "patrol": {"intervalSeconds": 5}}
    async with synced_clusters(directory, *honest, **settings) as clusters:
        servers = {name: make() for name, make in SERVERS.items()}
        (directory / "tenants").mkdir()
        try:
            for name, server in servers.items():
                (directory / "tenants" / f"{name}.kubeconfig").write_text(await server.start())
            for name in honest:
                clusters.tenants[name].create_namespace("web")
            await clusters.start(waits_until_ready=False)
            yield clusters, servers
        finally:
            await clusters.stop()
            for server in servers.values():
                await server.stop()


def _peak_bytes(clusters: SyncedClusters) -> int:
    assert clusters.process is not None
    text = Path(f"/proc/{clusters.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.parametrize(("limit_bytes", "honest"), [(320 * MIB, ("acme", "blue")), (640 * MIB, ("acme",))])
async def test_five_hostile_tenants_leave_the_others_their_share(
    tmp_path: Path, limit_bytes: int, honest: tuple[str, ...]
) -> None:
    """They use up the whole budget, and the process stays below its limit."""
    async with _attacked(tmp_path, limit_bytes, honest) as (clusters, servers):
        await clusters.until(clusters.socket.exists, WITHIN_S)
        refused: set[str] = set()
        most_counted = 0.0

        def have_tried(found: dict[str, Any]) -> bool:
            """Each at its time: who was refused has given back what it held, and others may have more."""
            nonlocal most_counted
            tenants, used = found["tenants"], found["memory"]
            most_counted = max(most_counted, used["countedBytes"] / used["budgetBytes"])
            refused.update(name for name in SERVERS if USED_UP in str(tenants[f"{name}.kubeconfig"]))
            more = {name for name, each in servers.items() if each.sent_bytes > SENT_BYTES}
            is_used_up = most_counted >= REACHED and len(refused) > 2
            return is_used_up and refused | more == SERVERS.keys()

        await clusters.until_page(have_tried, WITHIN_S)
        for name in honest:
            for number in range(COUNT):
                clusters.tenants[name].create_config_map("web", f"c-{number}", {"text": "x" * 100_000})
        wanted = {(f"{name}-web", f"c-{number}") for name in honest for number in range(COUNT)}
        await clusters.until(lambda: wanted <= clusters.super.objects(CONFIG_MAPS).keys(), WITHIN_S)
        peak, budget = _peak_bytes(clusters), memory.budget_bytes(limit_bytes)
        (tmp_path / "peak").write_text(f"{peak / MIB:.0f}")
        # What is counted is really held: the test is one of memory, and not of numbers.
        assert budget / 2 < peak < limit_bytes, f"{peak / MIB:.0f} MiB"


async def test_more_tenants_than_there_is_memory_for_are_reported(tmp_path: Path) -> None:
    room = memory.room(memory.MIN_LIMIT_BYTES)
    settings: Any = {"maxMemoryBytes": memory.MIN_LIMIT_BYTES}
    async with synced_clusters(tmp_path, "acme", **settings) as clusters:
        tenants = tmp_path / "tenants"
        tenants.mkdir()
        for number in range(room):
            # Nothing listens there.
            closed = wire.kubeconfig("http://127.0.0.1:1", None, None, token="t")
            (tenants / f"tenant-{number:03}.kubeconfig").write_text(closed)
        await clusters.start()
        assert f"room for {room} tenants, and there are {room + 1}" in clusters.log.read_text()
        assert "more tenants than the limit of memory has room for" in clusters.log.read_text()
        assert f"memory: room for {room} tenants, and there are more" in await clusters.readiness()
        found = (await clusters.status())["memory"]
        assert (found["roomForTenants"], found["shareBytes"]) == (room, MIB)
        (tenants / "tenant-000.kubeconfig").unlink()
        await clusters.until(lambda: "has room for all tenants again" in clusters.log.read_text())
