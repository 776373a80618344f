# SPDX-License-Identifier: Apache-2.0
"""The objects in use: between the watches and the `ServiceState` that rules are computed from. Pure.

Changes reach the state at once, except removals that `daemonkit.kube.relist_guard` distrusts. Here two
things contradict a relist: EndpointSlices with endpoints, where it lacks the last Service of their
namespace; and Services in a Namespace that it lacks. When these are gone too, the relist is trusted.

So a true deletion that only a relist reports is late by seconds, until a controller has removed the
Service's slices.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from daemonkit.kube.relist_guard import DistrustedRemoval, Lacking, RelistGuard, is_distrusted
from daemonkit.kube.resources import Key
from kubeproxy_ext.compute.objects import EndpointSliceObject, NamespaceObject, ServiceObject
from kubeproxy_ext.compute.packed_slices import has_endpoints
from tenancy import keys

Namespaced = ServiceObject | EndpointSliceObject


class CacheTarget(Protocol):
    """The part of `ServiceState` that takes changes."""

    def put_service(self, item: ServiceObject) -> None: ...
    def remove_service(self, key: Key) -> None: ...
    def put_slice(self, item: EndpointSliceObject) -> None: ...
    def remove_slice(self, key: Key) -> None: ...
    def put_namespace(self, item: NamespaceObject) -> None: ...
    def remove_namespace(self, name: str) -> None: ...


@dataclass(slots=True)
class _Contents:
    services: dict[str, ServiceObject] = field(default_factory=dict)
    slices: dict[str, EndpointSliceObject] = field(default_factory=dict)
    # Services that exist and do not decode, or are too large.
    undecodable: set[str] = field(default_factory=set)

    @property
    def has_endpoints(self) -> bool:
        return any(has_endpoints(each) for each in self.slices.values())


def tenant_of(namespace: NamespaceObject) -> str:
    """The cluster key of the tenant that a Namespace names; empty for the super cluster's own."""
    return namespace.metadata.annotations.get(keys.CLUSTER, "")


class ObjectCache:
    """The objects in use, with the removals that are distrusted. Times are of one monotonic clock."""

    def __init__(self, state: CacheTarget, hold_s: float) -> None:
        self._state = state
        self._namespaces: dict[str, NamespaceObject] = {}
        self._by_tenant: dict[str, set[str]] = {}
        self._contents: dict[str, _Contents] = {}
        self._guard = RelistGuard(hold_s)
        # Counts the changes of `namespaces`.
        self.namespace_changes = 0

    # ---- the objects in use

    @property
    def distrusted(self) -> tuple[DistrustedRemoval, ...]:
        return self._guard.removals

    @property
    def namespaces(self) -> Mapping[str, NamespaceObject]:
        return self._namespaces

    @property
    def tenants(self) -> Mapping[str, set[str]]:
        """The namespaces of each tenant that has any."""
        return self._by_tenant

    def tenant(self, namespace: str) -> str:
        """The tenant of a namespace; empty where it has none or is not known."""
        known = self._namespaces.get(namespace)
        return "" if known is None else tenant_of(known)

    def services(self, namespace: str) -> Collection[ServiceObject]:
        """The Services of a namespace, distrusted removals included."""
        return self._contents.get(namespace, _Contents()).services.values()

    def slices(self, namespace: str) -> Collection[EndpointSliceObject]:
        return self._contents.get(namespace, _Contents()).slices.values()

    def counts(self) -> tuple[int, int]:
        """The numbers of Services and EndpointSlices."""
        contents = self._contents.values()
        return sum(len(each.services) for each in contents), sum(len(each.slices) for each in contents)

    def has_only_endpoints(self, tenant: str) -> bool:
        """Whether a tenant has endpoints and no Service, as in first lists that lack everything."""
        contents = [self._contents.get(name, _Contents()) for name in self._by_tenant.get(tenant, ())]
        has_services = any(each.services or each.undecodable for each in contents)
        return not has_services and any(each.has_endpoints for each in contents)

    # ---- changes

    def put_namespace(self, item: NamespaceObject) -> None:
        name = item.metadata.name
        self._guard.trust(Lacking("Namespace", name))
        before = self._namespaces.get(name)
        if before is not None:
            self._remove_from_tenant(before)
        self._namespaces[name] = item
        self.namespace_changes += 1
        if tenant_of(item):
            self._by_tenant.setdefault(tenant_of(item), set()).add(name)
        self._state.put_namespace(item)

    def remove_namespaces(self, names: Iterable[str], now: float, *, by_relist: bool) -> None:
        for name in names:
            known = self._namespaces.get(name)
            if known is None:
                continue
            services = self._contents.get(name, _Contents()).services
            if is_distrusted(by_relist=by_relist, has_remaining=False, is_contradicted=bool(services)):
                self._guard.distrust(Lacking("Namespace", name), tenant_of(known), (), now)
            else:
                self._drop_namespace(name)

    def put(self, item: Namespaced) -> None:
        """A Service or EndpointSlice exists, or has changed."""
        namespace, name = item.metadata.namespace, item.metadata.name
        contents = self._contents.setdefault(namespace, _Contents())
        if isinstance(item, ServiceObject):
            contents.undecodable.discard(name)
            contents.services[name] = item
            self._state.put_service(item)
            self._trust_rest(namespace, name)
        else:
            contents.slices[name] = item
            self._state.put_slice(item)
            self._trust_confirmed(namespace)

    def mark_undecodable(self, key: Key) -> None:
        """A Service exists and does not decode, or is too large.

        Its rules end, as they may be outdated. A relist that has it does not lack everything.
        """
        namespace, name = key
        self._contents.setdefault(namespace, _Contents()).undecodable.add(name)
        self._trust_rest(namespace, name)
        self._drop_service(namespace, name)

    def clear_undecodable(self, key: Key) -> None:
        """An undecodable Service was deleted."""
        if key[0] in self._contents:
            self._contents[key[0]].undecodable.discard(key[1])

    def _trust_rest(self, namespace: str, name: str) -> None:
        """The namespace has this Service, so the removal of the others is trusted."""
        for gone in self._guard.trust(Lacking("Service", namespace)) - {name}:
            self._drop_service(namespace, gone)

    def remove_services(self, gone: Iterable[Key], now: float, *, by_relist: bool) -> None:
        """Services are gone. All removals of one relist have to come in one call."""
        by_namespace: dict[str, set[str]] = {}
        for namespace, name in gone:
            by_namespace.setdefault(namespace, set()).add(name)
        for namespace, names in by_namespace.items():
            contents = self._contents.get(namespace, _Contents())
            known = names & contents.services.keys()
            if known and is_distrusted(
                by_relist=by_relist,
                has_remaining=bool(contents.undecodable or contents.services.keys() - known),
                is_contradicted=contents.has_endpoints,
            ):
                self._guard.distrust(Lacking("Service", namespace), self.tenant(namespace), known, now)
                continue
            for name in known:
                self._drop_service(namespace, name)

    def distrust_absent(self, services: Iterable[ServiceObject], now: float) -> None:
        """Keep saved Services that the first list of their namespace lacks, if that is distrusted."""
        for service in services:
            namespace, name = service.metadata.namespace, service.metadata.name
            contents = self._contents.get(namespace, _Contents())
            lacking = Lacking("Service", namespace)
            listed = contents.services if self._guard.get(lacking) is None else {}
            if is_distrusted(
                by_relist=True,
                has_remaining=bool(contents.undecodable or listed),
                is_contradicted=contents.has_endpoints,
            ):
                contents.services[name] = service
                self._state.put_service(service)
                self._guard.distrust(lacking, self.tenant(namespace), (name,), now)

    def remove_slices(self, gone: Iterable[Key]) -> None:
        for namespace, name in gone:
            contents = self._contents.get(namespace)
            if contents is not None and contents.slices.pop(name, None) is not None:
                self._state.remove_slice((namespace, name))
                self._trust_confirmed(namespace)

    def adopt(
        self,
        namespace: str,
        services: Mapping[str, ServiceObject],
        slices: Mapping[str, EndpointSliceObject],
        now: float,
        *,
        undecodable: Collection[str] = (),
    ) -> None:
        """Replace a namespace's objects by those that another watch has listed."""
        contents = self._contents.setdefault(namespace, _Contents())
        contents.undecodable.clear()
        for name in undecodable:
            self.mark_undecodable((namespace, name))
        for slice_name, each in slices.items():
            if contents.slices.get(slice_name) is not each:
                self.put(each)
        self.remove_slices([(namespace, name) for name in contents.slices.keys() - slices.keys()])
        for name, service in services.items():
            if contents.services.get(name) is not service:
                self.put(service)
        gone = contents.services.keys() - services.keys()
        self.remove_services([(namespace, name) for name in gone], now, by_relist=True)

    def forget(self, namespace: str) -> None:
        """Drop the objects of a namespace that is not followed now. The Namespace itself stays cached."""
        removal = self._guard.get(Lacking("Namespace", namespace))
        self._guard.trust(Lacking("Service", namespace))
        contents = self._contents.pop(namespace, _Contents())
        for name in contents.services:
            self._state.remove_service((namespace, name))
        for name in contents.slices:
            self._state.remove_slice((namespace, name))
        if removal is not None:
            self._drop_namespace(namespace)

    # ---- distrusted relists

    def trust_expired(self, now: float) -> tuple[DistrustedRemoval, ...]:
        """Trust the removals whose `holdSeconds` have passed, and return them."""
        due = self._guard.trust_expired(now)
        for removal in due:
            self._drop(removal)
        return due

    @property
    def next_expiry_at(self) -> float | None:
        return self._guard.next_at

    def _drop(self, removal: DistrustedRemoval) -> None:
        self._guard.trust(removal.lacking)
        kind, namespace = removal.lacking
        if kind == "Namespace":
            self._drop_namespace(namespace)
        for name in removal.names:
            self._drop_service(namespace, name)

    def _trust_confirmed(self, namespace: str) -> None:
        """Trust a relist that no object contradicts any more."""
        removal = self._guard.get(Lacking("Service", namespace))
        if removal is not None and not self._contents[namespace].has_endpoints:
            self._drop(removal)
        whole = self._guard.get(Lacking("Namespace", namespace))
        if whole is not None and not self._contents[namespace].services:
            self._drop(whole)

    # ---- dropping

    def _drop_service(self, namespace: str, name: str) -> None:
        contents = self._contents.get(namespace)
        if contents is not None and contents.services.pop(name, None) is not None:
            self._state.remove_service((namespace, name))
            self._trust_confirmed(namespace)

    def _drop_namespace(self, name: str) -> None:
        self._guard.trust(Lacking("Namespace", name))
        known = self._namespaces.pop(name, None)
        if known is not None:
            self.namespace_changes += 1
            self._remove_from_tenant(known)
            self._state.remove_namespace(name)

    def _remove_from_tenant(self, known: NamespaceObject) -> None:
        tenant, name = tenant_of(known), known.metadata.name
        if tenant:
            self._by_tenant[tenant].discard(name)
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]
