# SPDX-License-Identifier: Apache-2.0
"""The kubelet's replies of `tests/k8s/samples/replies.yaml`, which explains each field."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPLIES = Path(__file__).resolve().parent.parent / "samples" / "replies.yaml"

# RFC 6455, 1.3: the example key, whose answer is known.
_WEBSOCKET_HEADERS = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)
_SPDY_HEADERS = (("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"))


@dataclass(frozen=True, slots=True)
class Fact:
    """One request and what must be true of its reply."""

    name: str
    method: str
    path: str
    send: tuple[tuple[str, str], ...]
    status: int
    headers: tuple[tuple[str, list[str]], ...]
    no_headers: tuple[str, ...]
    body: str | None
    body_starts: str | None

    def head(self) -> bytes:
        """The request as it goes on the wire."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: node"]
        lines += [f"{name}: {value}" for name, value in self.send]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def load_facts(namespace: str) -> list[Fact]:
    """Every fact, about pods in the super namespace `namespace`."""
    entries = yaml.safe_load(REPLIES.read_text())["replies"]
    return [_fact(entry, namespace) for entry in entries]


def _fact(entry: dict[str, Any], namespace: str) -> Fact:
    def fill(text: str | None) -> str | None:
        return None if text is None else text.replace("{ns}", namespace)

    send = list(entry.get("send", {}).items())
    protocols = entry.get("protocols", [])
    if entry.get("upgrade") == "spdy":
        send += _SPDY_HEADERS
        send += [("X-Stream-Protocol-Version", p) for p in protocols]
    elif entry.get("upgrade") == "websocket":
        send += _WEBSOCKET_HEADERS
        send += [("Sec-WebSocket-Protocol", ", ".join(protocols))]
    headers = tuple(
        (name, value if isinstance(value, list) else [value])
        for name, value in entry.get("headers", {}).items()
    )
    path = fill(entry["path"])
    assert path is not None
    return Fact(
        entry["name"],
        entry["method"],
        path,
        tuple(send),
        entry["status"],
        headers,
        tuple(entry.get("no_headers", [])),
        fill(entry.get("body")),
        fill(entry.get("body_starts")),
    )
