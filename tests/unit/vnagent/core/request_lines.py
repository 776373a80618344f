# SPDX-License-Identifier: Apache-2.0
"""Requests written as their lines, and the fields of an upgrade."""

import base64

from vnagent.core.head import RequestHead, parse_request_head
from vnagent.core.requests import Protocol, Request, Upgrade, parse

KEY = base64.b64encode(bytes(16)).decode()
SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    f"Sec-WebSocket-Key: {KEY}",
)
V4 = "v4.channel.k8s.io"
SPDY_V4 = Upgrade(Protocol.SPDY, (V4,), None)


def head(line: str, *lines: str) -> RequestHead:
    return parse_request_head("\r\n".join([f"{line} HTTP/1.1", "Host: node-1", *lines]).encode("latin-1"))


def request(line: str, *lines: str) -> Request:
    return parse(head(line, *lines))
