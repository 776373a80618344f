# SPDX-License-Identifier: Apache-2.0
"""Clients of the bench's own: for its loader, its fake node and its observers."""

from pathlib import Path
from typing import Any

import msgspec

from daemonkit.kube.client import Client
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.kubeconfig import load

USER_AGENT = "bench-syncer"
MERGE_PATCH = "application/merge-patch+json"
# Requests under way at once, each on a kept connection.
MAX_IDLE = 32

Object = dict[str, Any]


def client_of(kubeconfig: Path) -> Client:
    """A client that keeps its connections, and sends writes on them."""
    return Client(
        Credentials(lambda: load(kubeconfig)),
        user_agent=USER_AGENT,
        max_idle=MAX_IDLE,
        repeats_writes=True,
    )


async def create(client: Client, path: str, value: Object) -> Object:
    """Create an object and return it as it was stored."""
    answer = await client.request("POST", path, {}, msgspec.json.encode(value))
    found: Object = msgspec.json.decode(answer)
    return found


async def merge(client: Client, path: str, value: Object) -> None:
    """Send a merge patch."""
    await client.request("PATCH", path, {}, msgspec.json.encode(value), content_type=MERGE_PATCH)


async def remove(client: Client, path: str) -> None:
    """Delete an object at once."""
    await client.request("DELETE", path, {}, msgspec.json.encode({"gracePeriodSeconds": 0}))
