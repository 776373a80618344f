# SPDX-License-Identifier: Apache-2.0
"""The Lease by which a tenant's control plane knows that a node is alive. Pure.

As the kubelet's (KEP-589): one a node in `kube-node-lease`, of 40 s, renewed every 10 s. The Node owns it, so
that it goes with the Node.
"""

import datetime as dt

from daemonkit.kube.resources import Resource
from syncer.core.objects import Object

LEASES = Resource("coordination.k8s.io", "v1", "leases")
LEASE_NAMESPACE = "kube-node-lease"
# The kubelet's nodeLeaseDurationSeconds, and the quarter of it after which it renews.
DURATION_S = 40
RENEW_S = 10.0


def renewal(node: str, at_s: float) -> Object:
    """The merge patch that renews a node's Lease, at a time since the epoch."""
    return {
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": DURATION_S,
            "renewTime": dt.datetime.fromtimestamp(at_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
    }


def new_lease(node: str, node_uid: str, at_s: float) -> Object:
    """The Lease of a node that has none."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}],
        },
        **renewal(node, at_s),
    }


class RenewTimes:
    """Times that only rise, whatever becomes of the clock.

    The node lifecycle controller counts a renewal only if its time is later than the last one that it saw.
    """

    def __init__(self) -> None:
        self._last_s = 0.0

    def next(self, wall_s: float) -> float:
        """The time to write at this time of day."""
        # A microsecond is the finest that the field has; a float of this size has some less.
        self._last_s = max(wall_s, self._last_s + 0.001)
        return self._last_s
