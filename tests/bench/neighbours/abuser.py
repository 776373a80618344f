# SPDX-License-Identifier: Apache-2.0
"""The abusers, each a coroutine as in `tests.bench.attacks.attacker`: they use a tenant's limits in full.

All do what a registered tenant may do, with the bench's own certificate, to the loopback address of the
vn-agent that the bench has started.
"""

import asyncio
import contextlib
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import cast

from tests.bench.attacks.attacker import ATTACKS, SETUP_S, Attack, AttackTarget, main, many, request_pages
from tests.bench.fixture import FLOOD_POD, PODS

_TUNNELS = 500
_FOLLOWS = 64
_READERS, _SENDERS = 100, 200
_SLOW_BYTES = 4096
# Each sender's 4 KB a second, in pieces.
_PIECE_S = 0.1
_NEW_A_SECOND, _NEW_AT_ONCE = 1000, 16
_CHUNK = 1 << 16
_FLOOD_BYTES = 32_760 * 30_000


async def busy_cores(target: AttackTarget) -> None:
    """No abuser: a process of the idle policy on each core does what any abuser's processes do to the others'
    cores and caches."""
    spin = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    spinners = [
        await asyncio.create_subprocess_exec("taskset", "-c", str(core), sys.executable, "-c", spin)
        for core in range(os.cpu_count() or 1)
    ]
    try:
        target.report_under_way()
        await asyncio.Event().wait()
    finally:
        for spinner in spinners:
            spinner.kill()


async def hammer(target: AttackTarget) -> None:
    """64 connections that request a small log in a closed loop."""
    await many(target, 64, request_pages(f"{target.log_path}?tailLines=10"))


async def pages(target: AttackTarget) -> None:
    """8 connections that request pages in a closed loop: half of them pods, half metrics."""
    both = itertools.cycle((request_pages("/pods"), request_pages("/metrics/resource")))

    async def request_page(target: AttackTarget) -> None:
        await next(both)(target)

    await many(target, 8, request_page)


async def tunnels(target: AttackTarget) -> None:
    """500 streams, each with one echo under way."""

    async def echo(target: AttackTarget) -> None:
        async with _open_stream(target) as (reader, writer):
            while True:
                writer.write(b"x" * 64)
                await reader.readexactly(64)
                target.count("echoes")
                target.begin()

    await many(target, _TUNNELS, echo)


async def new_tunnels(target: AttackTarget) -> None:
    """16 at once open a stream, wait for one echo and close it, in a closed loop."""

    async def echo(target: AttackTarget) -> None:
        while True:
            async with _open_stream(target) as (reader, writer):
                writer.write(b"x" * 64)
                await reader.readexactly(64)
                target.begin()

    await many(target, _NEW_AT_ONCE, echo)


@contextlib.asynccontextmanager
async def _open_stream(
    target: AttackTarget,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A new connection with an exec stream. Raises ValueError where it is refused."""
    reader, writer = await target.tls()
    try:
        path = target.log_path.replace("/containerLogs/", "/exec/")
        writer.write(
            f"POST {path}?command=cat&input=1&output=1 HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\n"
            "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            "X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n".encode()
        )
        await _read_head(target, reader)
        yield reader, writer
    finally:
        writer.close()


async def _read_head(target: AttackTarget, reader: asyncio.StreamReader) -> None:
    """Count the status. Raises ValueError for a refusal."""
    status = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
    target.count(status)
    if int(status) >= 400:
        raise ValueError(status)


async def slow_readers(target: AttackTarget) -> None:
    """100 connections that read a log of 1 GB, 4 KB ten times a second each."""
    path = target.log_path.replace(PODS[0], FLOOD_POD)

    async def read_slowly(target: AttackTarget) -> None:
        reader, writer = await target.tls()
        try:
            writer.write(target.request(f"{path}?limitBytes={_FLOOD_BYTES}"))
            await _read_head(target, reader)
            while await reader.read(_SLOW_BYTES):
                target.count("reads")
                target.begin()
                await asyncio.sleep(_PIECE_S)  # pace: the attack is to read slowly
        finally:
            writer.close()

    await many(target, _READERS, read_slowly)


async def slow_senders(target: AttackTarget) -> None:
    """200 connections that send a head without an end, 4 KB a second each."""

    async def send_slowly(target: AttackTarget) -> None:
        reader, writer = await target.tls()
        try:
            writer.write(target.request("/healthz").removesuffix(b"\r\n") + b"X: ")
            while not reader.at_eof():
                writer.write(b"x" * int(_SLOW_BYTES * _PIECE_S))
                await asyncio.wait_for(writer.drain(), SETUP_S)
                target.count("pieces")
                target.begin()
                await asyncio.sleep(_PIECE_S)  # pace: the attack is to send slowly
        finally:
            writer.close()

    await many(target, _SENDERS, send_slowly)


async def new_connections(target: AttackTarget) -> None:
    """New connections with the tenant's certificate, closed at once: 1 000 a second if the core allows."""
    begin_s, begun = time.monotonic(), itertools.count()

    async def connect(target: AttackTarget) -> None:
        while True:
            due_s = begin_s + next(begun) / _NEW_A_SECOND
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))  # pace: the rate of the attack
            _, writer = await target.tls()
            target.count("handshakes")
            target.begin()
            cast(asyncio.Transport, writer.transport).abort()

    await many(target, _NEW_AT_ONCE, connect)


async def follows(target: AttackTarget) -> None:
    """64 followed logs of containers that write as fast as they are read."""

    async def follow(target: AttackTarget) -> None:
        reader, writer = await target.tls()
        try:
            writer.write(target.request(f"{target.log_path}?follow=true"))
            await _read_head(target, reader)
            while chunk := await reader.read(_CHUNK):
                target.counted["KB"] += len(chunk) // 1024
                target.begin()
        finally:
            writer.close()

    await many(target, _FOLLOWS, follow)


ABUSERS: dict[str, Attack] = {
    "none": ATTACKS["none"],
    "busy-cores": busy_cores,
    "hammer": hammer,
    "tunnels": tunnels,
    "slow-readers": slow_readers,
    "unread-pages": ATTACKS["unread-pages"],
    "slow-senders": slow_senders,
    "pages": pages,
    "new-connections": new_connections,
    "new-tunnels": new_tunnels,
    "follows": follows,
}


if __name__ == "__main__":
    main("python -m tests.bench.neighbours.abuser", ABUSERS)
