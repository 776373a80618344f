# SPDX-License-Identifier: Apache-2.0
"""Writes a guest's rules for nft, with maps: one lookup for any number of Services.

Map `services` leads to the chains of Service ports with several endpoints or affinity. Map `endpoints`
translates those with one endpoint. Map `refusals` has the frontends without endpoints, set
`service-cidrs` the ranges whose untranslated packets are rejected. Lines are written as nft 1.0.6 prints.

The nat chain has a priority behind iptables' nat (-100), so a mesh's rules act first: the kernel runs the
nat chains of a hook by priority until one translates.
"""

from ruleset.document import Document
from ruleset.model import Endpoint, EndpointSet, Family, GuestRules, NoBackendAction
from ruleset.names import Backend, endpoint_chain, endpoint_set_chain
from ruleset.render.frontends import in_dispatch_order, is_renderable, merged_cidrs
from ruleset.syntax.nft import FAMILIES, duration

NAT_PRIORITY = -95

AFFINITY_CLIENTS = 1024
"""Clients in an endpoint's affinity set. All are addresses of the guest itself, which has few."""

_KEY = "meta l4proto . th dport"
# filter sees each packet after nat, and skips translated ones.
_UNTRANSLATED = "ct state new ct status ! dnat"
_REFUSE = ("reject with tcp reset", "reject")


def render(rules: GuestRules) -> Document:
    """The nft document of these rules."""
    ip = FAMILIES[rules.family]
    address = "ipv4_addr" if rules.family is Family.IPV4 else "ipv6_addr"
    key = f"type {address} . inet_proto . inet_service"
    services: list[str] = []
    endpoints: list[str] = []
    refusals: list[str] = []
    chains: dict[str, tuple[str, ...]] = {}
    for service in in_dispatch_order(rules):
        for frontend in filter(is_renderable, service.frontends):
            match = f"{frontend.ip} . {frontend.protocol.value} . {frontend.port}"
            to = frontend.to
            if isinstance(to, NoBackendAction):
                refusals.append(f"{match} : {'drop' if to is NoBackendAction.DROP else 'goto refuse'}")
            elif len(to.endpoints) == 1 and to.affinity_s is None:
                endpoints.append(f"{match} : {_pair(to.endpoints[0])}")
            else:
                chain = endpoint_set_chain(to)
                services.append(f"{match} : goto {chain}")
                if f"chain {chain}" not in chains:
                    chains.update(_choice_chains(to, chain, ip, address))
    return Document(
        rules.family,
        Backend.NFT,
        {
            "chain nat-output": (
                f"type nat hook output priority {NAT_PRIORITY}; policy accept;",
                f"{ip} daddr . {_KEY} vmap @services",
                f"meta l4proto {{ tcp, udp, sctp }} dnat {ip} to {ip} daddr . {_KEY} map @endpoints",
            ),
            "chain filter-output": (
                "type filter hook output priority filter; policy accept;",
                f"{_UNTRANSLATED} {ip} daddr . {_KEY} vmap @refusals",
                f"{_UNTRANSLATED} {ip} daddr @service-cidrs goto refuse",
            ),
            "chain refuse": _REFUSE,
            "map services": (f"{key} : verdict", *sorted(services)),
            "map endpoints": (f"{key} : {address} . inet_service", *sorted(endpoints)),
            "map refusals": (f"{key} : verdict", *sorted(refusals)),
            "set service-cidrs": (f"type {address}", "flags interval", *sorted(merged_cidrs(rules))),
            **chains,
        },
    )


def _pair(endpoint: Endpoint) -> str:
    return f"{endpoint.ip} . {endpoint.port}"


def _choice_chains(to: EndpointSet, chain: str, ip: str, address: str) -> dict[str, tuple[str, ...]]:
    """The chain that chooses an endpoint, and with affinity a set of clients for each endpoint."""
    one_of = f"numgen random mod {len(to.endpoints)}"
    translate = f"meta l4proto {to.protocol.value} dnat"
    if to.affinity_s is None:
        choices = ", ".join(f"{i} : {_pair(endpoint)}" for i, endpoint in enumerate(to.endpoints))
        return {f"chain {chain}": (f"{translate} {ip} to {one_of} map {{ {choices} }}",)}
    names = [endpoint_chain(to, endpoint) for endpoint in to.endpoints]
    # nft cannot change a set's timeout. With the timeout in its name a change makes a new set, and other
    # Services keep their clients.
    time = duration(to.affinity_s)
    returning = (f"{ip} saddr @{name}-{time} goto {name}" for name in names)
    choices = ", ".join(f"{i} : goto {name}" for i, name in enumerate(names))
    fresh = f"{one_of} vmap {{ {choices} }}" if len(names) > 1 else f"goto {names[0]}"
    made = {f"chain {chain}": (*returning, fresh)}
    clients = (f"type {address}", f"size {AFFINITY_CLIENTS}", "flags dynamic,timeout", f"timeout {time}")
    for name, endpoint in zip(names, to.endpoints, strict=True):
        # Each new connection restarts the timeout, as with `recent --set`.
        made[f"chain {name}"] = (f"update @{name}-{time} {{ {ip} saddr }} {translate} to {endpoint}",)
        made[f"set {name}-{time}"] = clients
    return made
