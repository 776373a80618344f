# SPDX-License-Identifier: Apache-2.0
import hashlib

import pytest

from devkit.kubelet.replies import (
    Digest,
    Exchange,
    Tunnel,
    parse_head,
    switching,
)

SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")


def exchange(line: str, *headers: str) -> Exchange:
    head = "\r\n".join([f"{line} HTTP/1.1", "Host: n", *headers, "", ""]).encode()
    made = Exchange(1, head)
    parse_head(head, made)
    return made


def test_a_request_head_is_parsed() -> None:
    made = exchange("GET /a?x=1&x=%20&y", "X-A: 1", "x-a:  2 ")
    assert (made.method, made.path, made.is_malformed) == ("GET", "/a", False)
    assert made.query == [("x", "1"), ("x", " "), ("y", "")]
    assert made.values("X-A") == ["1", "2"]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /\r\n\r\n",
        b"GET * HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nBroken\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
    ],
)
def test_a_malformed_head_is_marked(head: bytes) -> None:
    made = Exchange(1, head)
    parse_head(head, made)
    assert made.is_malformed


@pytest.mark.parametrize(
    ("headers", "is_upgrade"),
    [
        (SPDY, True),
        (("Connection: keep-alive, upgrade", "Upgrade: websocket"), True),
        (("Connection: notupgrade", "Upgrade: SPDY/3.1"), False),
        (("Connection: Upgrade",), False),
    ],
)
def test_connection_and_upgrade_make_an_upgrade(headers: tuple[str, ...], is_upgrade: bool) -> None:
    assert exchange("POST /exec/a/b/c", *headers).is_upgrade is is_upgrade


def test_a_websocket_is_accepted_by_rfc_6455() -> None:
    made = exchange(
        "GET /exec/a/b/c",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: unknown, v5.channel.k8s.io, v4.channel.k8s.io",
    )
    headers = dict(switching(made, Tunnel.SINK).headers)
    # The example of RFC 6455, 1.3.
    assert headers["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert headers["Sec-WebSocket-Protocol"] == "v5.channel.k8s.io"


def test_a_digest_counts_all_and_keeps_a_prefix() -> None:
    digest = Digest()
    for _ in range(3):
        digest.add(b"x" * 200_000)
    assert (digest.count, len(digest.head)) == (600_000, 262_144)
    assert digest.sha256 == hashlib.sha256(b"x" * 600_000).hexdigest()
