# SPDX-License-Identifier: Apache-2.0
"""What `vcnode explain` says of the canary: the reserved address that answers while rules are in. Pure.

It answers by a rule like any other, so in an older generation too: what it tests is that a whole
ruleset of ours is in the guest, and not which.
"""

from collections.abc import Iterator

from kubeproxy_ext.compute.rules_probe import NAME as NAME
from ruleset.model import Endpoint, EndpointSet, GuestRules
from ruletrace.packet import Packet, Trace


def notes(rules: GuestRules, packet: Packet, guest: Trace | None, current: int | None) -> Iterator[str]:
    """What the address is for, and what whoever waits for it sees; nothing of any other packet.

    `rules` are those that the guest is to have, `guest` the packet's way in the guest if it is known,
    `current` the generation that is in if it is the current one.
    """
    to = _canary_of(rules, packet)
    if to is None:
        return
    yield (
        f"{Endpoint(packet.destination, packet.port)} is the canary: it leads a guest to its own loopback "
        "while rules of ours are in, and is what the init container of packaging/canary waits for"
    )
    if guest is None:
        yield "whether it is in the guest is not known"
        return
    has = "has not the current generation" if current is None else f"has the current generation, {current}"
    if guest.outcomes == frozenset(to.endpoints):
        but = ", but rules that have the canary" if current is None else ""
        yield f"the guest {has}{but}: whoever waits for it is let go"
    else:
        yield f"the guest {has}, and no rule for the canary: whoever waits for it still waits"


def _canary_of(rules: GuestRules, packet: Packet) -> EndpointSet | None:
    """Where the canary leads, if that is where the packet is to go."""
    place = (packet.destination, packet.port, packet.protocol)
    for one in rules.frontends():
        if one.service_port == NAME and (one.ip, one.port, one.protocol) == place:
            return one.to if isinstance(one.to, EndpointSet) else None
    return None
