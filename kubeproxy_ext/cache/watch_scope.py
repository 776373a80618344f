# SPDX-License-Identifier: Apache-2.0
"""Decides in which namespaces, or by which tenant labels, to watch for the tenants of this node. Pure.

A Service belongs to the tenant that its Namespace names. There are three ways to watch a tenant:

- each of its namespaces: exact, and the API server has an index for it. It costs two connections each,
  and tenants may have any number of namespaces;
- by the labels `vcname` and `vcnamespace`, which VirtualCluster's syncer puts on its objects and the
  controllers of EndpointSlices copy. Objects without the label are watched once more, as another
  program may have made a Service in a tenant's namespace;
- the whole cluster, where Namespaces do not name their VirtualCluster or tenants are too many. Objects
  of other namespaces are dropped before they are cached.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tenancy import keys

# Two connections each. Measured beside a watch of the whole cluster: see README, "Costs".
MAX_NAMESPACES = 24
# Back to one watch a namespace only below this number, so that one namespace that comes and goes does
# not replace all watches each time.
_NAMESPACES_AGAIN = 16
MAX_TENANTS = 32

# apimachinery, validation.IsValidLabelValue: the syncer could not write any other.
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class TenantNamespaces:
    """A tenant's super namespaces, and its VirtualCluster where they agree on one."""

    namespaces: frozenset[str]
    vc_namespace: str = ""
    vc_name: str = ""

    @property
    def is_labelled(self) -> bool:
        return all(_LABEL_VALUE.fullmatch(name) for name in (self.vc_namespace, self.vc_name))


@dataclass(frozen=True, slots=True)
class WatchScope:
    """One watch of Services and one of EndpointSlices, with the same selection.

    An empty `namespace` is the whole cluster. `included` are the namespaces to cache objects of, None
    where the API server selects exactly those.
    """

    namespace: str = ""
    labels: str = ""
    included: frozenset[str] | None = None

    def covers(self, namespace: str) -> bool:
        """Whether this scope may have objects of the namespace."""
        if self.namespace:
            return self.namespace == namespace
        return self.included is None or namespace in self.included


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """All scopes, and for each tenant those that together have all its objects."""

    scopes: frozenset[WatchScope]
    by_tenant: Mapping[str, tuple[WatchScope, ...]]


def plan_watches(tenants: Mapping[str, TenantNamespaces], before: WatchPlan | None = None) -> WatchPlan:
    """What to watch for these tenants; `before` is what is watched now."""
    namespaces = frozenset(n for tenant in tenants.values() for n in tenant.namespaces)
    was_by_namespace = before is None or all(scope.namespace for scope in before.scopes)
    if len(namespaces) <= (MAX_NAMESPACES if was_by_namespace else _NAMESPACES_AGAIN):
        return _plan({t: [WatchScope(n) for n in sorted(each.namespaces)] for t, each in tenants.items()})
    if len(tenants) <= MAX_TENANTS and all(tenant.is_labelled for tenant in tenants.values()):
        unlabelled = WatchScope(labels=f"!{keys.VC_NAME}", included=namespaces)
        return _plan({name: [_by_labels(tenant), unlabelled] for name, tenant in tenants.items()})
    return _plan({tenant: [WatchScope(included=namespaces)] for tenant in tenants})


def _by_labels(tenant: TenantNamespaces) -> WatchScope:
    labels = f"{keys.VC_NAMESPACE}={tenant.vc_namespace},{keys.VC_NAME}={tenant.vc_name}"
    return WatchScope(labels=labels, included=tenant.namespaces)


def _plan(by_tenant: Mapping[str, Iterable[WatchScope]]) -> WatchPlan:
    found = {tenant: tuple(scopes) for tenant, scopes in by_tenant.items()}
    return WatchPlan(frozenset(scope for scopes in found.values() for scope in scopes), found)
