# SPDX-License-Identifier: Apache-2.0
"""Deliveries to present guests with desired rules, and the bridge's results of pushes."""

from typing import Any

from bridge_api.messages import Capabilities, Guest, GuestResult, ResultCode
from kubeproxy_ext.compute.guest_view import GuestRulesResult, ServingEndpoints
from kubeproxy_ext.delivery.queue import DesiredRuleset, RulesetDelivery, RulesetPush
from ruleset.document import make_ruleset
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules
from ruleset.render.iptables import render

CAPABLE = Capabilities(channel="agent", backends=("iptables",), deltas=True, conntrack=True)


def desired(
    generation: int, *ports: int, protocol: Protocol = Protocol.TCP, serving: int = 0
) -> DesiredRuleset:
    """Eight Services whose endpoints have the ports 8000 and so on, but for the first ones."""
    numbers = [*ports, *range(8000 + len(ports), 8008)]
    services = []
    for number, port in enumerate(numbers):
        ends = (Endpoint("10.0.0.1", port), Endpoint("10.0.0.2", port))
        target = EndpointSet(f"ns/s{number}:p", protocol, is_local=False, endpoints=ends)
        frontend = Frontend(f"10.96.0.{number}", 80, protocol, f"ns/s{number}:p", target)
        services.append(ServiceRules(f"ns/s{number}", (frontend,)))
    rules = GuestRules(Family.IPV4, tuple(services))
    ends = (Endpoint("10.0.0.1", numbers[0]), Endpoint("10.0.0.2", numbers[0]))
    serves = (ServingEndpoints("ns/s0:p", protocol, ends[: 2 - serving]),)
    return DesiredRuleset(make_ruleset(generation, [render(rules)]), (GuestRulesResult(rules, serves),))


ONE, TWO, THREE = desired(1), desired(2, 9000), desired(3, 9001)


def guest(name: str, digest: str = "", tenant: str = "a", **fields: Any) -> Guest:
    known: dict[str, Any] = {"id": name, "tenant": tenant, "digest": digest, "capabilities": CAPABLE}
    return Guest(**(known | fields))


def delivery(*names: str, set_desired: DesiredRuleset = ONE) -> RulesetDelivery:
    made = RulesetDelivery()
    for name in names:
        made.on_guest(guest(name), 0.0)
        made.set_desired(name, set_desired, 0.0)
    return made


def report(
    made: RulesetDelivery,
    push: RulesetPush,
    code: ResultCode,
    now: float = 0.0,
    digest: str = "",
    text: str = "",
) -> None:
    for name in push.guests:
        made.on_result(push, GuestResult(name, code, text, 0, digest), now)


def applied(made: RulesetDelivery, now: float = 0.0) -> tuple[RulesetPush, ...]:
    """Let everything that is planned be applied."""
    pushes = made.take_due(now)
    for push in pushes:
        report(made, push, ResultCode.APPLIED, now)
    return pushes
