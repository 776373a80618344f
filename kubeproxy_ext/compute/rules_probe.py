# SPDX-License-Identifier: Apache-2.0
"""The rules probe: an address that answers in a guest only while a ruleset is applied.

An init container listens on its loopback and connects to the reserved address. It reaches itself exactly
when the guest's packet filter has a ruleset, and needs no privilege for that. To the renderers, tracers and
reconcilers the probe is a Service like any other.
"""

from dataclasses import dataclass, replace

from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules

# No Kubernetes object has this name: a namespace begins with a letter or a digit.
NAME = "-/rules-probe"
_LOOPBACK = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}


@dataclass(frozen=True, slots=True)
class RulesProbe:
    """The reserved address of each family, if any, and the port, also that of the listener."""

    ipv4: str | None
    ipv6: str | None
    port: int

    def of(self, family: Family) -> str | None:
        return self.ipv4 if family is Family.IPV4 else self.ipv6


def with_rules_probe(rules: GuestRules, probe: RulesProbe | None) -> GuestRules:
    """The rules with the probe added, unless a Service has its address."""
    ip = None if probe is None else probe.of(rules.family)
    if probe is None or ip is None:
        return rules
    if any((each.ip, each.port) == (ip, probe.port) for each in rules.frontends()):
        return rules
    target = EndpointSet(NAME, Protocol.TCP, False, (Endpoint(_LOOPBACK[rules.family], probe.port),))
    service = ServiceRules(NAME, (Frontend(ip, probe.port, Protocol.TCP, NAME, target),))
    services = sorted((*rules.services, service), key=lambda each: each.service)
    return replace(rules, services=tuple(services))
