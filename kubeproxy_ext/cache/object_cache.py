# SPDX-License-Identifier: Apache-2.0
"""What of the super cluster counts now: between what watches tell and what rules are made of. Pure.

Everything that is told goes on to the world at once, with one exception: removals that
`daemonkit.kube.relist_guard` distrusts. What contradicts a relist is here: the EndpointSlices of a
namespace have endpoints, though the relist lacks its last Service; or there are Services in a
namespace that the relist lacks. When that is gone too, the relist is believed.

A controller removes the slices of a deleted Service within seconds: a true deletion that a list
tells is late by that.
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
    """The part of `core.world.World` that is fed."""

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
    # Services that exist and cannot be read, or are too large.
    unreadable: set[str] = field(default_factory=set)

    @property
    def has_endpoints(self) -> bool:
        return any(has_endpoints(each) for each in self.slices.values())


def tenant_of(namespace: NamespaceObject) -> str:
    """The cluster key of whose namespace it is; empty for the super cluster's own."""
    return namespace.metadata.annotations.get(keys.CLUSTER, "")


class ObjectCache:
    """The objects that count, and those of them that are held against a list.

    Times are of one monotonic clock.
    """

    def __init__(self, state: CacheTarget, hold_s: float) -> None:
        self._state = state
        self._namespaces: dict[str, NamespaceObject] = {}
        self._by_tenant: dict[str, set[str]] = {}
        self._contents: dict[str, _Contents] = {}
        self._guard = RelistGuard(hold_s)
        # Grows whenever `namespaces` changes.
        self.namespace_changes = 0

    # ---- what counts

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

    def services(self, namespace: str) -> Collection[ServiceObject]:
        """The Services of a namespace that count."""
        return self._contents.get(namespace, _Contents()).services.values()

    def slices(self, namespace: str) -> Collection[EndpointSliceObject]:
        """The EndpointSlices of a namespace that count."""
        return self._contents.get(namespace, _Contents()).slices.values()

    def counts(self) -> tuple[int, int]:
        """How many Services and EndpointSlices there are."""
        contents = self._contents.values()
        return sum(len(each.services) for each in contents), sum(len(each.slices) for each in contents)

    def has_only_endpoints(self, tenant: str) -> bool:
        """Whether a tenant has endpoints and not one Service: a first list may lack everything, too."""
        contents = [self._contents.get(name, _Contents()) for name in self._by_tenant.get(tenant, ())]
        has_services = any(each.services or each.unreadable for each in contents)
        return not has_services and any(each.has_endpoints for each in contents)

    # ---- what is told

    def put_namespace(self, item: NamespaceObject) -> None:
        name = item.metadata.name
        self._guard.believe(Lacking("Namespace", name))
        before = self._namespaces.get(name)
        if before is not None:
            self._unlist(before)
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
        """A Service or EndpointSlice is there, or has changed."""
        namespace, name = item.metadata.namespace, item.metadata.name
        contents = self._contents.setdefault(namespace, _Contents())
        if isinstance(item, ServiceObject):
            contents.unreadable.discard(name)
            contents.services[name] = item
            self._state.put_service(item)
            self._believe_rest(namespace, name)
        else:
            contents.slices[name] = item
            self._state.put_slice(item)
            self._believe_uncontradicted(namespace)

    def mark_unreadable(self, key: Key) -> None:
        """A Service is there and cannot be read, or is too large: it is neither as it was nor gone.

        Its old rules end, as nothing says that they are still right; and a list that has it does not
        lack everything.
        """
        namespace, name = key
        self._contents.setdefault(namespace, _Contents()).unreadable.add(name)
        self._believe_rest(namespace, name)
        self._drop_service(namespace, name)

    def clear_unreadable(self, key: Key) -> None:
        """A Service that could not be read is gone."""
        if key[0] in self._contents:
            self._contents[key[0]].unreadable.discard(key[1])

    def _believe_rest(self, namespace: str, name: str) -> None:
        """The namespace is not empty after all, it has this one: what a list lacked is gone."""
        for gone in self._guard.believe(Lacking("Service", namespace)) - {name}:
            self._drop_service(namespace, gone)

    def remove_services(self, gone: Iterable[Key], now: float, *, by_relist: bool) -> None:
        """Services are gone; what one list takes has to be told in one call."""
        by_namespace: dict[str, set[str]] = {}
        for namespace, name in gone:
            by_namespace.setdefault(namespace, set()).add(name)
        for namespace, names in by_namespace.items():
            contents = self._contents.get(namespace, _Contents())
            known = names & contents.services.keys()
            if known and is_distrusted(
                by_relist=by_relist,
                has_remaining=bool(contents.unreadable or contents.services.keys() - known),
                is_contradicted=contents.has_endpoints,
            ):
                self._guard.distrust(Lacking("Service", namespace), self._owner(namespace), known, now)
                continue
            for name in known:
                self._drop_service(namespace, name)

    def distrust_absent(self, services: Iterable[ServiceObject], now: float) -> None:
        """Let Services of a namespace count that were known before its first list, which has none.

        Nothing happens where the list is plausible: there is a Service, or no endpoint.
        """
        for service in services:
            namespace, name = service.metadata.namespace, service.metadata.name
            contents = self._contents.get(namespace, _Contents())
            lacking = Lacking("Service", namespace)
            listed = contents.services if self._guard.get(lacking) is None else {}
            if is_distrusted(
                by_relist=True,
                has_remaining=bool(contents.unreadable or listed),
                is_contradicted=contents.has_endpoints,
            ):
                contents.services[name] = service
                self._state.put_service(service)
                self._guard.distrust(lacking, self._owner(namespace), (name,), now)

    def remove_slices(self, gone: Iterable[Key]) -> None:
        for namespace, name in gone:
            contents = self._contents.get(namespace)
            if contents is not None and contents.slices.pop(name, None) is not None:
                self._state.remove_slice((namespace, name))
                self._believe_uncontradicted(namespace)

    def adopt(
        self,
        namespace: str,
        services: Mapping[str, ServiceObject],
        slices: Mapping[str, EndpointSliceObject],
        now: float,
        *,
        unreadable: Collection[str] = (),
    ) -> None:
        """The lists of another watch say what there is in a namespace; `spoiled` Services among it."""
        contents = self._contents.setdefault(namespace, _Contents())
        contents.unreadable.clear()
        for name in unreadable:
            self.mark_unreadable((namespace, name))
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
        """Nobody wants what is in this namespace any more. That there is one stays known."""
        distrusted = self._guard.get(Lacking("Namespace", namespace))
        self._guard.believe(Lacking("Service", namespace))
        contents = self._contents.pop(namespace, _Contents())
        for name in contents.services:
            self._state.remove_service((namespace, name))
        for name in contents.slices:
            self._state.remove_slice((namespace, name))
        if distrusted is not None:
            self._drop_namespace(namespace)

    # ---- distrusted relists

    def believe_expired(self, now: float) -> tuple[DistrustedRemoval, ...]:
        """Believe what has been distrusted for long enough, and return it."""
        due = self._guard.believe_expired(now)
        for distrusted in due:
            self._drop(distrusted)
        return due

    @property
    def next_expiry_at(self) -> float | None:
        return self._guard.next_at

    def _drop(self, distrusted: DistrustedRemoval) -> None:
        self._guard.believe(distrusted.lacking)
        kind, namespace = distrusted.lacking
        if kind == "Namespace":
            self._drop_namespace(namespace)
        for name in distrusted.names:
            self._drop_service(namespace, name)

    def _believe_uncontradicted(self, namespace: str) -> None:
        """Believe a relist that nothing contradicts any more."""
        distrusted = self._guard.get(Lacking("Service", namespace))
        if distrusted is not None and not self._contents[namespace].has_endpoints:
            self._drop(distrusted)
        whole = self._guard.get(Lacking("Namespace", namespace))
        if whole is not None and not self._contents[namespace].services:
            self._drop(whole)

    # ---- dropping

    def _owner(self, namespace: str) -> str:
        known = self._namespaces.get(namespace)
        return "" if known is None else tenant_of(known)

    def _drop_service(self, namespace: str, name: str) -> None:
        contents = self._contents.get(namespace)
        if contents is not None and contents.services.pop(name, None) is not None:
            self._state.remove_service((namespace, name))
            self._believe_uncontradicted(namespace)

    def _drop_namespace(self, name: str) -> None:
        self._guard.believe(Lacking("Namespace", name))
        known = self._namespaces.pop(name, None)
        if known is not None:
            self.namespace_changes += 1
            self._unlist(known)
            self._state.remove_namespace(name)

    def _unlist(self, known: NamespaceObject) -> None:
        tenant, name = tenant_of(known), known.metadata.name
        if tenant:
            self._by_tenant[tenant].discard(name)
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]
