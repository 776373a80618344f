# SPDX-License-Identifier: Apache-2.0
"""Ports of vn-agent on which a tenant's Prometheus shows the token of its account.

Both tenants' tokens have the same issuer, audience and subject: their keys alone differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.controlplane import WHOLE_CLUSTER_ISSUER
from tests.k8s.ring.tenants import RingTenant

ACCOUNT = "prometheus"
NAMESPACE = "monitoring"
AUDIENCE = "vn-agent"
_FIRST_PORT = 10551


def port_of(tenant: RingTenant, tenants: Iterable[RingTenant]) -> int:
    """The tenant's own port, the same on all nodes."""
    return _FIRST_PORT + [each.key for each in tenants].index(tenant.key)


def listeners(tenants: Iterable[RingTenant], directory: Path) -> list[JsonObject]:
    """`tokenListeners` of a vn-agent, with the keys of each tenant's API server in `directory`."""
    made = []
    for number, tenant in enumerate(tenants):
        keys = directory / f"{tenant.key}.jwks"
        keys.write_text(json.dumps(tenant.api.get("/openid/v1/jwks")))
        made.append(
            {
                "tenant": tenant.key,
                "port": _FIRST_PORT + number,
                "issuer": WHOLE_CLUSTER_ISSUER,
                "audience": AUDIENCE,
                "jwksFile": str(keys),
                "subjects": [f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"],
            }
        )
    return made
