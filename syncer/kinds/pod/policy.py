# SPDX-License-Identifier: Apache-2.0
"""What the tenant's SyncPolicy says of a pod. Pure."""

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.sync_policy import SyncPolicy


def refusals(pod: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """The fields of a pod that may not go down."""
    if (pod.get("spec") or {}).get("nodeName"):
        return (Refusal("spec.nodeName", "pods are bound by the super cluster's scheduler"),)
    return ()


def forced_runtime_class(pod: Object, policy: SyncPolicy) -> str | None:
    """The runtime class that the pod gets whatever it names; None leaves its own."""
    return None
