# SPDX-License-Identifier: Apache-2.0
"""Tenants' guests without a known pod: static pods, guests of deleted pods, pods that are not synced."""

from collections.abc import Collection, Iterable

from bridge_api.messages import Guest
from dnsconfig.cluster.objects import MIRROR
from dnsconfig.cluster.snapshot import Snapshot


def guests_without_pod(
    guests: Iterable[Guest], snapshot: Snapshot, retaining: Collection[str]
) -> dict[str, Guest]:
    """The guests whose pods are unknown, by id; `retaining` are the UIDs of pods that had a resolver."""
    pods = snapshot.pods or {}
    known = {pod.metadata.uid for pod in pods.values()} | set(retaining)
    return {
        guest.id: guest
        for guest in guests
        if guest.tenant
        and (guest.uid not in known if guest.uid else (guest.namespace, guest.name) not in pods)
    }


def wait_message(guest: Guest, snapshot: Snapshot) -> str:
    """Why the containers of such a guest wait.

    A static pod's sandbox has the UID that the kubelet derived from its file; the API server has a
    mirror with a UID of its own. The mirror's annotation has the first UID, but every author of a pod
    may write that annotation. So it leads to no resolver.
    """
    unreadable = snapshot.unreadable.get(("Pod", (guest.namespace, guest.name)))
    if unreadable is not None:
        return f"the pod's object cannot be read: {unreadable}"
    if snapshot.pods is None:
        return "this node's pods are not synced with the API server yet"
    namesake = snapshot.pods.get((guest.namespace, guest.name))
    if namesake is None:
        return "the API server has no such pod on this node (any more)"
    if MIRROR in namesake.metadata.annotations:
        return (
            "it is a static pod, of a file on the node, and the API server has it under another UID: only "
            "pods that are created at the API server get a resolver, so create it there"
        )
    return "the API server has another pod of this name on this node"
