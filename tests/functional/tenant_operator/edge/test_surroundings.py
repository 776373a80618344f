# SPDX-License-Identifier: Apache-2.0
"""Answers of all tenants together are bounded, and a client that is closed counts no more."""

from __future__ import annotations

import asyncio

import pytest

from daemonkit.kube.client import AnswerTooLargeError, ApiClient
from daemonkit.kube.kubeconfig import Access
from daemonkit.tasks import Tasks
from tenant_operator.edge.surroundings import CountedClients

pytestmark = pytest.mark.asyncio

LIMIT_BYTES = 8 << 20
PAGE_BYTES = 4 << 20
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % PAGE_BYTES


async def test_answers_of_all_tenants_have_one_bound() -> None:
    """Each server sends half a page and waits, so that all of them are under way at once."""
    others = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b" " * (PAGE_BYTES // 2))
        await others.wait()
        writer.write(b" " * (PAGE_BYTES // 2))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    clients = CountedClients(LIMIT_BYTES)
    opened: list[ApiClient] = [
        clients.open_tenant(Access(server=f"http://127.0.0.1:{port}")) for _ in range(8)
    ]

    async def ask(client: ApiClient) -> int:
        try:
            return len(await client.request("GET", "/", {}, limit_bytes=PAGE_BYTES))
        except AnswerTooLargeError:
            return -1
        finally:
            others.set()
            await client.close()

    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, clients.shared.total_bytes())
            await asyncio.sleep(0)  # pace: each turn of the loop

    watching = Tasks("test").spawn(watch(), "watch")
    found = await asyncio.gather(*map(ask, opened))
    watching.cancel()
    assert -1 in found
    # What one read brings comes before its refusal.
    assert most <= LIMIT_BYTES + (2 << 20)
    assert clients.shared.total_bytes() == 0
    # One alone has all of it.
    assert await ask(clients.open_tenant(Access(server=f"http://127.0.0.1:{port}"))) == PAGE_BYTES
    server.close()
