# SPDX-License-Identifier: Apache-2.0
"""The `View` of one plan: one tenant's objects on both sides, and a note of what was looked up."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from daemonkit.kube.store import DecodeFailed
from syncer.caches.super_change import API_SERVER, CLUSTER_NETWORKS, DRAIN, NODE, POD_ADDRESS
from syncer.caches.super_cluster import SuperCaches
from syncer.core.objects import Object
from syncer.core.plan import Side, Wait
from syncer.core.unknown import Unknown
from syncer.core.view import PodFacts, SyncSettings
from syncer.kinds import unknown_policy
from syncer.kinds.port import KindSync
from syncer.policy.addresses import CountedNetworks
from syncer.policy.sync_policy import PolicyUnusable, SyncPolicy
from syncer.tenant.api_server import TenantApiServer
from syncer.tenant.caches import TenantCaches
from syncer.tenant.deletions import SyncKey
from syncer.tenant.owned_namespaces import NAMESPACE, HasTenant, OwnedNamespaces
from syncer.tenant.waits import ANY, Lookup
from syncer.vnodes.desired import VNodeFacts
from tenancy.super_namespaces import SuperNamespaceOwner

# Of the ConfigMaps and Secrets whose keys one plan looks at: a byte that is passed takes 0.5 ns, and a key
# 150. No process can be given variables of more than 6 MiB (execve(2): three quarters of 8).
MAX_KEYS_WEIGHT = 12 << 20
KEY_WEIGHT = 128
TOO_MANY_KEYS = (
    "the ConfigMaps and Secrets in `envFrom` of the pod's containers have more together than is looked at "
    f"for one pod: {MAX_KEYS_WEIGHT >> 20} MiB, where each key counts as {KEY_WEIGHT} bytes more; "
    "refer to less"
)


class TenantObjects(HasTenant, Protocol):
    """The part of a `TenantSession` that a view reads."""

    @property
    def last_policy(self) -> SyncPolicy: ...
    @property
    def last_known_policy(self) -> SyncPolicy | PolicyUnusable: ...
    @property
    def settings(self) -> SyncSettings: ...
    @property
    def caches(self) -> TenantCaches: ...
    @property
    def namespaces(self) -> OwnedNamespaces: ...
    @property
    def api_server(self) -> TenantApiServer: ...


class TenantView:
    """The `View` of one plan, which notes what was looked up.

    What is in a super namespace is the tenant's as long as that is: who looks into it looks at it.
    """

    def __init__(
        self, session: TenantObjects, super_cluster: SuperCaches, kinds: Mapping[str, KindSync]
    ) -> None:
        self._session = session
        self.tenant, self.settings = session.tenant, session.settings
        self.policy = session.last_policy
        """The policy; without one the last, for objects that are in the super cluster already."""
        self._super = super_cluster
        self._kinds = kinds
        self.looked: set[Lookup] = set()
        self._keys_weight = 0
        self.unknown: set[Unknown] = set()
        """What was looked up, is there and cannot be read."""

    @property
    def policy_wait(self) -> Wait | None:
        problem = self._session.last_known_policy
        return None if isinstance(problem, SyncPolicy) else unknown_policy.wait_for(problem)

    def in_tenant(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        self.looked.add((Side.TENANT, kind, namespace, name))
        if kind not in self._kinds:
            return None
        return self._loaded(Side.TENANT, (kind, namespace, name))

    def tenant_uid(self, kind: str, namespace: str, name: str) -> str | Unknown | None:
        self.looked.add((Side.TENANT, kind, namespace, name))
        item = (kind, namespace, name)
        found = self._session.caches.of_tenant(item)
        return self._missing(Side.TENANT, item) if found is None else found.metadata.uid

    def tenant_keys(self, kind: str, namespace: str, name: str) -> Collection[str] | Unknown | None:
        self.looked.add((Side.TENANT, kind, namespace, name))
        item = (kind, namespace, name)
        found = self._session.caches.of_tenant(item)
        if found is None:
            return self._missing(Side.TENANT, item)
        if self._keys_weight > MAX_KEYS_WEIGHT:
            return self._note(Unknown(Side.TENANT, *item, TOO_MANY_KEYS))
        keys = found.data_keys()
        self._keys_weight += found.json_bytes + KEY_WEIGHT * len(keys)
        return keys

    def in_super(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        self.looked.add((Side.SUPER, kind, namespace, name))
        self._note_owner(namespace)
        if kind not in self._kinds:
            return None
        return self._loaded(Side.SUPER, (kind, namespace, name))

    def _loaded(self, side: Side, item: SyncKey) -> Object | Unknown | None:
        caches = self._session.caches
        found = caches.of_tenant(item) if side is Side.TENANT else caches.of_super(item)
        return self._missing(side, item) if found is None else found.load()

    def _missing(self, side: Side, item: SyncKey) -> Unknown | None:
        """What stands for an object that no cache has: None if it is known that there is none."""
        unreadable = self._session.caches.unreadable(item)
        # Of the super object also where the tenant's is not known: it follows that.
        if unreadable is not None and side in (unreadable[0], Side.SUPER):
            return self._note(Unknown(unreadable[0], *item, unreadable[1].reason))
        return None

    def _note(self, unknown: Unknown) -> Unknown:
        self.unknown.add(unknown)
        return unknown

    def super_pod(self, namespace: str, name: str) -> PodFacts | None:
        self.looked.add((Side.SUPER, "Pod", namespace, name))
        self._note_owner(namespace)
        found = self._session.caches.of_super(("Pod", namespace, name))
        if found is None:
            return None
        own = found.metadata
        return PodFacts(own.namespace, own.uid, found.node, found.addresses)

    def super_services(self, namespace: str) -> Iterable[Object]:
        self.looked.add((Side.SUPER, "Service", namespace, ANY))
        self._note_owner(namespace)
        name = self._session.namespaces.owned(namespace)
        return () if name is None else self._super.services.of(name)

    def pod_addresses(self, namespace: str) -> Collection[str]:
        self.looked.add((Side.SUPER, "Pod", namespace, ANY))
        self._note_owner(namespace)
        name = self._session.namespaces.owned(namespace)
        return () if name is None else self._super.addresses.of_pods(name)

    def api_server_addresses(self) -> Collection[str]:
        self.looked.add((Side.SUPER, API_SERVER, "", ""))
        return {
            *self._session.api_server.peers(),
            *self._super.addresses.of_control_plane(self._session.tenant.key),
        }

    def cluster_networks(self) -> CountedNetworks:
        self.looked.add((Side.SUPER, CLUSTER_NETWORKS, "", ""))
        return self._super.addresses.cluster_networks

    def others_hold(self, address: str) -> bool:
        self.looked.add((Side.SUPER, POD_ADDRESS, "", address))
        key, addresses = self._session.tenant.key, self._super.addresses
        addresses.follow(key, address)
        return addresses.is_held_by_others(address, key)

    def drain_seconds(self, namespace: str) -> float:
        self.looked.add((Side.SUPER, DRAIN, namespace, ""))
        self._note_owner(namespace)
        name = self._session.namespaces.owned(namespace)
        return 0.0 if name is None else self._super.drain_seconds(name)

    def tenant_text(self, text: str, own: Collection[str] = ()) -> str:
        return self._super.owners.names.replaced(text, self._session.tenant.key, own)

    def tenant_namespace(self, super_namespace: str) -> str | None:
        # One that becomes the tenant's brings the plans of the volumes that claims in it have.
        owner = self._session.namespaces.owner(super_namespace)
        return None if owner is None else owner.namespace

    def is_reserved_name(self, super_namespace: str) -> bool:
        # Nothing notes this: what is refused so is looked at by each patrol.
        return self._session.namespaces.is_reserved_name(super_namespace)

    def vnode_labels(self, name: str) -> Mapping[str, str] | Unknown | None:
        found = self._vnode(name)
        if isinstance(found, Unknown):
            return self._note(found)
        return None if found is None else found.labels

    def vnode_addresses(self, name: str) -> tuple[str, ...] | Unknown | None:
        # Not noted: what goes down is not made of it.
        found = self._vnode(name)
        return found.addresses if isinstance(found, VNodeFacts) else found

    def _vnode(self, name: str) -> VNodeFacts | Unknown | None:
        self.looked.add((Side.TENANT, NODE, "", name))
        found = self._session.caches.vnode(name)
        if isinstance(found, DecodeFailed):
            return Unknown(Side.TENANT, NODE, "", name, found.reason)
        return found

    def super_namespace(self, namespace: str) -> str | Unknown | None:
        self._note_owner(namespace)
        self.looked.add((Side.TENANT, NAMESPACE, "", namespace))
        name = self._session.namespaces.owned(namespace)
        if name is None:
            return None
        owner = self._super.owners.by_namespace.get(name)
        own = self._session.caches.of_tenant((NAMESPACE, "", namespace))
        if own is None:
            return self._missing(Side.TENANT, (NAMESPACE, "", namespace))
        is_current = isinstance(owner, SuperNamespaceOwner) and own.metadata.uid == owner.uid
        return name if is_current else None

    def _note_owner(self, namespace: str) -> None:
        if namespace:
            self.looked.add((Side.SUPER, NAMESPACE, "", namespace))
