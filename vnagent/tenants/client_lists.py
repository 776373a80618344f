# SPDX-License-Identifier: Apache-2.0
"""Lists of clients beside VirtualClusters (ConfigMaps `vn-agent-clients`): which removals are believed. Pure.

A list of ConfigMaps that lacks all of them leaves every tenant and takes clients from each. So the rule of
`tenancy.removals` applies to lists as it does to tenants.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tenancy.registry import Bad
from tenancy.removals import Distrust, judge
from tenancy.tenant import Role, Tenant
from vnagent.sources.port import TenantsReading


@dataclass(frozen=True, slots=True)
class ClientLists:
    """The lists that are served, by the source of their tenant; the `retained` ones are missing there."""

    served: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    retained: frozenset[str] = frozenset()
    distrust: Distrust | None = None


def judge_lists(
    before: ClientLists, reading: TenantsReading, retained_tenants: frozenset[str], now_s: float
) -> tuple[ClientLists, Mapping[str, Tenant | Bad]]:
    """The lists after a reading, and its tenants with the clients of the lists that are retained.

    A tenant that is retained or cannot be read keeps its last good state, its list included.
    """
    readable = {source for source, each in reading.tenants.items() if isinstance(each, Tenant)}
    known = {
        source: clients
        for source, clients in before.served.items()
        if clients and (source in reading.tenants or source in retained_tenants)
    }
    present = reading.client_lists.keys() | (known.keys() - readable)
    removals = judge(frozenset(known), frozenset(present), reading.deleted_lists, before.distrust, now_s)
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
