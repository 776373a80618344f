# SPDX-License-Identifier: Apache-2.0
"""Which networks each pod's sandbox is attached to, whatever the pod's label says by now. Pure.

A label may be changed at any time; the sandbox stays where it was made, with the Services of that
network and with nothing that leads to another's server. How it is known:

- of a guest kata-bridge tells it. That counts until kata-bridge, having told of all its guests, has
  none for the pod: the next sandbox is made by the label of then.
- of any other pod nobody tells it. It is the network of the first resolver that the pod was given,
  until the pod's status says that its sandbox has gone or is another; where the status says
  nothing of sandboxes, for as long as the pod lives.
"""

from dataclasses import dataclass, replace

from dnsconfig.core.wire import SANDBOX, PodObject
from kata_bridge.api.messages import Guest


@dataclass(frozen=True, slots=True)
class Attachment:
    """What a pod's sandbox is attached to, by word of kata-bridge (`is_guest`) or by the first resolver.

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
        known = self.known.get(uid)
        if known is None:
            return ()
        known = _still(known, pod, has_all_guests=has_all_guests)
        if known is None:
            del self.known[uid]
            return ()
        self.known[uid] = known
        return known.networks

    def given(self, uid: str, networks: tuple[str, ...]) -> None:
        """The pod was given a resolver that is for these; the first one counts."""
        if networks:
            self.known.setdefault(uid, Attachment(networks))

    def forget(self, uid: str) -> None:
        self.known.pop(uid, None)


def _still(known: Attachment, pod: PodObject, *, has_all_guests: bool) -> Attachment | None:
    """What is known of a pod that has no guest now; None where that sandbox has gone."""
    if known.is_guest:
        return None if has_all_guests else known
    said = next((each for each in pod.status.conditions or () if each.type == SANDBOX), None)
    if said is None:
        return known
    if said.status != "True":
        return None
    since = said.last_transition_time or ""
    if known.since and since != known.since:
        return None  # it went and came again, between two looks
    return replace(known, since=since)
