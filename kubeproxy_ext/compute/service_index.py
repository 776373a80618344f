# SPDX-License-Identifier: Apache-2.0
"""Parsed objects by Service, Namespace and group. No rules are computed here.

Every change returns the Services that it affects: one for a change of one endpoint, none for an object
that is equal to the one before.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

from daemonkit.kube.resources import Key
from kubeproxy_ext.compute.guest_view import EVERY_NETWORK, ServiceGroup
from kubeproxy_ext.compute.parse import NamespaceOwner, ServiceInfo, SliceInfo
from tenancy.keys import DEFAULT_NETWORK

K = TypeVar("K")
V = TypeVar("V")

_APISERVER: Key = ("default", "kubernetes")


class ServiceIndex:
    """Services, slices and namespaces. `has_all_namespaces`: unknown ones belong to the super cluster."""

    def __init__(self, *, has_all_namespaces: bool = False) -> None:
        self._has_all_namespaces = has_all_namespaces
        self._services: dict[Key, ServiceInfo] = {}
        self._slices: dict[Key, dict[str, SliceInfo]] = {}
        self._service_of_slice: dict[Key, Key] = {}
        self._owners: dict[str, NamespaceOwner] = {}
        self._in_namespace: dict[str, set[Key]] = {}
        self._members: dict[ServiceGroup, set[Key]] = {}

    @property
    def services(self) -> Mapping[Key, ServiceInfo]:
        return MappingProxyType(self._services)

    @property
    def groups(self) -> Collection[ServiceGroup]:
        """The groups that have Services."""
        return self._members.keys()

    def members(self, group: ServiceGroup) -> Collection[Key]:
        return self._members.get(group, ())

    def groups_in(self, namespace: str) -> frozenset[ServiceGroup]:
        services = (self._services[key] for key in self._in_namespace.get(namespace, ()))
        return frozenset(group for one in services if (group := self.group(one)) is not None)

    def slices(self, service: Key) -> Collection[SliceInfo]:
        return self._slices.get(service, {}).values()

    def all_slices(self) -> Iterator[SliceInfo]:
        for slices in self._slices.values():
            yield from slices.values()

    def owner(self, namespace: str) -> NamespaceOwner | None:
        """The owner of a namespace; None if unknown."""
        known = self._owners.get(namespace)
        return NamespaceOwner(None, namespace) if known is None and self._has_all_namespaces else known

    def group(self, service: ServiceInfo) -> ServiceGroup | None:
        """The group of a Service; None while the owner of its namespace is unknown.

        A tenant's `default/kubernetes` is its API server, for pods of all networks. VirtualCluster's syncer
        copies it as `kubernetes` into the super namespace of the tenant's `default`: without a selector, with
        the tenant's Endpoints, from which the super cluster makes slices. The super cluster's own
        `kubernetes` belongs to no tenant.
        """
        owner = self.owner(service.namespace)
        if owner is None:
            return None
        if service.network is None and (owner.namespace, service.name) == _APISERVER:
            return ServiceGroup(owner.tenant, EVERY_NETWORK)
        return ServiceGroup(owner.tenant, service.network or DEFAULT_NETWORK)

    def put_service(self, key: Key, service: ServiceInfo | None) -> bool:
        """Store a Service, None for one that is not proxied. Returns whether it differs from before."""
        if service is None:
            return self.remove_service(key)
        old = self._services.get(key)
        if old == service:
            return False
        if old is not None:
            self._leave(key, old)
        self._services[key] = service
        self._in_namespace.setdefault(key[0], set()).add(key)
        self._join(key, service)
        return True

    def remove_service(self, key: Key) -> bool:
        old = self._services.get(key)
        if old is None:
            return False
        self._leave(key, old)
        del self._services[key]
        _discard(self._in_namespace, key[0], key)
        return True

    def put_slice(self, key: Key, one: SliceInfo | None) -> frozenset[Key]:
        """Store a slice, None for one that is ignored. Returns the Services whose endpoints change."""
        service_key = None if one is None else (one.namespace, one.service)
        affected = self.remove_slice(key) if self._service_of_slice.get(key) != service_key else frozenset()
        if one is None or service_key is None:
            return affected
        slices = self._slices.setdefault(service_key, {})
        if slices.get(one.name) == one:
            return affected
        slices[one.name] = one
        self._service_of_slice[key] = service_key
        return affected | {service_key}

    def remove_slice(self, key: Key) -> frozenset[Key]:
        service_key = self._service_of_slice.pop(key, None)
        if service_key is None:
            return frozenset()
        slices = self._slices[service_key]
        del slices[key[1]]
        if not slices:
            del self._slices[service_key]
        return frozenset({service_key})

    def put_namespace(self, name: str, owner: NamespaceOwner | None) -> frozenset[Key]:
        """Set the owner of a namespace, None for unknown. Returns the Services that change their group."""
        old = self._owners.get(name)
        if old == owner:
            return frozenset()
        services = frozenset(self._in_namespace.get(name, ()))
        for key in services:
            self._leave(key, self._services[key])
        if owner is None:
            del self._owners[name]
        else:
            self._owners[name] = owner
        for key in services:
            self._join(key, self._services[key])
        return services

    def _join(self, key: Key, service: ServiceInfo) -> None:
        group = self.group(service)
        if group is not None:
            self._members.setdefault(group, set()).add(key)

    def _leave(self, key: Key, service: ServiceInfo) -> None:
        group = self.group(service)
        if group is not None:
            _discard(self._members, group, key)


def _discard(sets: dict[K, set[V]], key: K, value: V) -> None:
    values = sets[key]
    values.discard(value)
    if not values:
        del sets[key]
