# SPDX-License-Identifier: Apache-2.0
"""Deletes the super namespaces of VirtualClusters that are gone.

`syncer.core.orphans` decides. The VirtualCluster is read once more before each deletion, which names the
namespace's UID and version: one that was given to another tenant meanwhile stays. Pods that would run on for
long end first: the namespace controller leaves them the grace period that the tenant has chosen.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Iterable

import msgspec

from daemonkit import logs
from daemonkit.fairness.steps import WorkStep, in_steps
from daemonkit.kube import deep_json
from daemonkit.kube.client import ApiError, CheckedRequester, Requester, UnreachableError
from daemonkit.kube.resources import NAMESPACES, PODS, VIRTUAL_CLUSTERS
from syncer.caches.super_cluster import SuperCaches
from syncer.core.objects import Object, is_deleting, metadata
from syncer.core.orphans import (
    ClusterRef,
    KnownClusters,
    Orphans,
    OwnedNamespace,
    evaluate,
    is_gone,
    owned_namespace,
)
from syncer.kinds.pod.sync import ORPHAN_GRACE_S
from syncer.metrics import SyncerMetrics
from syncer.sharding.fenced_client import FencedClient
from syncer.sharding.port import TenantOwnership
from syncer.sources.virtual_clusters import VirtualClusterSource
from syncer.tenant.owned_namespaces import NAMESPACE
from tenancy import keys

# A deletion that a watch reported is followed within this: the tenant's session ends first.
GATHER_S = 1.0
# Namespaces deleted in one patrol: the namespace controller has to empty each.
MAX_DELETED = 100
# After one that was not deleted: it changed meanwhile, or a server did not answer.
RETRY_S = 2.0
_MAX_SHOWN = 50
_POD = "Pod"
# Pods that are decoded in one step.
_BATCH = 16
# Each that is decoded takes up to 20 us.
_NAMESPACES_AT_ONCE = 200

_NOTHING = Orphans()
_OBJECT = msgspec.json.Decoder(Object)
_log = logs.get(__name__)


class OrphanCollector:
    """Patrols at an interval, and soon after a VirtualCluster's deletion. `meta` reads VirtualClusters."""

    def __init__(
        self,
        meta: Requester,
        client: CheckedRequester,
        source: VirtualClusterSource,
        super_cluster: SuperCaches,
        ownership: TenantOwnership,
        metrics: SyncerMetrics,
        *,
        interval_s: float,
        needs_confirmation: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._meta = meta
        self._client = client
        self._source = source
        self._super = super_cluster
        self._ownership = ownership
        self._metrics = metrics
        self._interval_s = interval_s
        self._needs_confirmation = needs_confirmation
        self._clock = clock
        self._last = Orphans()
        self._has_patrolled = False
        self._state: tuple[int, KnownClusters] | None = None

    async def run(self) -> None:
        """Patrol until cancelled."""
        await self._super.wait_synced()
        while True:
            if self._source.has_synced and not self._source.problem:
                is_done = await self.patrol()
            else:
                is_done = False
            try:
                async with asyncio.timeout(self._interval_s if is_done else min(RETRY_S, self._interval_s)):
                    await self._source.cluster_deleted.wait()
            except TimeoutError:
                continue
            self._source.cluster_deleted.clear()
            await asyncio.sleep(GATHER_S)

    async def patrol(self) -> bool:
        """Judge all super namespaces once, and delete what may be deleted. False if not all of it is."""
        before, is_first_patrol = self._last, not self._has_patrolled
        state = self._super.changes_of(NAMESPACE), self._source.known()
        if state == self._state and before == _NOTHING and not self._source.deleted_uids:
            return True  # nothing was to do, and both sides are as they were
        self._state = state
        namespaces = await in_steps(self._namespaces())
        found = await in_steps(
            evaluate(
                namespaces,
                # Not before the namespaces: each that is there now has been made for one of these.
                self._source.known(),
                self._source.deleted_uids,
                before.distrust,
                self._clock(),
                is_first_patrol=is_first_patrol,
                needs_confirmation=self._needs_confirmation,
            )
        )
        self._last, self._has_patrolled = found, True
        if found.held and found.held != before.held:
            _log.warning(
                "super namespaces of VirtualClusters that are gone are kept; delete them by hand if they are",
                namespaces=", ".join(each.name for each in found.held[:_MAX_SHOWN]),
                count=len(found.held),
                is_distrusted=found.distrust is not None,
            )
        if found.former and found.former != before.former:
            _log.warning(
                "super namespaces of a VirtualCluster are kept, as another one has its name: restore what "
                "you need of them into that one, and delete them by hand",
                namespaces=", ".join(each.name for each in found.former[:_MAX_SHOWN]),
                count=len(found.former),
            )
        gone: dict[ClusterRef, bool] = {}
        own = await in_steps(self._served(found.removable))
        deleted = 0
        for each in own[:MAX_DELETED]:
            if each.cluster not in gone:
                is_confirmed = each.cluster.uid in self._source.deleted_uids
                gone[each.cluster] = await self._is_gone(each.cluster, is_confirmed=is_confirmed)
            if gone[each.cluster] and await self._delete(each):
                deleted += 1
        if confirmed := self._source.deleted_uids:
            # What is reported while it is looked for what is left is not forgotten.
            left = {each.cluster.uid for each in await in_steps(self._namespaces())}
            self._source.forget_deleted(confirmed - left)
        # The first patrol deletes nothing, also of what was reported before it: the next comes soon then.
        return deleted == len(own) and not (is_first_patrol and self._source.deleted_uids)

    def _namespaces(self) -> Generator[None, None, list[OwnedNamespace]]:
        found, step = list[OwnedNamespace](), WorkStep(_NAMESPACES_AT_ONCE)
        for cached in list(self._super.objects(NAMESPACE).values()):
            # Most namespaces of a large super cluster are not decoded.
            is_of_cluster = _VC_UID in cached.body
            if is_of_cluster and (owned := owned_namespace(cached.load())) is not None:
                found.append(owned)
            if step.count(cached.json_bytes if is_of_cluster else 0):
                yield
        return found

    def _served(self, orphans: Iterable[OwnedNamespace]) -> Generator[None, None, list[OwnedNamespace]]:
        """Those that this process has to delete."""
        found, step = list[OwnedNamespace](), WorkStep()
        for each in orphans:
            if self._ownership.holds(each.key):
                found.append(each)
            if step.count():
                yield
        return found

    async def _is_gone(self, cluster: ClusterRef, *, is_confirmed: bool) -> bool:
        try:
            body = await self._meta.request("GET", VIRTUAL_CLUSTERS.path(*cluster.where), {})
            found = deep_json.decode(_OBJECT, body)
            return is_gone(cluster, 200, "", found, is_confirmed=is_confirmed)
        except ApiError as error:
            status = error.status
            return is_gone(cluster, status.code, status.message, None, is_confirmed=is_confirmed)
        except (UnreachableError, msgspec.DecodeError):
            return False

    async def _delete(self, found: OwnedNamespace) -> bool:
        conditions = {"uid": found.uid, "resourceVersion": found.version}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        client = FencedClient(self._client, self._ownership, found.key)
        try:
            await self._end_pods(client, found.name)
            await client.request(
                "DELETE", NAMESPACES.path(None, found.name), {}, msgspec.json.encode(options)
            )
        except (ApiError, UnreachableError) as error:
            _log.warning("an orphaned super namespace is not deleted yet", namespace=found.name, reason=error)
            return False
        self._metrics.orphans.inc()
        _log.info(
            "orphaned super namespace deleted: its VirtualCluster is gone",
            namespace=found.name,
            virtual_cluster=f"{found.cluster.namespace}/{found.cluster.name}",
            uid=found.cluster.uid,
        )
        return True

    async def _end_pods(self, client: FencedClient, super_namespace: str) -> None:
        """Delete the pods whose grace period is longer than that of a pod whose tenant's is gone.

        Raises ApiError, UnreachableError.
        """
        for count, name in enumerate(tuple(self._super.names_in(_POD, super_namespace)), 1):
            cached = self._super.objects(_POD).get((super_namespace, name))
            if cached is not None and (grace_s := _remaining_grace_s(cached.load())) > ORPHAN_GRACE_S:
                options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": ORPHAN_GRACE_S}
                conditions = {"preconditions": {"uid": cached.metadata.uid}}
                path = PODS.path(super_namespace, name)
                try:
                    await client.request("DELETE", path, {}, msgspec.json.encode(options | conditions))
                except ApiError as error:
                    if error.status.code not in (404, 409):
                        raise
                else:
                    _log.info("pod of an orphaned super namespace ends", pod=path, grace_s=grace_s)
            if count % _BATCH == 0:
                await asyncio.sleep(0)

    # ---- reports

    @property
    def held(self) -> int:
        return len(self._last.held)

    def status(self) -> dict[str, object]:
        """For `/status`: the namespaces that wait for a person, or for the next patrol."""
        return {
            "held": [
                {
                    "namespace": each.name,
                    "virtualCluster": f"{each.cluster.namespace}/{each.cluster.name}",
                    "uid": each.cluster.uid,
                }
                for each in self._last.held[:_MAX_SHOWN]
            ],
            "heldCount": self.held,
            "isDistrusted": self._last.distrust is not None,
        }


_VC_UID = keys.VC_UID.encode()


def _remaining_grace_s(pod: Object) -> int:
    """How long a pod may run on once its namespace is deleted, at most."""
    if is_deleting(pod):
        found = metadata(pod).get("deletionGracePeriodSeconds")
    else:
        found = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    return found if isinstance(found, int) else 0
