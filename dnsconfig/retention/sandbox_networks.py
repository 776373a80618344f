# SPDX-License-Identifier: Apache-2.0
"""Which networks each pod's sandbox is attached to, whatever the pod's label says by now. Pure.

A label may be changed at any time; the sandbox stays where it was made, with the Services of that
network and with nothing that leads to another's server. How it is known:

- of a guest kata-bridge tells it. That counts until kata-bridge, having told of all its guests, has
  none for the pod: the next sandbox is made by the label of then.
- of any other pod nobody tells it. Where the pod's status says when its sandbox was there, it is the
  network of the label when that was first seen. Where the status does not (a kubelet before 1.29), it
  is that of the first resolver that the pod was given, for as long as the pod lives.

Where this is wrong, as of a label that was changed after the sandbox was made and before the kubelet
said so (it may pull images first), nobody is moved all the same: kata-bridge knows what each sandbox is
attached to, and gives it nothing of others.
"""

from dataclasses import dataclass, replace

from bridge_api.messages import Guest
from dnsconfig.cluster.objects import SANDBOX, PodCondition, PodObject
from dnsconfig.resolve.network import networks_of


@dataclass(frozen=True, slots=True)
class Attachment:
    """What a pod's sandbox is attached to, by word of kata-bridge (`is_guest`) or as far as it is known.

    `since` is when the pod's status says that the sandbox was there, as it stands there; empty where
    it has not said so.
    """

    networks: tuple[str, ...]
    is_guest: bool = False
    since: str = ""


class Attachments:
    """All by the pods' UIDs."""

    def __init__(self) -> None:
        self.known: dict[str, Attachment] = {}

    def look(self, pod: PodObject, guest: Guest | None, *, has_all_guests: bool) -> tuple[str, ...]:
        """The networks of the pod's sandbox; none where there is no sandbox, or nothing is known of it.

        `has_all_guests`: kata-bridge has told of all its guests, so that a pod without one has none.
        """
        uid = pod.metadata.uid
        if guest is not None and guest.networks:
            self.known[uid] = Attachment(guest.networks, is_guest=True)
            return guest.networks
        said = next((each for each in pod.status.conditions or () if each.type == SANDBOX), None)
        known = self.known.pop(uid, None)
        if known is not None:
            known = _still(known, said, has_all_guests=has_all_guests)
        if known is None and has_all_guests and _is_there(said):
            known = Attachment(networks_of(pod.metadata.labels), since=_since(said))
        if known is None:
            return ()
        self.known[uid] = known
        return known.networks

    def given(self, uid: str, networks: tuple[str, ...]) -> None:
        """The pod was given a resolver that is for these; the first one counts."""
        if networks:
            self.known.setdefault(uid, Attachment(networks))

    def forget(self, uid: str) -> None:
        self.known.pop(uid, None)


def _is_there(said: PodCondition | None) -> bool:
    return said is not None and said.status == "True"


def _since(said: PodCondition | None) -> str:
    return "" if said is None else said.last_transition_time or ""


def _still(known: Attachment, said: PodCondition | None, *, has_all_guests: bool) -> Attachment | None:
    """What is known of a pod that has no guest now; None where that sandbox has gone."""
    if known.is_guest:
        return None if has_all_guests else known
    if said is None:
        return known
    is_another = bool(known.since) and _since(said) != known.since  # it went and came between two looks
    if is_another or not _is_there(said):
        return None
    return replace(known, since=_since(said))
