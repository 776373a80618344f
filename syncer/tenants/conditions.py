# SPDX-License-Identifier: Apache-2.0
"""Writes on a VirtualCluster why its tenant cannot be synced."""

import datetime as dt
from collections.abc import Callable

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.resources import VIRTUAL_CLUSTERS
from syncer.requests import MERGE_PATCH
from syncer.tenants.port import Unusable
from syncer.tenants.virtual_cluster import VirtualCluster, with_condition

_DECODER = msgspec.json.Decoder(VirtualCluster)
_log = logs.get(__name__)


async def write_condition(client: Requester, problem: Unusable, wall: Callable[[], float]) -> None:
    """Add the problem to the conditions, best effort: the log and `/status` have it too.

    Upstream's definition has no status endpoint: there the whole object is patched.
    """
    if problem.virtual_cluster is None:
        return
    path = VIRTUAL_CLUSTERS.path(*problem.virtual_cluster)
    at = dt.datetime.fromtimestamp(wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        found = _DECODER.decode(await client.request("GET", path, {}))
        conditions = with_condition(found.status.conditions, problem, at)
        body = msgspec.json.encode(
            {
                "metadata": {"resourceVersion": found.metadata.resource_version},
                "status": {"conditions": conditions},
            }
        )
        try:
            await client.request("PATCH", f"{path}/status", {}, body, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status.code != 404:
                raise
            await client.request("PATCH", path, {}, body, content_type=MERGE_PATCH)
    except (ApiError, UnreachableError, msgspec.DecodeError) as error:
        _log.warning(
            "a VirtualCluster's condition cannot be written",
            virtual_cluster="/".join(problem.virtual_cluster),
            reason=error,
        )
