# SPDX-License-Identifier: Apache-2.0
"""Which conntrack entries of a guest a change of rules makes stale.

An entry outlives the rule that made it.

- UDP: every datagram keeps the entry alive, so it would lead to a dead endpoint for ever. Entries are
  deleted unless their replies come from a serving endpoint. That covers Services without endpoints,
  deleted Services, and endpoints that change their port.
- TCP and SCTP: entries stay, so that connections to terminating endpoints can end. The exception are
  entries of packets that left before their rule was there: they were never translated, and block the
  connection until it times out.

Guests have no node ports, so no flow here has one.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kubeproxy_ext.compute.guest_view import GuestRulesResult
from ruleset.model import Endpoint, Frontend, NoBackendAction, Protocol, ServiceRules

_PortKey = tuple[str, Protocol]
_FrontendAddress = tuple[str, int, Protocol]


@dataclass(frozen=True, slots=True)
class StaleFlow:
    """Entries to delete, with the fields of `Flow` in bridge_api/bridge.proto.

    Those of `protocol` to `destination`:`port` whose replies come from none of `keep_replies_from`
    (`ip:port`). If `reply_source` and `reply_port` are set, only entries whose replies come from there. With
    `never_translated` only unreplied ones whose replies would come from the destination itself.
    """

    protocol: Protocol
    destination: str
    port: int
    reply_source: str = ""
    reply_port: int = 0
    never_translated: bool = False
    keep_replies_from: tuple[str, ...] = ()


def stale_flows(old: GuestRulesResult | None, new: GuestRulesResult) -> tuple[StaleFlow, ...]:
    """The flows to delete after a guest's rules changed from `old` to `new`, of one family; sorted.

    With `old` None the earlier rules are unknown, and all addresses count as new. A new guest needs no
    flush.
    """
    before = {rules.service: rules for rules in old.rules.services} if old else {}
    after = {rules.service: rules for rules in new.rules.services}
    had, have = _serving(old) if old else {}, _serving(new)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    # Once for each Service port, as it may have many addresses and endpoints.
    differing = {key for key in had.keys() | have.keys() if had.get(key) != have.get(key)}
    changed |= {port.partition(":")[0] for port, _ in differing}
    olds, news = _frontends_by_address(before, changed), _frontends_by_address(after, changed)
    flows = [
        StaleFlow(Protocol.UDP, ip, port)
        for ip, port, protocol in olds.keys() - news.keys()
        if protocol is Protocol.UDP
    ]
    texts = {key: tuple(map(str, endpoints)) for key, endpoints in have.items()}
    for address, frontend in news.items():
        flows += _repair(olds.get(address), frontend, differing, texts)
    return tuple(sorted(flows, key=_order))


def _repair(
    old: Frontend | None,
    new: Frontend,
    differing: Collection[_PortKey],
    texts: Mapping[_PortKey, tuple[str, ...]],
) -> Iterator[StaleFlow]:
    key = (new.service_port, new.protocol)
    is_new = (
        old is None
        or old.service_port != new.service_port
        or (isinstance(old.to, NoBackendAction) and not isinstance(new.to, NoBackendAction))
    )
    if new.protocol is Protocol.UDP:
        if is_new or key in differing:
            yield StaleFlow(new.protocol, new.ip, new.port, keep_replies_from=texts.get(key, ()))
    elif is_new:
        yield StaleFlow(new.protocol, new.ip, new.port, never_translated=True)


def _serving(result: GuestRulesResult) -> dict[_PortKey, tuple[Endpoint, ...]]:
    return {(one.service_port, one.protocol): one.endpoints for one in result.serving}


def _frontends_by_address(
    rules: Mapping[str, ServiceRules], names: set[str]
) -> dict[_FrontendAddress, Frontend]:
    """Frontends by address. `GuestRules` has each address once. An address that moves from one Service to
    another changes both, so `names` has both."""
    return {
        (frontend.ip, frontend.port, frontend.protocol): frontend
        for name in names
        if name in rules
        for frontend in rules[name].frontends
    }


def _order(flow: StaleFlow) -> tuple[str, int, str]:
    return flow.destination, flow.port, flow.protocol.value
