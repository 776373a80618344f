# SPDX-License-Identifier: Apache-2.0
import pytest

from devkit.kubelet.default_replies import default_reply
from devkit.kubelet.pods import FakePod, FakePodState
from devkit.kubelet.replies import Exchange, FakeReply, Tunnel, parse_head

SHOP = FakePod("ten-a-web", "shop", "s-1", injected=("mesh-proxy",), init=("setup",))
ENDED = FakePod("ten-a-web", "ended", "s-2", state=FakePodState.ENDED, is_quiet=True)
KEY = ("ten-a-web", "shop", "app")
FIRST = "ten-a-web/shop/app marker-s-1"
SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")


def reply_to(line: str, *headers: str, peer: str = "agent") -> FakeReply:
    head = "\r\n".join([f"{line} HTTP/1.1", "Host: n", *headers, "", ""]).encode()
    exchange = Exchange(1, head, peer=peer)
    parse_head(head, exchange)
    return default_reply(exchange, [SHOP, ENDED], {KEY: ["one", "two"]}, "node-1")


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
def test_log_queries_select_lines(query: str, status: int, body: str) -> None:
    reply = reply_to(f"GET /containerLogs/ten-a-web/shop/app{query}")
    assert (reply.status, reply.body.decode()) == (status, body)


@pytest.mark.parametrize(
    ("line", "headers", "status", "body"),
    [
        ("GET /containerLogs/ten-a-web/none/app", (), 404, 'pod "none" does not exist'),
        ("GET /containerLogs/ten-a-web/shop/none", (), 404, 'container "none" not found in pod "shop"'),
        ("POST /containerLogs/ten-a-web/shop/app", (), 405, "405: Method Not Allowed"),
        ("POST /exec/ten-a-web/none/app?output=1", SPDY, 404, "pod does not exist"),
        ("POST /exec/ten-a-web/shop/setup?output=1", SPDY, 500, 'container not found ("setup")'),
        ("POST /portForward/ten-a-web/shop/other", SPDY, 404, "pod not found"),
        ("GET /nothing", (), 404, "404 page not found\n"),
    ],
)
def test_invalid_requests_have_their_status(
    line: str, headers: tuple[str, ...], status: int, body: str
) -> None:
    reply = reply_to(line, *headers)
    assert (reply.status, reply.body.decode()) == (status, body)


def test_follow_starts_after_the_logged_lines() -> None:
    assert reply_to("GET /containerLogs/ten-a-web/shop/app?follow=true").follows == KEY


def test_exec_switches_protocols_and_greets() -> None:
    reply = reply_to("POST /exec/ten-a-web/shop/app?command=ls&command=-l&output=1", *SPDY)
    assert (reply.status, reply.tunnel) == (101, Tunnel.ECHO)
    assert reply.first_bytes == b"exec ten-a-web/shop/app marker-s-1 ls -l\n"


def test_unauthorized_verbs_are_forbidden() -> None:
    found = reply_to("GET /logs/", peer="system:vn-agent:n")
    assert found.status == 403
    expected = b"Forbidden (user=system:vn-agent:n, verb=get, resource=nodes, subresource(s)=[log])\n"
    assert found.body == expected


def test_the_log_of_an_ended_container_ends() -> None:
    reply = reply_to("GET /containerLogs/ten-a-web/ended/app?follow=true")
    assert (reply.status, reply.body, reply.follows) == (200, b"", None)
