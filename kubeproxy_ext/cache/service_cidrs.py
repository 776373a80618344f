# SPDX-License-Identifier: Apache-2.0
"""The service CIDRs of a tenant's guests: where an address without a Service is rejected. Pure.

A guest may use the super cluster's addresses of its Services and those of its own control plane. Ranges of
control planes may overlap. They come from the configuration, or from the annotation `vcnode.io/service-cidrs`
(comma-separated) of the tenant's root namespace. VirtualCluster's controller makes that namespace, with the
tenant's key as its name. On other namespaces tenants could write the annotation, so it is not read there.
"""

from collections.abc import Mapping

from kubeproxy_ext.cache.object_cache import ObjectCache, tenant_of
from kubeproxy_ext.compute.addresses import canonical_cidr
from tenancy import keys

# Two families, each with a range that replaces another, and as many to spare.
MAX_CIDRS = 8


class ServiceCidrs:
    """The configured CIDRs: of the super cluster, and of tenants by their keys."""

    def __init__(self, of_super: tuple[str, ...], of_tenants: Mapping[str, tuple[str, ...]]) -> None:
        self._of_super = of_super
        self._of_tenants = of_tenants

    def of(self, tenant: str, cache: ObjectCache) -> tuple[str, ...]:
        """All CIDRs for the guests of a tenant, canonical and sorted."""
        own = self._of_tenants.get(tenant)
        every = (*self._of_super, *(self._annotated(tenant, cache) if own is None else own))
        return tuple(sorted({cidr for cidr in map(canonical_cidr, every) if cidr is not None}))

    def _annotated(self, tenant: str, cache: ObjectCache) -> list[str]:
        root = cache.namespaces.get(tenant)
        if root is None or tenant_of(root) or keys.VC_ROOT_NAMESPACE not in root.metadata.annotations:
            return []
        text = root.metadata.annotations.get(keys.SERVICE_CIDRS, "")
        return [part.strip() for part in text.split(",")[:MAX_CIDRS]]
