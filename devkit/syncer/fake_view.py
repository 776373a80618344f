# SPDX-License-Identifier: Apache-2.0
"""A View of objects in dictionaries."""

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from syncer.core.objects import Object, name_of, namespace_of, uid_of
from syncer.core.plan import Side, Wait
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.unknown import Unknown
from syncer.core.view import PodFacts, SyncSettings
from syncer.policy.addresses import CountedNetworks
from syncer.policy.sync_policy import DEFAULT, SyncPolicy
from syncer.vnodes.desired import VNodeFacts, vnode_facts
from tenancy.names import is_reserved_name
from tenancy.super_names import SuperNames

TENANT = TenantCluster("vcs-7aad2b-tenant-00", "vcs", "tenant-00", "07ec5e88-636d-4397-8319-8643864ff609")


@dataclass(slots=True)
class FakeView:
    """What is put into `tenant_objects` and `super_objects` is there; namespaces of `unknown` are not.

    What is put into `unreadable` is there too, and cannot be read.

    Super objects are put with their super namespace, as they are.
    """

    tenant: TenantCluster = TENANT
    policy: SyncPolicy = DEFAULT
    policy_wait: Wait | None = None
    settings: SyncSettings = field(default_factory=SyncSettings)
    tenant_objects: list[Object] = field(default_factory=list)
    super_objects: list[Object] = field(default_factory=list)
    unknown: frozenset[str] = frozenset()
    api_server: frozenset[str] = frozenset()
    unreadable: frozenset[Unknown] = frozenset()
    others: tuple[tuple[str, str], ...] = ()
    """Cluster keys and namespaces of other tenants."""
    held: frozenset[str] = frozenset()
    """Addresses of other tenants' pods."""
    drained: Mapping[str, float] = field(default_factory=dict)
    super_networks: CountedNetworks = field(default_factory=CountedNetworks)

    def tenant_text(self, text: str, own: Collection[str] = ()) -> str:
        found = SuperNames()
        for key, namespace in ((self.tenant.key, "default"), (self.tenant.key, "ns"), *self.others):
            found.add(f"{key}-{namespace}", key, namespace)
        return found.replaced(text, self.tenant.key, own)

    def _unknown(self, side: Side, kind: str, namespace: str, name: str) -> Unknown | None:
        where = (side, kind, namespace, name)
        found = (
            each for each in self.unreadable if (each.side, each.kind, each.namespace, each.name) == where
        )
        return next(found, None)

    def in_tenant(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        unknown = self._unknown(Side.TENANT, kind, namespace, name)
        return unknown or _find(self.tenant_objects, kind, namespace, name)

    def tenant_uid(self, kind: str, namespace: str, name: str) -> str | Unknown | None:
        found = self.in_tenant(kind, namespace, name)
        return found if found is None or isinstance(found, Unknown) else uid_of(found)

    def tenant_keys(self, kind: str, namespace: str, name: str) -> Collection[str] | Unknown | None:
        found = self.in_tenant(kind, namespace, name)
        return found if found is None or isinstance(found, Unknown) else (found.get("data") or {}).keys()

    def in_super(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        unknown = self._unknown(Side.SUPER, kind, namespace, name)
        return unknown or self._super_object(kind, namespace, name)

    def _super_object(self, kind: str, namespace: str, name: str) -> Object | None:
        return _find(self.super_objects, kind, self._target(namespace) or "", name)

    def super_pod(self, namespace: str, name: str) -> PodFacts | None:
        pod = self._super_object("Pod", namespace, name)
        if pod is None:
            return None
        node = (pod.get("spec") or {}).get("nodeName") or ""
        return PodFacts(namespace_of(pod), uid_of(pod), node, tuple(sorted(_addresses_of(pod))))

    def super_services(self, namespace: str) -> Iterable[Object]:
        target = self._target(namespace)
        found = [each for each in self.super_objects if each.get("kind") == "Service"]
        return sorted((copy.deepcopy(each) for each in found if namespace_of(each) == target), key=name_of)

    def pod_addresses(self, namespace: str) -> Collection[str]:
        target = self._target(namespace)
        found = [
            each for each in self.super_objects if (each.get("kind"), namespace_of(each)) == ("Pod", target)
        ]
        return {address for each in found for address in _addresses_of(each)}

    def api_server_addresses(self) -> Collection[str]:
        return self.api_server

    def cluster_networks(self) -> CountedNetworks:
        return self.super_networks

    def others_hold(self, address: str) -> bool:
        return address in self.held

    def drain_seconds(self, namespace: str) -> float:
        return self.drained.get(namespace, 0.0)

    def tenant_namespace(self, super_namespace: str) -> str | None:
        names = (name_of(each) for each in self.tenant_objects if each["kind"] == "Namespace")
        return next((name for name in names if self._target(name) == super_namespace), None)

    def is_reserved_name(self, super_namespace: str) -> bool:
        return is_reserved_name(super_namespace, self.tenant.key, [key for key, _ in self.others])

    def vnode_labels(self, name: str) -> Mapping[str, str] | Unknown | None:
        if (unknown := self._unknown(Side.TENANT, "Node", "", name)) is not None:
            return unknown
        found = self._vnode(name)
        return None if found is None else found.labels

    def vnode_addresses(self, name: str) -> tuple[str, ...] | Unknown | None:
        if (unknown := self._unknown(Side.TENANT, "Node", "", name)) is not None:
            return unknown
        found = self._vnode(name)
        return None if found is None else found.addresses

    def _vnode(self, name: str) -> VNodeFacts | None:
        found = _find(self.tenant_objects, "Node", "", name)
        return None if found is None else vnode_facts(found)

    def super_namespace(self, namespace: str) -> str | Unknown | None:
        return self._unknown(Side.TENANT, "Namespace", "", namespace) or self._target(namespace)

    def _target(self, namespace: str) -> str | None:
        found = self.tenant.super_namespace(namespace) if namespace else ""
        return found if isinstance(found, str) and namespace not in self.unknown else None


def _find(objects: list[Object], kind: str, namespace: str, name: str) -> Object | None:
    for each in objects:
        if (each.get("kind"), namespace_of(each), name_of(each)) == (kind, namespace, name):
            return copy.deepcopy(each)
    return None


def _addresses_of(pod: Object) -> set[str]:
    """The addresses that a super pod holds. One that has ended holds none: they may be another pod's."""
    status = pod.get("status") or {}
    if (pod.get("spec") or {}).get("hostNetwork") or status.get("phase") in ("Succeeded", "Failed"):
        return set()
    return {str(each.get("ip")) for each in status.get("podIPs") or ()}
