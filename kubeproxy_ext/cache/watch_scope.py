# SPDX-License-Identifier: Apache-2.0
"""What to watch of the super cluster so that the tenants of this node are seen, and little else. Pure.

A Service belongs to the tenant that its Namespace names, so a watch of each of a tenant's
namespaces is exact by itself, and an API server serves it from an index. It costs a connection,
though, and tenants make namespaces as they like. Past a bound the objects are asked for by the
labels that VirtualCluster's syncer puts on all that it brings down (`vcname`, `vcnamespace`; the
controllers of EndpointSlices copy the labels of a Service, or of Endpoints, to its slices), and
what has no such label is asked for once: a Service that somebody else made in a tenant's namespace
is a Service all the same. Where namespaces do not say which VirtualCluster is theirs, or tenants
are too many, the whole cluster is watched and what is not wanted is dropped before it is kept.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tenancy import keys

# Two connections each. Measured beside a watch of the whole cluster: see README, "Costs".
MAX_NAMESPACES = 24
# From here on a change to more watches waits until their number has fallen below it, so that one
# namespace that comes and goes does not turn all watches over.
_NAMESPACES_AGAIN = 16
MAX_TENANTS = 32

# apimachinery, validation.IsValidLabelValue: the syncer could not write any other.
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class TenantNamespaces:
    """Where a tenant's objects are: its super namespaces, and its VirtualCluster if they say it."""

    namespaces: frozenset[str]
    vc_namespace: str = ""
    vc_name: str = ""

    @property
    def is_labelled(self) -> bool:
        return all(_LABEL_VALUE.fullmatch(name) for name in (self.vc_namespace, self.vc_name))


@dataclass(frozen=True, slots=True)
class WatchScope:
    """One watch of Services and one of EndpointSlices, by the same namespace and labels.

    An empty `namespace` is the whole cluster. `kept` are the namespaces of which something is
    wanted, None where the server selects exactly that.
    """

    namespace: str = ""
    labels: str = ""
    namespaces: frozenset[str] | None = None

    def covers(self, namespace: str) -> bool:
        """Whether objects of this namespace can come out of this part."""
        if self.namespace:
            return self.namespace == namespace
        return self.namespaces is None or namespace in self.namespaces


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """The parts, and for each tenant those that together have all of it."""

    scopes: frozenset[WatchScope]
    by_tenant: Mapping[str, tuple[WatchScope, ...]]


def plan_watches(tenants: Mapping[str, TenantNamespaces], before: WatchPlan | None = None) -> WatchPlan:
    """What to watch for these tenants; `before` is what is watched now."""
    namespaces = frozenset(n for place in tenants.values() for n in place.namespaces)
    was_by_namespace = before is None or all(part.namespace for part in before.scopes)
    if len(namespaces) <= (MAX_NAMESPACES if was_by_namespace else _NAMESPACES_AGAIN):
        return _scope({t: [WatchScope(n) for n in sorted(place.namespaces)] for t, place in tenants.items()})
    if len(tenants) <= MAX_TENANTS and all(place.is_labelled for place in tenants.values()):
        unlabelled = WatchScope(labels=f"!{keys.VC_NAME}", namespaces=namespaces)
        return _scope({t: [_labelled(place), unlabelled] for t, place in tenants.items()})
    return _scope({tenant: [WatchScope(namespaces=namespaces)] for tenant in tenants})


def _labelled(place: TenantNamespaces) -> WatchScope:
    labels = f"{keys.VC_NAMESPACE}={place.vc_namespace},{keys.VC_NAME}={place.vc_name}"
    return WatchScope(labels=labels, namespaces=place.namespaces)


def _scope(by_tenant: Mapping[str, Iterable[WatchScope]]) -> WatchPlan:
    found = {tenant: tuple(scopes) for tenant, scopes in by_tenant.items()}
    return WatchPlan(frozenset(part for scopes in found.values() for part in scopes), found)
