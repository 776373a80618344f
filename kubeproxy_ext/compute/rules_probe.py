# SPDX-License-Identifier: Apache-2.0
"""The canary: an address in every guest that answers only while a ruleset of ours is in.

An init container that listens on its own loopback and connects to the reserved address reaches
itself exactly when the guest's packet filter has our rules: a test of them that needs no privilege.
It is a Service like another, so nothing that renders, traces or repairs knows of it.
"""

from dataclasses import dataclass, replace

from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules

# No Kubernetes object is called so: a namespace begins with a letter or a digit.
NAME = "-/canary"
_LOOPBACK = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}


@dataclass(frozen=True, slots=True)
class RulesProbe:
    """The reserved addresses, one or none for each family, and the port; it listens on the same one."""

    ipv4: str | None
    ipv6: str | None
    port: int

    def of(self, family: Family) -> str | None:
        return self.ipv4 if family is Family.IPV4 else self.ipv6


def with_rules_probe(rules: GuestRules, canary: RulesProbe | None) -> GuestRules:
    """The rules with the canary among them, but where a Service has its address."""
    ip = None if canary is None else canary.of(rules.family)
    if canary is None or ip is None:
        return rules
    if any((each.ip, each.port) == (ip, canary.port) for each in rules.frontends()):
        return rules
    target = EndpointSet(NAME, Protocol.TCP, False, (Endpoint(_LOOPBACK[rules.family], canary.port),))
    service = ServiceRules(NAME, (Frontend(ip, canary.port, Protocol.TCP, NAME, target),))
    services = sorted((*rules.services, service), key=lambda each: each.service)
    return replace(rules, services=tuple(services))
