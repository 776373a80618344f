# SPDX-License-Identifier: Apache-2.0
import hashlib

import pytest

from daemonkit.testing.kubelet_pods import StandInPod
from daemonkit.testing.kubelet_replies import (
    Digest,
    Exchange,
    Reply,
    Tunnel,
    parse_head,
    plausible,
    switching,
)

SHOP = StandInPod("ten-a-web", "shop", "s-1", injected=("mesh-proxy",), init=("setup",))
KEY = ("ten-a-web", "shop", "app")
FIRST = "ten-a-web/shop/app marker-s-1"
SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")


def exchange(line: str, *headers: str) -> Exchange:
    head = "\r\n".join([f"{line} HTTP/1.1", "Host: n", *headers, "", ""]).encode()
    made = Exchange(1, head)
    parse_head(head, made)
    return made


def answer(line: str, *headers: str) -> Reply:
    return plausible(exchange(line, *headers), [SHOP], {KEY: ["one", "two"]}, "node-1")


def test_a_head_is_taken_apart() -> None:
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
def test_a_malformed_head_is_noticed(head: bytes) -> None:
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
def test_what_an_upgrade_is(headers: tuple[str, ...], is_upgrade: bool) -> None:
    assert exchange("POST /exec/a/b/c", *headers).is_upgrade is is_upgrade


@pytest.mark.parametrize(
    ("query", "status", "body"),
    [
        ("", 200, f"{FIRST}\none\ntwo\n"),
        ("?tailLines=1", 200, "two\n"),
        ("?tailLines=0", 200, ""),
        ("?limitBytes=4", 200, FIRST[:4]),
        ("?timestamps=true&tailLines=1", 200, "2026-01-02T04:05:06Z two\n"),
        ("?previous=true", 400, 'previous terminated container "app" in pod "shop" not found'),
    ],
)
def test_logs(query: str, status: int, body: str) -> None:
    reply = answer(f"GET /containerLogs/ten-a-web/shop/app{query}")
    assert (reply.status, reply.body.decode()) == (status, body)


@pytest.mark.parametrize(
    ("line", "headers", "status", "body"),
    [
        ("GET /containerLogs/ten-a-web/none/app", (), 404, 'pod "none" does not exist\n'),
        ("GET /containerLogs/ten-a-web/shop/none", (), 404, 'container "none" not found in pod "shop"\n'),
        ("POST /containerLogs/ten-a-web/shop/app", (), 405, "405: Method Not Allowed"),
        ("POST /exec/ten-a-web/none/app?output=1", SPDY, 404, "pod does not exist"),
        ("POST /exec/ten-a-web/shop/setup?output=1", SPDY, 404, "container not found (setup)"),
        ("POST /portForward/ten-a-web/shop/other", SPDY, 404, "pod does not exist"),
        ("GET /nothing", (), 404, "404 page not found\n"),
    ],
)
def test_refusals(line: str, headers: tuple[str, ...], status: int, body: str) -> None:
    reply = answer(line, *headers)
    assert (reply.status, reply.body.decode()) == (status, body)


def test_a_follow_goes_on_behind_its_first_lines() -> None:
    assert answer("GET /containerLogs/ten-a-web/shop/app?follow=true").follows == KEY


def test_an_exec_switches_and_greets() -> None:
    reply = answer("POST /exec/ten-a-web/shop/app?command=ls&command=-l&output=1", *SPDY)
    assert (reply.status, reply.tunnel) == (101, Tunnel.ECHO)
    assert reply.first_bytes == b"exec ten-a-web/shop/app marker-s-1 ls -l\n"


def test_a_websocket_is_accepted_as_rfc_6455_says() -> None:
    made = exchange(
        "GET /exec/a/b/c",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: unheard-of, v5.channel.k8s.io, v4.channel.k8s.io",
    )
    headers = dict(switching(made, Tunnel.SINK).headers)
    # The example of RFC 6455, 1.3.
    assert headers["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert headers["Sec-WebSocket-Protocol"] == "v5.channel.k8s.io"


def test_a_digest_counts_all_and_keeps_the_beginning() -> None:
    digest = Digest()
    for _ in range(3):
        digest.add(b"x" * 200_000)
    assert (digest.count, len(digest.head)) == (600_000, 262_144)
    assert digest.sha256 == hashlib.sha256(b"x" * 600_000).hexdigest()
