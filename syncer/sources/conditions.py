# SPDX-License-Identifier: Apache-2.0
"""Writes on VirtualClusters why their tenants cannot be synced, or what waits for a person.

Each condition is written as it is last; one write at a time, and again until it is there.
"""

import asyncio
import datetime as dt
from collections.abc import Callable

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.resources import VIRTUAL_CLUSTERS, Key
from syncer.core.requests import MERGE_PATCH
from syncer.sources.virtual_cluster import VirtualCluster, with_condition

# A condition's message; upstream's are short.
MAX_MESSAGE = 1024
RETRY_S = 5.0

_DECODER = msgspec.json.Decoder(VirtualCluster)
_log = logs.get(__name__)


class ClusterCondition(msgspec.Struct, frozen=True):
    """A condition of a VirtualCluster, by its reason; no secret is in the message."""

    reason: str
    message: str = ""
    is_true: bool = True


class ConditionWriter:
    """`wall` is the time of day in seconds."""

    def __init__(self, client: Requester, wall: Callable[[], float]) -> None:
        self._client = client
        self._wall = wall
        self._pending: dict[Key, dict[str, ClusterCondition]] = {}
        self._has_work = asyncio.Event()

    def set(self, cluster: Key, condition: ClusterCondition) -> None:
        """Have a condition written; of one reason only the last is."""
        self._pending.setdefault(cluster, {})[condition.reason] = condition
        self._has_work.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            is_any_left = False
            for cluster in list(self._pending):
                conditions = self._pending.pop(cluster)
                if not await self._write(cluster, list(conditions.values())):
                    self._pending[cluster] = conditions | self._pending.get(cluster, {})
                    is_any_left = True
            if is_any_left:
                await asyncio.sleep(RETRY_S)
                self._has_work.set()

    async def _write(self, cluster: Key, conditions: list[ClusterCondition]) -> bool:
        """Returns False if it is to be tried again.

        Upstream's definition has no status endpoint: there the whole object is patched.
        """
        path = VIRTUAL_CLUSTERS.path(*cluster)
        try:
            found = _DECODER.decode(await self._client.request("GET", path, {}))
            body = self._patch(found, conditions)
            if body is None:
                return True
            try:
                await self._client.request("PATCH", f"{path}/status", {}, body, content_type=MERGE_PATCH)
            except ApiError as error:
                if error.status.code != 404:
                    raise
                await self._client.request("PATCH", path, {}, body, content_type=MERGE_PATCH)
        except (ApiError, UnreachableError, msgspec.DecodeError) as error:
            if isinstance(error, ApiError) and error.status.code == 404:
                return True  # the VirtualCluster is gone
            _log.warning(
                "a VirtualCluster's condition cannot be written",
                virtual_cluster="/".join(cluster),
                reason=error,
            )
            return isinstance(error, msgspec.DecodeError)
        return True

    def _patch(self, found: VirtualCluster, conditions: list[ClusterCondition]) -> bytes | None:
        """The merge patch that adds these; None if all are there."""
        at = dt.datetime.fromtimestamp(self._wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        result = found.status.conditions
        is_changed = False
        for each in conditions:
            changed = with_condition(
                result, each.reason, each.message[:MAX_MESSAGE], at, is_true=each.is_true
            )
            if changed is not None:
                result, is_changed = changed, True
        if not is_changed:
            return None
        return msgspec.json.encode(
            {
                "metadata": {"resourceVersion": found.metadata.resource_version},
                "status": {"conditions": result},
            }
        )
