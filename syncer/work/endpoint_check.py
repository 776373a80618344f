# SPDX-License-Identifier: Apache-2.0
"""Deletes Endpoints and EndpointSlices of tenants that nobody plans for, if they lead to what is not theirs.

Plans keep them true, but a tenant whose API server was away when the syncer started has none, nor has one
that does not run. Its pods end meanwhile, and their addresses become others'. What is deleted comes again
with the tenant, if it may.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import ENDPOINT_SLICES, Key, Resource
from syncer.caches.cached_object import CachedObject
from syncer.caches.super_cluster import SuperCaches
from syncer.core.objects import Object, annotations_of
from syncer.kinds import endpoint_slice, endpoints
from syncer.policy import addresses
from syncer.policy.addresses import CountedNetworks
from syncer.policy.endpoints import is_of_api_server
from syncer.sharding.fenced_client import CheckedRequester, FencedClient
from syncer.sharding.port import TenantOwnership
from tenancy import keys
from tenancy.super_namespaces import SuperNamespaceOwner

# Objects that are looked at in one step.
_BATCH = 64
_KINDS: Mapping[str, Resource] = {
    endpoints.KIND.kind: endpoints.KIND.resource,
    endpoint_slice.KIND.kind: ENDPOINT_SLICES,
}

_log = logs.get(__name__)


def has_foreign_address(
    value: Object, own: Collection[str], key: str, holders: Mapping[str, str], cluster: CountedNetworks
) -> bool:
    """Whether Endpoints or a slice lead to what is not their tenant's, whose cluster key is `key`.

    `own` are the addresses of the tenant's pods there, `holders` the keys of those that hold an address now,
    `cluster` is what the super cluster has itself. An entry that names a pod has an own address; another one
    may lead out of the cluster, but neither to a pod of another tenant nor to one of nobody's.
    """
    # Where the tenant's API server is, which may be a pod or a node, is known with a session alone.
    networks = CountedNetworks() if is_of_api_server(value) else cluster
    return any(_is_foreign(*entry, own, key, holders, networks) for entry in _entries(value))


def _is_foreign(
    address: str,
    is_of_pod: bool,
    own: Collection[str],
    key: str,
    holders: Mapping[str, str],
    networks: CountedNetworks,
) -> bool:
    # One address has many texts, and those of pods are in the canonical form.
    parsed = addresses.parse(address)
    text = address if parsed is None else str(parsed)
    if text in own:
        return False
    is_of_cluster = parsed is not None and networks.longest_prefix(parsed) is not None
    return is_of_pod or holders.get(text, key) != key or is_of_cluster


class EndpointCheck:
    """`keys` are those of all tenants; `is_attached` says of a key whether plans are made for it."""

    def __init__(
        self,
        client: CheckedRequester,
        super_cluster: SuperCaches,
        ownership: TenantOwnership,
        tenant_keys: Callable[[], Collection[str]],
        is_attached: Callable[[str], bool],
        *,
        interval_s: float,
    ) -> None:
        self._client = client
        self._super = super_cluster
        self._ownership = ownership
        self._keys = tenant_keys
        self._is_attached = is_attached
        self._interval_s = interval_s

    async def run(self) -> None:
        """Look at an interval, until cancelled."""
        await self._super.wait_synced()
        while True:
            await asyncio.sleep(self._interval_s)
            await self.patrol()

    async def patrol(self) -> None:
        """Look once."""
        holders: dict[str, str] = {}
        has_looked = False
        for kind, resource in _KINDS.items():
            for count, (where, cached) in enumerate(list(self._super.objects(kind).items()), 1):
                if count % _BATCH == 0:
                    await asyncio.sleep(0)
                key = self._owner_to_check(where[0])
                if key is None:
                    continue
                if not has_looked:
                    holders, has_looked = await self._pod_addresses(), True
                await asyncio.sleep(0)  # one of a thousand endpoints takes milliseconds
                value = cached.load()
                if annotations_of(value).get(keys.CLUSTER) != key or not annotations_of(value).get(keys.UID):
                    continue  # of a controller of the super cluster, which keeps it true
                own, cluster = self._super.pod_addresses(where[0]), self._super.cluster_networks
                meta = {"namespace": annotations_of(value).get(keys.NAMESPACE), "name": where[1]}
                if has_foreign_address({**value, "metadata": meta}, own, key, holders, cluster):
                    await self._delete(key, resource, where, cached)

    def _owner_to_check(self, super_namespace: str) -> str | None:
        """The key of the tenant that a super namespace is of, if this process has it and makes no plans."""
        owner = self._super.owner(super_namespace)
        if not isinstance(owner, SuperNamespaceOwner) or self._is_attached(owner.key):
            return None
        is_ours = owner.key in self._keys() and self._ownership.may_write(owner.key)
        return owner.key if is_ours else None

    async def _pod_addresses(self) -> dict[str, str]:
        """Of each address that a tenant's pod holds the tenant's key."""
        found: dict[str, str] = {}
        for count, (where, pod) in enumerate(list(self._super.objects("Pod").items()), 1):
            owner = self._super.owner(where[0]) if pod.addresses else None
            if isinstance(owner, SuperNamespaceOwner):
                found.update(dict.fromkeys(pod.addresses, owner.key))
            if count % (16 * _BATCH) == 0:
                await asyncio.sleep(0)
        return found

    async def _delete(self, key: str, resource: Resource, where: Key, cached: CachedObject) -> None:
        meta = cached.metadata
        conditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        client = FencedClient(self._client, self._ownership, key)
        try:
            await client.request("DELETE", resource.path(*where), {}, msgspec.json.encode(options))
        except (ApiError, UnreachableError) as error:
            _log.warning(
                "foreign endpoints are not deleted yet", tenant=key, object="/".join(where), reason=error
            )
            return
        _log.warning(
            "endpoints deleted: they led to what is not the tenant's, and no plans are made for it",
            tenant=key,
            resource=str(resource),
            object="/".join(where),
        )


def _entries(value: Object) -> Iterator[tuple[str, bool]]:
    """Each address, and whether it names a pod."""
    for each in value.get("endpoints") or ():
        for address in each.get("addresses") or ():
            yield str(address), _is_of_pod(each)
    for subset in value.get("subsets") or ():
        for field in ("addresses", "notReadyAddresses"):
            for each in subset.get(field) or ():
                yield str(each.get("ip")), _is_of_pod(each)


def _is_of_pod(entry: Mapping[str, Any]) -> bool:
    target = entry.get("targetRef")
    return isinstance(target, dict) and target.get("kind") == "Pod"
