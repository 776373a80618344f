# SPDX-License-Identifier: Apache-2.0
"""A shop of tenant ten-a and a bank of ten-b on one node: requests for them, and whether they are served."""

import contextlib
from collections.abc import Iterator

from tests.cases.client import CaseClient
from tests.cases.replies import ReceivedReply
from tests.functional.vnagent.node import SPDY, AgentNode, head, received, tenant_pod

SHOP = tenant_pod("ten-a", "web", "shop")
BANK = tenant_pod("ten-b", "web", "bank")
FOLLOW = "GET /containerLogs/web/shop/app?follow=true"
EXEC = "POST /exec/web/shop/app?command=cat&output=1"
# Revoked rights end on live connections within this time.
CUT_WITHIN_S = 5.0


@contextlib.contextmanager
def many(
    node: AgentNode, key: str, line: str, marker: str, *headers: str, count: int
) -> Iterator[list[CaseClient]]:
    """So many streams of one kind, each with its first bytes received."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(node.client(key))
            client.send(head(line, *headers))
            clients.append(client)
        for client in clients:
            assert received(client, marker.encode()), client.received
        yield clients


def has_saved(node: AgentNode) -> bool:
    """Whether all that a restart could serve from is on disk."""
    return all((node.directory / "state" / name).exists() for name in ("tenants.json", "pods.json"))


def serves(node: AgentNode) -> bool:
    """A log and a stream, each on a new connection."""
    reply = node.logs("ten-a", "web", "shop")
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY))
        return reply is not None and reply.status == 200 and received(client, SHOP.marker.encode(), 2.0)


def echoes(client: CaseClient, data: bytes) -> bool:
    """Whether a stream still goes both ways."""
    client.send(data)
    return received(client, data)


def status_of(reply: ReceivedReply | None) -> int | None:
    """None without a reply."""
    return None if reply is None else reply.status
