# SPDX-License-Identifier: Apache-2.0
"""The contexts on real sockets under asyncio, which the unit tests do not use."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from daemonkit.files.watched import Watched
from daemonkit.tls.contexts import client_context, server_context, verified_chain
from devkit.pki import Authority, Leaf

NODE = Authority.create("node-ca")
TENANT = Authority.create("tenant-ca")
OTHER = Authority.create("other-ca")


class ChainServer:
    """Sends each client the chain that it proved. Accepts the next client with a new context."""

    def __init__(self) -> None:
        self.chains: list[tuple[bytes, ...]] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.chains.append(verified_chain(writer.get_extra_info("ssl_object")))
        while line := await reader.readline():
            writer.write(line)
        writer.close()


async def echo(context: ssl.SSLContext, port: int) -> Callable[[bytes], Awaitable[bytes]]:
    """Connect; return what sends a line and waits for its echo."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="n1")

    async def send(line: bytes) -> bytes:
        writer.write(line + b"\n")
        async with asyncio.timeout(10):
            response = await reader.readline()
        if line == b"bye":
            writer.close()
        return response

    return send


def client(leaf: Leaf, ca: Authority = NODE) -> ssl.SSLContext:
    return client_context(ca.cert_pem, leaf.cert_pem, leaf.key_pem)


@pytest.mark.asyncio
async def test_a_rotation_serves_old_and_new(tmp_path: Path) -> None:
    node_2 = Authority.create("node-ca-2")
    tenant_leaf, other_leaf = TENANT.issue("apiserver"), OTHER.issue("apiserver")
    certificate, key = NODE.issue("n1", sans_dns=["n1"]).write(tmp_path, "serving")
    watched = Watched.files([certificate, key])
    assert watched.poll()

    server = ChainServer()
    first = await asyncio.start_server(
        server.accept, "127.0.0.1", 0, ssl=server_context(certificate, key, [TENANT.der])
    )
    before = await echo(client(tenant_leaf), first.sockets[0].getsockname()[1])
    assert await before(b"one") == b"one\n"

    node_2.issue("n1", sans_dns=["n1"]).write(tmp_path, "serving")
    assert watched.poll()
    second = await asyncio.start_server(
        server.accept, "127.0.0.1", 0, ssl=server_context(certificate, key, [TENANT.der, OTHER.der])
    )
    port = second.sockets[0].getsockname()[1]
    after = await echo(client(other_leaf, node_2), port)
    assert await after(b"two") == b"two\n"
    with pytest.raises(ssl.SSLCertVerificationError):
        await echo(client(other_leaf, NODE), port)
    assert await before(b"three") == b"three\n"
    assert server.chains == [(tenant_leaf.der, TENANT.der), (other_leaf.der, OTHER.der)]

    for send in (before, after):
        assert await send(b"bye") == b"bye\n"
    for listener in (first, second):
        listener.close()
        await listener.wait_closed()
