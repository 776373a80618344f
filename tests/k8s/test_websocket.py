# SPDX-License-Identifier: Apache-2.0
"""exec by WebSocket through vn-agent at a real kubelet, in both versions of the subprotocol.

kubectl's own WebSocket ends at the tenant's apiserver, which connects to the node by SPDY. Older clients, and
apiservers from 1.36 on, connect to the node by WebSocket.
"""

from __future__ import annotations

import ssl

import pytest

from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.facts import load_facts
from tests.k8s.ring.tenants import RingTenant

_PATH = "/exec/default/web/main?command=echo&command=inside&output=1"
# RFC 6455, 5.2: a final binary frame, and the channel of stdout in front of its payload.
_STDOUT = b"\x82\x08\x01inside\n"


def _head(protocol: str) -> bytes:
    lines = (
        f"GET {_PATH} HTTP/1.1",
        "Host: node",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Sec-WebSocket-Protocol: {protocol}",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _read_until(connection: ssl.SSLSocket, expected: bytes) -> bytes:
    received = bytearray()
    while expected not in received:
        chunk = connection.recv(65536)
        if not chunk:
            pytest.fail(f"it ended with {bytes(received)!r}")
        received += chunk
    return bytes(received)


def test_exec_by_version_4(served: Ring, acme: RingTenant) -> None:
    with served.agent_as(acme.client).dial() as connection:
        connection.sendall(_head("v4.channel.k8s.io"))
        received = _read_until(connection, _STDOUT)
    head = received.partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    # RFC 6455, 1.3: the answer to the example key.
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    assert b"\r\nSec-WebSocket-Protocol: v4.channel.k8s.io" in head


def test_version_5_is_refused_as_the_kubelet_refuses_it(served: Ring, acme: RingTenant) -> None:
    """With the kubelet's own number, so that a client falls back; not as a fault of the agent's rights."""
    fact = next(each for each in load_facts("any") if each.name == "exec by WebSocket version 5")
    reply = served.agent_as(acme.client).exchange(_head("v5.channel.k8s.io"))
    assert reply.startswith(b"HTTP/1.1 %d Forbidden\r\n" % fact.status)
    assert b"none of the WebSocket subprotocols" in reply
    assert b"refused the node agent" not in reply
