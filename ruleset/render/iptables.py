# SPDX-License-Identifier: Apache-2.0
"""Writes a guest's rules for iptables, in the flat shape: as few rules as do the same.

nat: a Service port with one endpoint is translated where it is dispatched; with several, in a chain
of weighted rules. Client affinity needs a chain for each endpoint, whose name is also that of the
list of clients who went there. filter: what goes to no endpoint is refused there, and after that
whatever is still addressed to a service range.

Both hooks are appended. A mesh's rules in nat come first and see cluster IPs, as they would on a
node where kube-proxy acts outside the pod. What its proxy sends returns from its chain and meets
ours. In filter, packets that were translated are let by first: an endpoint may lie in the service
range itself, and whoever got to a Service is not to be refused.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from ruleset.document import Document
from ruleset.model import EndpointSet, Family, Frontend, GuestRules, NoBackendAction, ServiceRules
from ruleset.names import SERVICES, Backend, endpoint_chain, endpoint_set_chain
from ruleset.render.frontends import in_dispatch_order, is_renderable, merged_cidrs

HOOKS = {
    "nat/OUTPUT": (f"-j {SERVICES}",),
    "filter/OUTPUT": (f"-m conntrack --ctstate NEW -j {SERVICES}",),
}

RETURN_TRANSLATED = "-m conntrack --ctstate DNAT -j RETURN"

MAX_FRAGMENTS = 16384
MAX_KEPT_RULES = 200_000
"""Services, and rules of them all, that a renderer keeps: some tens of megabytes. A Service of one
tenant can have a hundred thousand rules, and be another one at each of its changes."""

_HOST = {Family.IPV4: "/32", Family.IPV6: "/128"}
_MASK = {Family.IPV4: "255.255.255.255", Family.IPV6: ":".join(["ffff"] * 8)}
_UNREACHABLE = {
    Family.IPV4: "REJECT --reject-with icmp-port-unreachable",
    Family.IPV6: "REJECT --reject-with icmp6-port-unreachable",
}
_RESET = "REJECT --reject-with tcp-reset"


@dataclass(frozen=True, slots=True)
class _Fragment:
    """What one Service adds."""

    dispatch: tuple[str, ...]
    refusals: tuple[str, ...]
    chains: Mapping[str, tuple[str, ...]]
    size: int


class Renderer:
    """Renders one model after another, and writes again only the Services that are new values.

    Not a function because a thousand Services are rendered anew each time one of them changes.
    """

    def __init__(self) -> None:
        # By identity, and with the Service beside its fragment, so that no other can take its id.
        # Values of Services are kept by whoever computes them; to hash one costs as much as this saves.
        self._kept: OrderedDict[tuple[int, Family], tuple[ServiceRules, _Fragment]] = OrderedDict()
        self.kept_rules = 0

    def render(self, rules: GuestRules) -> Document:
        """The iptables document of these rules."""
        dispatch: list[str] = []
        refusals: list[str] = []
        objects: dict[str, tuple[str, ...]] = dict(HOOKS)
        for service in in_dispatch_order(rules):
            fragment = self._fragment(service, rules.family)
            dispatch += fragment.dispatch
            refusals += fragment.refusals
            objects.update(fragment.chains)
        objects[f"nat/{SERVICES}"] = tuple(dispatch)
        objects[f"filter/{SERVICES}"] = (RETURN_TRANSLATED, *refusals, *_catch_all(rules))
        return Document(rules.family, Backend.IPTABLES, objects)

    def _fragment(self, service: ServiceRules, family: Family) -> _Fragment:
        key = (id(service), family)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept[1]
        fragment = _render(service, family)
        self._kept[key] = (service, fragment)
        self.kept_rules += fragment.size
        while len(self._kept) > MAX_FRAGMENTS or self.kept_rules > MAX_KEPT_RULES:
            _, (_, dropped) = self._kept.popitem(last=False)
            self.kept_rules -= dropped.size
        return fragment


def render(rules: GuestRules) -> Document:
    """The iptables document of these rules; see `Renderer` for many."""
    return Renderer().render(rules)


def weight(endpoints_left: int) -> str:
    """The probability of a rule with so many endpoints to choose from, with ten decimals."""
    return f"{1 / endpoints_left:.10f}"


def _render(service: ServiceRules, family: Family) -> _Fragment:
    dispatch: list[str] = []
    refusals: list[str] = []
    chains: dict[str, tuple[str, ...]] = {}
    for frontend in service.frontends:
        if not is_renderable(frontend):
            continue
        match = _match(frontend, family)
        target = frontend.to
        if isinstance(target, NoBackendAction):
            refusals.append(f"{match} -j {_refusal(frontend, target, family)}")
        elif len(target.endpoints) == 1 and target.affinity_s is None:
            dispatch.append(f"{match} -j DNAT --to-destination {target.endpoints[0]}")
        else:
            chain = endpoint_set_chain(target)
            dispatch.append(f"{match} -j {chain}")
            if f"nat/{chain}" not in chains:
                chains.update(_choice(target, chain, family))
    size = len(dispatch) + len(refusals) + sum(map(len, chains.values()))
    return _Fragment(tuple(dispatch), tuple(refusals), chains, size)


def _match(frontend: Frontend, family: Family) -> str:
    protocol = frontend.protocol.value
    return f"-d {frontend.ip}{_HOST[family]} -p {protocol} -m {protocol} --dport {frontend.port}"


def _refusal(frontend: Frontend, refusal: NoBackendAction, family: Family) -> str:
    if refusal is NoBackendAction.DROP:
        return "DROP"
    # An ICMPv6 error makes connect() fail only at its first retransmission, after a second (seen on
    # Linux 6.18); a reset does at once. For IPv4 the ICMP error does too.
    is_slow = family is Family.IPV6 and frontend.protocol.value == "tcp"
    return _RESET if is_slow else _UNREACHABLE[family]


def _catch_all(rules: GuestRules) -> list[str]:
    lines: list[str] = []
    for cidr in merged_cidrs(rules):
        if rules.family is Family.IPV6:
            lines.append(f"-d {cidr} -p tcp -j {_RESET}")
        lines.append(f"-d {cidr} -j {_UNREACHABLE[rules.family]}")
    return lines


def _choice(target: EndpointSet, chain: str, family: Family) -> dict[str, tuple[str, ...]]:
    """The chain that chooses an endpoint, and with affinity those of the endpoints."""
    protocol = target.protocol.value
    count = len(target.endpoints)
    # Rule i takes 1/(n-i) of what the rules before it left: every endpoint gets the same share.
    weights = [f"-m statistic --mode random --probability {weight(count - i)} " for i in range(count - 1)]
    weights.append("")
    if target.affinity_s is None:
        rules = (
            f"-p {protocol} {chance}-j DNAT --to-destination {endpoint}"
            for chance, endpoint in zip(weights, target.endpoints, strict=True)
        )
        return {f"nat/{chain}": tuple(rules)}
    endpoints = {endpoint_chain(target, endpoint): endpoint for endpoint in target.endpoints}
    known = (f"--name {name} --mask {_MASK[family]} --rsource" for name in endpoints)
    seen = f"-m recent --rcheck --seconds {target.affinity_s} --reap"
    returning = [f"{seen} {who} -j {name}" for who, name in zip(known, endpoints, strict=True)]
    fresh = [f"{chance}-j {name}" for chance, name in zip(weights, endpoints, strict=True)]
    made = {f"nat/{chain}": (*returning, *fresh)}
    for name, endpoint in endpoints.items():
        remember = f"-m recent --set --name {name} --mask {_MASK[family]} --rsource"
        made[f"nat/{name}"] = (f"-p {protocol} {remember} -j DNAT --to-destination {endpoint}",)
    return made
