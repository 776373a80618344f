# SPDX-License-Identifier: Apache-2.0
"""What the tests' tenant may send down beyond the defaults. docs/conformance.md has the specs that need it.

All nodes, as the tests expect to see them. Nothing else is allowed that no spec needs.
"""

from __future__ import annotations

from tests.k8s.ring.api import JsonObject

SPEC: JsonObject = {
    "vNodes": {
        "scope": "All",
        "schedulable": True,
        "labels": ["kubernetes.io/", "node-role.kubernetes.io/"],
    },
    "pods": {
        "allowHandlerHosts": True,
    },
    "services": {
        "types": ["ClusterIP", "ExternalName", "NodePort"],
        "externalNames": ["*"],
    },
}
