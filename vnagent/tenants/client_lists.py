# SPDX-License-Identifier: Apache-2.0
"""Client lists beside VirtualClusters (ConfigMaps `vn-agent-clients`): which removals are plausible.

A relist that lacks all ConfigMaps keeps every tenant and removes clients of each. So the rule of
`tenancy.removals` applies to lists as it does to tenants.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tenancy.registry import Bad
from tenancy.removals import Distrust, evaluate
from tenancy.tenant import Role, Tenant
from vnagent.tenants.reading import TenantsReading


@dataclass(frozen=True, slots=True)
class ClientLists:
    """The served lists, by the source of their tenant. The `retained` ones are missing in the cluster."""

    served: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    retained: frozenset[str] = frozenset()
    distrust: Distrust | None = None


def retain_lists(
    before: ClientLists, reading: TenantsReading, retained_tenants: frozenset[str], now_s: float
) -> tuple[ClientLists, Mapping[str, Tenant | Bad]]:
    """The lists after a reading, and its tenants with the clients of retained lists.

    A tenant that is retained or invalid keeps its last good state, with its list.
    """
    readable = {source for source, each in reading.tenants.items() if isinstance(each, Tenant)}
    known = {
        source: clients
        for source, clients in before.served.items()
        if clients and (source in reading.tenants or source in retained_tenants)
    }
    present = reading.client_lists.keys() | (known.keys() - readable)
    removals = evaluate(frozenset(known), frozenset(present), reading.deleted_lists, before.distrust, now_s)
    tenants = dict(reading.tenants)
    for source in removals.retained:
        tenant = tenants[source]
        if isinstance(tenant, Tenant):
            tenants[source] = replace(tenant, clients={**known[source], **tenant.clients})
    kept = {
        source: clients
        for source, clients in known.items()
        if source in removals.retained or (source not in readable and source not in reading.deleted_lists)
    }
    return ClientLists({**kept, **reading.client_lists}, removals.retained, removals.distrust), tenants
