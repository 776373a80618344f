# SPDX-License-Identifier: Apache-2.0
"""Deletes Endpoints and EndpointSlices of tenants without plans, if they lead to what is not theirs.

Plans keep them true. Without them the tenant's pods end, and their addresses become others'.
"""

import asyncio
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from daemonkit.kube.resources import ENDPOINT_SLICES, Resource
from syncer.caches.super_cluster import SuperCaches
from syncer.core.objects import Object, annotations_of
from syncer.kinds import endpoint_slice, endpoints
from syncer.policy import addresses
from syncer.policy.addresses import CountedNetworks
from syncer.policy.endpoints import is_of_api_server, refusals
from syncer.policy.sync_policy import PolicyUnusable, SyncPolicy
from syncer.work.detached import DetachedTenants, is_of
from tenancy import keys

# Objects that are looked at in one step.
_BATCH = 64
_KINDS: Mapping[str, Resource] = {
    endpoints.KIND.kind: endpoints.KIND.resource,
    endpoint_slice.KIND.kind: ENDPOINT_SLICES,
}
_WHY = "it led to what is not the tenant's"


def has_foreign_address(
    value: Object,
    policy: SyncPolicy | PolicyUnusable,
    own: Collection[str],
    pods: Callable[[str], Collection[str] | None],
    is_held_by_others: Callable[[str], bool],
    cluster: CountedNetworks,
) -> bool:
    """Whether Endpoints or a slice lead to what may not be their tenant's.

    `own` are the addresses of the tenant's pods there, `pods` gives those of one, None if it is gone;
    `is_held_by_others` says of an address in canonical form whether another tenant's pod has it now;
    `cluster` is what the super cluster has itself. With a policy it is what a plan refuses. Without one it is
    not known what an earlier policy opened: then it is an address that no policy can open, another tenant's
    pod, and a pod of the tenant's own that is gone.
    """
    if isinstance(policy, SyncPolicy):
        found = refusals(value, policy, own, (), lambda: cluster, is_held_by_others)
        # Where the tenant's API server is, which may be a pod or a node, is known with a session alone.
        if not (found and is_of_api_server(value)):
            return bool(found)
    return any(_is_foreign(*entry, own, pods, is_held_by_others) for entry in _entries(value))


def _is_foreign(
    address: str,
    pod: str | None,
    own: Collection[str],
    pods: Callable[[str], Collection[str] | None],
    is_held_by_others: Callable[[str], bool],
) -> bool:
    parsed = addresses.parse(address)
    if _text(address) in own:
        return False
    if parsed is not None and addresses.is_never_allowed(parsed):
        return True
    # A pod in its node's network has no address of its own: the policy may have opened the node's.
    is_of_ended_pod = pod is not None and pods(pod) != ()
    # An IPv6 address may carry another one, and a pod has it as its node writes it.
    forms = {_text(address), str(addresses.written(address) or address)}
    return is_of_ended_pod or any(map(is_held_by_others, forms))


def _text(address: str) -> str:
    """One address has many texts, and those of pods are in the canonical form."""
    parsed = addresses.parse(address)
    return address if parsed is None else str(parsed)


class EndpointCheck:
    """Of Endpoints and EndpointSlices that can be read."""

    def __init__(self, super_cluster: SuperCaches, detached: DetachedTenants) -> None:
        self._super = super_cluster
        self._detached = detached

    async def patrol(self) -> None:
        """Look once."""
        policy_of = self._detached.policies()
        for kind, resource in _KINDS.items():
            for count, (where, cached) in enumerate(list(self._super.objects(kind).items()), 1):
                if count % _BATCH == 0:
                    await asyncio.sleep(0)
                owner = self._detached.owner(where[0])
                if owner is None:
                    continue
                await asyncio.sleep(0)  # one of a thousand endpoints takes milliseconds
                value = cached.load()
                if not is_of(value, owner):
                    continue
                meta = {"namespace": annotations_of(value).get(keys.NAMESPACE), "name": where[1]}
                if has_foreign_address(
                    {**value, "metadata": meta},
                    policy_of(owner),
                    self._super.addresses.of_pods(where[0]),
                    functools.partial(self._addresses_of, where[0]),
                    functools.partial(self._super.addresses.is_held_by_others, key=owner.key),
                    self._super.addresses.cluster_networks,
                ):
                    await self._detached.delete(owner.key, resource, where, cached, _WHY)

    def _addresses_of(self, super_namespace: str, name: str) -> Collection[str] | None:
        found = self._super.objects("Pod").get((super_namespace, name))
        return None if found is None else found.addresses


def _entries(value: Object) -> Iterator[tuple[str, str | None]]:
    """Each address, and the pod that it names, if it names one."""
    for each in value.get("endpoints") or ():
        for address in each.get("addresses") or ():
            yield str(address), _pod_of(each)
    for subset in value.get("subsets") or ():
        for field in ("addresses", "notReadyAddresses"):
            for each in subset.get(field) or ():
                yield str(each.get("ip")), _pod_of(each)


def _pod_of(entry: Mapping[str, Any]) -> str | None:
    target = entry.get("targetRef")
    if not isinstance(target, dict) or target.get("kind") != "Pod":
        return None
    return str(target.get("name", ""))
