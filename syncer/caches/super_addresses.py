# SPDX-License-Identifier: Apache-2.0
"""The addresses of the super cluster's pods, of control planes in it, of its nodes and API server."""

from collections.abc import Callable, Collection, Iterable

from daemonkit.kube.resources import Key
from daemonkit.kube.store import Added, Change, Deleted, Modified
from syncer.caches.cached_object import CachedObject
from syncer.caches.node_networks import node_networks
from syncer.caches.pod_addresses import AddressListeners, PodAddresses
from syncer.caches.super_change import CLUSTER_NETWORKS, POD_ADDRESS, SuperChange
from syncer.caches.super_owners import SuperOwners
from syncer.core.objects import Object
from syncer.policy import addresses
from syncer.policy.addresses import CountedNetworks
from syncer.policy.sync_policy import Network

# Not a node's name.
_API_SERVER = ""


class SuperAddresses:
    """Kept with each change of such an object; `on_change` hears of what may be another tenant's concern.

    `services_of` and `endpoints_of` give the objects of a namespace.
    """

    def __init__(
        self,
        owners: SuperOwners,
        services_of: Callable[[str], Iterable[Object]],
        endpoints_of: Callable[[str], Iterable[Object]],
        on_change: Callable[[SuperChange], None],
    ) -> None:
        self._owners = owners
        self._services_of = services_of
        self._endpoints_of = endpoints_of
        self._on_change = on_change
        self._pods = PodAddresses()
        # Tenants, by their keys, with plans that hang on addresses of others' pods: most have none.
        self._listeners = AddressListeners()
        # Of namespaces in which control planes run; what has changed there is read again.
        self._control_planes: dict[str, frozenset[str]] = {}
        self._networks_of: dict[str, tuple[Network, ...]] = {}
        self.cluster_networks = CountedNetworks()
        """Addresses and networks of pods of the super cluster's nodes, and addresses of its API server."""

    # ---- pods

    def of_pods(self, super_namespace: str) -> Collection[str]:
        """The addresses that the pods of a super namespace hold. Read only: they are shared."""
        return self._pods.of(super_namespace)

    def is_held_by_others(self, address: str, key: str) -> bool:
        """Whether a pod of another tenant than that of this cluster key has an address in canonical form."""
        holders = map(self._owners.key_or_last, self._pods.holders(address))
        return any(each is not None and each != key for each in holders)

    def follow(self, key: str, address: str) -> None:
        """The tenant of a cluster key hears of pods of others that have this address, from now on."""
        self._listeners.follow(key, address)

    def pod_changed(
        self,
        change: Added[CachedObject] | Modified[CachedObject] | Deleted[CachedObject],
        *,
        is_unreadable: bool,
    ) -> None:
        """A pod came, changed or went. `is_unreadable`: it is there, and what it is now is not known."""
        if isinstance(change, Modified) and change.old.addresses == change.value.addresses:
            return
        if moved := self._pods.changed(change, is_unreadable=is_unreadable):
            self.report(change.key[0], moved)

    def unreadable_pod_deleted(self, key: Key) -> None:
        """A pod went that could not be read."""
        if moved := self._pods.unreadable_deleted(key):
            self.report(key[0], moved)

    def report(self, super_namespace: str, moved: Collection[str]) -> None:
        """Report to others who listen that pods of a super namespace gained or lost these addresses."""
        for address in moved:
            # Most have none: whose the pods are is asked after that.
            for key in self._listeners.of(address):
                own = self._owners.key_or_last(super_namespace)
                if own is not None and own != key:
                    self._on_change(SuperChange(POD_ADDRESS, key, "", address))

    # ---- control planes of tenants

    def of_control_plane(self, root_namespace: str) -> frozenset[str]:
        """The addresses of Services and Endpoints of the namespace that a tenant's control plane runs in.

        None if that is a super namespace, in which tenants write.
        """
        if root_namespace in self._owners.by_namespace:
            return frozenset()
        known = self._control_planes.get(root_namespace)
        if known is None:
            known = self._control_planes[root_namespace] = self._read(root_namespace)
        return known

    def _read(self, root_namespace: str) -> frozenset[str]:
        found: set[object] = set()
        for service in self._services_of(root_namespace):
            spec = service.get("spec") or {}
            found.update((*(spec.get("clusterIPs") or ()), spec.get("clusterIP")))
        for endpoints in self._endpoints_of(root_namespace):
            for subset in endpoints.get("subsets") or ():
                found.update(each.get("ip") for each in subset.get("addresses") or ())
        return frozenset(str(each) for each in found if each and each != "None")

    def control_planes_changed(self, changes: Iterable[Change[CachedObject]]) -> None:
        """Services or Endpoints changed: of their namespaces they are read again."""
        for each in changes:
            self._control_planes.pop(each.key[0], None)

    # ---- the super cluster itself

    def note_api_server(self, found: Iterable[str]) -> None:
        """Take the addresses at which the super cluster's API server is."""
        if self._note_networks(_API_SERVER, sorted(found)):
            self._on_change(SuperChange(CLUSTER_NETWORKS, None, "", ""))

    def node_changed(self, name: str, node: CachedObject | None) -> bool:
        """A Node changed, or is gone. Returns whether the networks of the cluster are others now."""
        return self._note_networks(name, () if node is None else node_networks(node))

    def _note_networks(self, node: str, texts: Iterable[str]) -> bool:
        before, after = self._networks_of.pop(node, ()), addresses.networks(texts)
        if after:
            self._networks_of[node] = after
        return before != after and self.cluster_networks.change(before, after)
