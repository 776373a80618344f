# SPDX-License-Identifier: Apache-2.0
"""One complete reading of all tenants, as a source publishes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant
from vnagent.tenants.rotation import Rotation


@dataclass(frozen=True, slots=True)
class TenantsReading:
    """All tenants, by the name of their source (a file, an object).

    `deleted` are sources whose deletion is confirmed; a source in neither is missing. `rotations` are the
    certificates in rotation, by source, for the saved state. `client_lists` has the clients that a list
    beside a source adds to its tenant. `deleted_lists` are the sources whose list is confirmed as deleted.
    """

    tenants: Mapping[str, Tenant | Bad]
    deleted: frozenset[str] = frozenset()
    rotations: Mapping[str, Rotation] = field(default_factory=dict)
    client_lists: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    deleted_lists: frozenset[str] = frozenset()
