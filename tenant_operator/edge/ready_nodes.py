# SPDX-License-Identifier: Apache-2.0
"""The nodes of the super cluster that are ready, read once for all tenants that ask within a minute."""

import asyncio
from collections.abc import Callable

import msgspec

from daemonkit.kube.client import ApiClient
from daemonkit.kube.resources import ListMeta, ObjectMeta

FRESH_S = 60.0
# With more nodes, the first of them by name are asked.
MAX_PAGES = 5
_PAGE = 100
_MAX_PAGE_BYTES = 16 << 20


class _StatusAddress(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class _NodeCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _ListedStatus(msgspec.Struct, frozen=True):
    addresses: list[_StatusAddress] = []
    conditions: list[_NodeCondition] = []


class _ListedNode(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: _ListedStatus = _ListedStatus()


class _NodePage(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[_ListedNode] = []


class ReadyNodes:
    """`monotonic` is in seconds."""

    def __init__(self, client: ApiClient, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._known: dict[str, str] = {}
        self._read_at = 0.0

    async def addresses(self) -> dict[str, str]:
        """The internal address of each, by name. Raises ApiError, UnreachableError."""
        async with self._lock:
            if not self._known or self._monotonic() - self._read_at >= FRESH_S:
                self._known = await self._read()
                self._read_at = self._monotonic()
            return self._known

    def forget(self) -> None:
        """One did not answer: it may be gone, and is looked for anew."""
        self._known = {}

    async def _read(self) -> dict[str, str]:
        found: dict[str, str] = {}
        token = ""
        for _ in range(MAX_PAGES):
            params = {"limit": str(_PAGE)} | ({"continue": token} if token else {})
            body = await self._client.request("GET", "/api/v1/nodes", params, limit_bytes=_MAX_PAGE_BYTES)
            page = msgspec.json.decode(body, type=_NodePage)
            found |= {
                each.metadata.name: address
                for each in page.items
                if _is_ready(each) and (address := _address(each))
            }
            token = page.metadata.continue_
            if not token:
                break
        return found


def _is_ready(node: _ListedNode) -> bool:
    return any((each.type, each.status) == ("Ready", "True") for each in node.status.conditions)


def _address(node: _ListedNode) -> str:
    return next((each.address for each in node.status.addresses if each.type == "InternalIP"), "")
