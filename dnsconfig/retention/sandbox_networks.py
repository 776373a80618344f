# SPDX-License-Identifier: Apache-2.0
"""Which networks each pod's sandbox is attached to, whatever the pod's label is by now.

A label may change at any time. The sandbox stays attached where it was created, with the Services
of that network and without a route to another network's server. Sources:

- For guests, kata-bridge reports it. That counts until kata-bridge, with all guests reported, has
  none for the pod: the next sandbox is created by the label of that time.
- For pods that are not guests, kata-bridge reports nothing. If the pod's status has the condition
  PodReadyToStartContainers, the label counts that was seen with it first. Otherwise (a kubelet
  before 1.29) the network of the pod's first resolver counts, for the pod's life.

This is wrong if a label changes after the sandbox was created and before the kubelet sets the condition (it
may pull images first). No pod is moved then either: kata-bridge knows the networks of each sandbox, and
applies no resolver of others.
"""

from dataclasses import dataclass, replace

from bridge_api.messages import Guest
from dnsconfig.cluster.objects import SANDBOX_READY, PodCondition, PodObject
from dnsconfig.resolve.network import networks_of


@dataclass(frozen=True, slots=True)
class KnownSandbox:
    """The networks of a pod's sandbox, reported by kata-bridge (`is_guest`) or inferred.

    `since` is the condition's lastTransitionTime, or empty without the condition.
    """

    networks: tuple[str, ...]
    is_guest: bool = False
    since: str = ""


class SandboxNetworks:
    """By the UIDs of pods."""

    def __init__(self) -> None:
        self.known: dict[str, KnownSandbox] = {}

    def observe(self, pod: PodObject, guest: Guest | None, *, has_all_guests: bool) -> tuple[str, ...]:
        """The networks of the pod's sandbox; empty without a known sandbox.

        `has_all_guests`: kata-bridge has reported all guests, so that a pod without one is not a guest.
        """
        uid = pod.metadata.uid
        if guest is not None and guest.networks:
            self.known[uid] = KnownSandbox(guest.networks, is_guest=True)
            return guest.networks
        conditions = pod.status.conditions or ()
        condition = next((each for each in conditions if each.type == SANDBOX_READY), None)
        known = self.known.pop(uid, None)
        if known is not None:
            known = _still(known, condition, has_all_guests=has_all_guests)
        if known is None and has_all_guests and _is_true(condition):
            known = KnownSandbox(networks_of(pod.metadata.labels), since=_since(condition))
        if known is None:
            return ()
        self.known[uid] = known
        return known.networks

    def infer(self, uid: str, networks: tuple[str, ...]) -> None:
        """The pod got a resolver of these networks; the first one counts."""
        if networks:
            self.known.setdefault(uid, KnownSandbox(networks))

    def forget(self, uid: str) -> None:
        self.known.pop(uid, None)


def _is_true(condition: PodCondition | None) -> bool:
    return condition is not None and condition.status == "True"


def _since(condition: PodCondition | None) -> str:
    return "" if condition is None else condition.last_transition_time or ""


def _still(
    known: KnownSandbox, condition: PodCondition | None, *, has_all_guests: bool
) -> KnownSandbox | None:
    """The present sandbox networks of a pod without a guest; None where that sandbox is gone."""
    if known.is_guest:
        return None if has_all_guests else known
    if condition is None:
        return known
    is_another = bool(known.since) and _since(condition) != known.since  # recreated between two syncs
    if is_another or not _is_true(condition):
        return None
    return replace(known, since=_since(condition))
