# SPDX-License-Identifier: Apache-2.0
"""Guests of tenants without a pod: made by hand, of another time, or before the API server has told. Pure."""

from collections.abc import Collection, Iterable

from bridge_api.messages import Guest
from dnsconfig.cluster.objects import MIRROR
from dnsconfig.cluster.snapshot import Picture


def strangers(guests: Iterable[Guest], picture: Picture, given: Collection[str]) -> dict[str, Guest]:
    """Those of whose pods nothing is known, by their ids; `given` are UIDs of pods that had a resolver."""
    pods = picture.pods or {}
    known = {pod.metadata.uid for pod in pods.values()} | set(given)
    return {
        guest.id: guest
        for guest in guests
        if guest.tenant
        and (guest.uid not in known if guest.uid else (guest.namespace, guest.name) not in pods)
    }


def why(guest: Guest, picture: Picture) -> str:
    """What a stranger's containers wait for, for a person.

    A static pod's sandbox has the UID that the kubelet made of its file, and what the API server has
    is a mirror of it with a UID of its own. The mirror's annotation names the first, but anybody who
    may create a pod may write that annotation, so that it makes nobody's resolver.
    """
    unreadable = picture.unreadable.get(("Pod", (guest.namespace, guest.name)))
    if unreadable is not None:
        return f"the pod's object cannot be read: {unreadable}"
    if picture.pods is None:
        return "the API server has not told of this node's pods yet"
    namesake = picture.pods.get((guest.namespace, guest.name))
    if namesake is None:
        return "the API server has no such pod on this node (any more)"
    if MIRROR in namesake.metadata.annotations:
        return (
            "it is a static pod, of a file on the node, which the API server knows under another UID: only "
            "pods that are created at the API server are given a resolver, so create it there"
        )
    return "the API server has another pod of this name on this node by now"
