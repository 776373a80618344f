# SPDX-License-Identifier: Apache-2.0
"""Handshakes of an upgrade: their requests, and every reason to refuse one."""

import base64

import pytest

from tests.unit.vnagent.core.request_lines import KEY, SPDY, SPDY_V4, V4, WEBSOCKET, request
from vnagent.core.requests import Endpoint, Protocol, Refusal, Stream, Upgrade


@pytest.mark.parametrize(
    ("method", "lines", "expected"),
    [
        (
            "POST",
            ("connection: keep-alive, UPGRADE", "Upgrade: spdy/3.1", f"X-Stream-Protocol-Version: {V4}"),
            SPDY_V4,
        ),
        (
            "POST",
            ("Connection: keep-alive", "Connection: upgrade", "Upgrade: SPDY/3.1", SPDY[2]),
            SPDY_V4,
        ),
        ("POST", ("Connection: UPGRADE", *SPDY[1:]), SPDY_V4),
        ("POST", ("Connection: Upgrade,keep-alive", *SPDY[1:]), SPDY_V4),
        ("POST", ("Connection: keep-alive ,\tupgrade", *SPDY[1:]), SPDY_V4),
        (
            # One line for each protocol, in order, as Go's client writes them.
            "POST",
            (
                *SPDY[:2],
                "X-Stream-Protocol-Version: v5.channel.k8s.io",
                "X-Stream-Protocol-Version: v4.channel.k8s.io,v3.channel.k8s.io",
                "X-Stream-Protocol-Version: channel.k8s.io",
            ),
            Upgrade(
                Protocol.SPDY,
                ("v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "channel.k8s.io"),
                None,
            ),
        ),
        (
            # Entries of another shape stay here: the last of them is a bearer token.
            "GET",
            (
                *WEBSOCKET,
                "Sec-WebSocket-Protocol: v5.channel.k8s.io, base64.channel.k8s.io, chat",
                "Sec-WebSocket-Protocol: v4.base64.channel.k8s.io",
                "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io",
                "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0",
            ),
            Upgrade(
                Protocol.WEBSOCKET,
                (
                    "v5.channel.k8s.io",
                    "base64.channel.k8s.io",
                    "v4.base64.channel.k8s.io",
                    "SPDY/3.1+portforward.k8s.io",
                ),
                KEY,
            ),
        ),
        ("POST", (*SPDY[:2], *["X-Stream-Protocol-Version: channel.k8s.io"] * 40), None),
    ],
)
def test_handshakes(method: str, lines: tuple[str, ...], expected: Upgrade | None) -> None:
    found = request(f"{method} /exec/web/shop/app?command=ls", *lines)
    assert isinstance(found, Stream)
    assert found.upgrade == (expected or Upgrade(Protocol.SPDY, ("channel.k8s.io",) * 16, None))


@pytest.mark.parametrize(
    ("method", "lines", "reason"),
    [
        ("POST", (), "not-an-upgrade"),
        ("GET", (), "not-an-upgrade"),
        ("POST", SPDY[1:], "not-an-upgrade"),
        ("POST", (SPDY[0], SPDY[2]), "not-an-upgrade"),
        ("POST", ("Connection: notupgrade", *SPDY[1:]), "not-an-upgrade"),
        ("POST", ("Connection: upgrade-insecure, x", *SPDY[1:]), "not-an-upgrade"),
        ("GET", SPDY, "spdy-needs-post"),
        ("POST", SPDY[:2], "no-stream-protocol"),
        ("POST", (*SPDY[:2], "X-Stream-Protocol-Version: v0.channel.k8s.io"), "no-stream-protocol"),
        ("POST", (*SPDY[:2], "X-Stream-Protocol-Version: v4.channel.k8s.io\xe9"), "no-stream-protocol"),
        ("POST", (SPDY[0], "Upgrade: SPDY/2", SPDY[2]), "unknown-upgrade"),
        ("POST", (SPDY[0], "Upgrade: h2c", SPDY[2]), "unknown-upgrade"),
        ("POST", (SPDY[0], "Upgrade: websocket, SPDY/3.1", SPDY[2]), "unknown-upgrade"),
        ("POST", WEBSOCKET, "malformed-websocket-handshake"),
        ("GET", (*WEBSOCKET[:2], WEBSOCKET[3]), "malformed-websocket-handshake"),
        (
            "GET",
            (*WEBSOCKET[:2], "Sec-WebSocket-Version: 8", WEBSOCKET[3]),
            "malformed-websocket-handshake",
        ),
        ("GET", WEBSOCKET[:3], "malformed-websocket-handshake"),
        ("GET", (*WEBSOCKET[:3], "Sec-WebSocket-Key: short"), "malformed-websocket-handshake"),
        ("GET", (*WEBSOCKET[:3], f"Sec-WebSocket-Key: {KEY}\xe9"), "malformed-websocket-handshake"),
        (
            "GET",
            (*WEBSOCKET[:3], f"Sec-WebSocket-Key: {base64.b64encode(bytes(17)).decode()}"),
            "malformed-websocket-handshake",
        ),
        ("GET", (*WEBSOCKET, "Sec-WebSocket-Protocol: chat"), "no-stream-protocol"),
        (
            "GET",
            (*WEBSOCKET, "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0"),
            "no-stream-protocol",
        ),
    ],
)
def test_refused_handshakes(method: str, lines: tuple[str, ...], reason: str) -> None:
    found = request(f"{method} /exec/web/shop/app?command=ls", *lines)
    assert found == Refusal(Endpoint.EXEC, 400, reason, must_close=True)
