# SPDX-License-Identifier: Apache-2.0
"""Writes a guest's rules for iptables, with fewer chains and rules than kube-proxy.

nat: the dispatch chain translates a Service port with one endpoint; one with several has a chain of
weighted rules. Client affinity needs a chain for each endpoint, with a list of clients of the same name.
filter: frontends without endpoints are rejected or dropped, then all other packets to service ranges.

Both hooks are appended. A mesh's rules in nat come first and see cluster IPs, as on a node where
kube-proxy acts outside the pod. Packets of the mesh's proxy return from its chain to ours. filter returns
translated packets first, because an endpoint may lie in a service range.
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
MAX_CACHED_RULES = 200_000
"""Services, and rules of all of them, that a renderer caches: some tens of megabytes. One Service can have
a hundred thousand rules, and is a new value at each change."""

_HOST = {Family.IPV4: "/32", Family.IPV6: "/128"}
_MASK = {Family.IPV4: "255.255.255.255", Family.IPV6: ":".join(["ffff"] * 8)}
_UNREACHABLE = {
    Family.IPV4: "REJECT --reject-with icmp-port-unreachable",
    Family.IPV6: "REJECT --reject-with icmp6-port-unreachable",
}
_RESET = "REJECT --reject-with tcp-reset"


@dataclass(frozen=True, slots=True)
class _Fragment:
    """The rules of one Service."""

    dispatch: tuple[str, ...]
    refusals: tuple[str, ...]
    chains: Mapping[str, tuple[str, ...]]
    size: int


class Renderer:
    """Renders models one after another. It caches Services, because most stay the same between two models."""

    def __init__(self) -> None:
        # By identity, because to hash a Service costs as much as the cache saves. The Service stands beside
        # its fragment, so its id stays taken.
        self._cache: OrderedDict[tuple[int, Family], tuple[ServiceRules, _Fragment]] = OrderedDict()
        self.cached_rules = 0

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
        kept = self._cache.get(key)
        if kept is not None:
            self._cache.move_to_end(key)
            return kept[1]
        fragment = _render(service, family)
        self._cache[key] = (service, fragment)
        self.cached_rules += fragment.size
        while len(self._cache) > MAX_FRAGMENTS or self.cached_rules > MAX_CACHED_RULES:
            _, (_, dropped) = self._cache.popitem(last=False)
            self.cached_rules -= dropped.size
        return fragment


def render(rules: GuestRules) -> Document:
    """The iptables document of these rules; for many models see `Renderer`."""
    return Renderer().render(rules)


def weight(endpoints_left: int) -> str:
    """The probability of a rule with so many endpoints left, with ten decimals."""
    return f"{1 / endpoints_left:.10f}"


def _render(service: ServiceRules, family: Family) -> _Fragment:
    dispatch: list[str] = []
    refusals: list[str] = []
    chains: dict[str, tuple[str, ...]] = {}
    for frontend in service.frontends:
        if not is_renderable(frontend):
            continue
        match = _match(frontend, family)
        to = frontend.to
        if isinstance(to, NoBackendAction):
            refusals.append(f"{match} -j {_rejection(frontend, to, family)}")
        elif len(to.endpoints) == 1 and to.affinity_s is None:
            dispatch.append(f"{match} -j DNAT --to-destination {to.endpoints[0]}")
        else:
            chain = endpoint_set_chain(to)
            dispatch.append(f"{match} -j {chain}")
            if f"nat/{chain}" not in chains:
                chains.update(_choice_chains(to, chain, family))
    size = len(dispatch) + len(refusals) + sum(map(len, chains.values()))
    return _Fragment(tuple(dispatch), tuple(refusals), chains, size)


def _match(frontend: Frontend, family: Family) -> str:
    protocol = frontend.protocol.value
    return f"-d {frontend.ip}{_HOST[family]} -p {protocol} -m {protocol} --dport {frontend.port}"


def _rejection(frontend: Frontend, action: NoBackendAction, family: Family) -> str:
    if action is NoBackendAction.DROP:
        return "DROP"
    # After an ICMPv6 error connect() fails only with its first retransmission, after 1 s (Linux 6.18);
    # after a reset at once. For IPv4 it fails at once after the ICMP error too.
    is_slow = family is Family.IPV6 and frontend.protocol.value == "tcp"
    return _RESET if is_slow else _UNREACHABLE[family]


def _catch_all(rules: GuestRules) -> list[str]:
    lines: list[str] = []
    for cidr in merged_cidrs(rules):
        if rules.family is Family.IPV6:
            lines.append(f"-d {cidr} -p tcp -j {_RESET}")
        lines.append(f"-d {cidr} -j {_UNREACHABLE[rules.family]}")
    return lines


def _choice_chains(to: EndpointSet, chain: str, family: Family) -> dict[str, tuple[str, ...]]:
    """The chain that chooses an endpoint; with affinity also a chain for each endpoint."""
    protocol = to.protocol.value
    count = len(to.endpoints)
    # Rule i takes 1/(n-i) of what the rules before it left, so all endpoints get equal shares.
    weights = [f"-m statistic --mode random --probability {weight(count - i)} " for i in range(count - 1)]
    weights.append("")
    if to.affinity_s is None:
        rules = (
            f"-p {protocol} {chance}-j DNAT --to-destination {endpoint}"
            for chance, endpoint in zip(weights, to.endpoints, strict=True)
        )
        return {f"nat/{chain}": tuple(rules)}
    endpoints = {endpoint_chain(to, endpoint): endpoint for endpoint in to.endpoints}
    known = (f"--name {name} --mask {_MASK[family]} --rsource" for name in endpoints)
    seen = f"-m recent --rcheck --seconds {to.affinity_s} --reap"
    returning = [f"{seen} {who} -j {name}" for who, name in zip(known, endpoints, strict=True)]
    fresh = [f"{chance}-j {name}" for chance, name in zip(weights, endpoints, strict=True)]
    made = {f"nat/{chain}": (*returning, *fresh)}
    for name, endpoint in endpoints.items():
        remember = f"-m recent --set --name {name} --mask {_MASK[family]} --rsource"
        made[f"nat/{name}"] = (f"-p {protocol} {remember} -j DNAT --to-destination {endpoint}",)
    return made
