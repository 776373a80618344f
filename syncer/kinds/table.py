# SPDX-License-Identifier: Apache-2.0
"""All kinds that are synced: without being named in the configuration, and by their names in it. Pure."""

from collections.abc import Iterable, Mapping

from syncer.core.view import PodDns
from syncer.kinds import (
    configmap,
    custom_resource_definition,
    endpoint_slice,
    endpoints,
    event,
    ingress,
    ingress_class,
    namespace,
    network,
    network_policy,
    persistent_volume,
    persistent_volume_claim,
    pod_disruption_budget,
    priority_class,
    runtime_class,
    secret,
    service,
    service_account,
    storage_class,
)
from syncer.kinds.custom_resource import CustomResource, sync_of
from syncer.kinds.pod import sync as pod
from syncer.kinds.port import KindSync

DEFAULT: tuple[KindSync, ...] = (
    namespace.SYNC,
    storage_class.SYNC,
    service_account.SYNC,
    configmap.SYNC,
    secret.SYNC,
    service.SYNC,
    endpoints.SYNC,
    endpoint_slice.SYNC,
    persistent_volume_claim.SYNC,
    persistent_volume.SYNC,
    pod.SYNC,
    network_policy.SYNC,
    pod_disruption_budget.SYNC,
    event.SYNC,
)

OPTIONAL: Mapping[str, KindSync] = {
    "ingress": ingress.SYNC,
    "priorityclass": priority_class.SYNC,
    "crd": custom_resource_definition.SYNC,
    "runtimeclass": runtime_class.SYNC,
    "ingressclass": ingress_class.SYNC,
}
"""By their names in `resources` of the configuration, which are upstream's."""


def kinds(
    resources: Iterable[str], custom: Iterable[CustomResource] = (), *, pod_dns: PodDns = PodDns.SYNCER
) -> tuple[KindSync, ...]:
    """The default kinds, those of these names, and custom resources.

    Networks too where the nodes give pods their resolver: dnsconfig finds a network's state in its object.
    """
    networks = (network.SYNC,) if pod_dns is PodDns.NODE else ()
    return (
        *DEFAULT,
        *networks,
        *(OPTIONAL[name] for name in resources),
        *(sync_of(each) for each in custom),
    )


def optional_names() -> frozenset[str]:
    """The names that `resources` of the configuration may have."""
    return frozenset(OPTIONAL)
