# SPDX-License-Identifier: Apache-2.0
"""Decisions of both renderers: which frontends are written, in which order, and the service ranges."""

import ipaddress
from collections.abc import Iterator

from ruleset.model import Family, Frontend, GuestRules, ServiceRules

DNS_PORT = 53

_NOT_OF_A_SERVICE = frozenset(("", "0.0.0.0", "::", "::1"))  # noqa: S104 - compared with, not listened on


def is_renderable(frontend: Frontend) -> bool:
    """Whether a guest may have a rule for it: it has a Service's address, not "any" or loopback.

    A node port would have those. In a guest the local addresses are the pod's own: with kube-proxy's LOCAL
    rule a pod that listens on 31000 would lose its traffic to the Service with this node port.
    """
    return frontend.ip not in _NOT_OF_A_SERVICE and not frontend.ip.startswith(("127.", "::ffff:"))


def in_dispatch_order(rules: GuestRules) -> Iterator[ServiceRules]:
    """The Services in the order of a dispatch chain: DNS, apiservers, then by name.

    The first rule that matches ends the walk through nat, and these two get most connections.
    """
    return iter(sorted(rules.services, key=_rank))


def _rank(service: ServiceRules) -> int:
    if any(frontend.port == DNS_PORT for frontend in service.frontends):
        return 0
    namespace, _, name = service.service.partition("/")
    return 1 if name == "kubernetes" and (namespace == "default" or namespace.endswith("-default")) else 2


def merged_cidrs(rules: GuestRules) -> tuple[str, ...]:
    """The service ranges of the model's family: merged, canonical and sorted."""
    if rules.family is Family.IPV6:
        six = (ipaddress.IPv6Network(cidr, strict=False) for cidr in rules.service_cidrs if ":" in cidr)
        return tuple(str(network) for network in ipaddress.collapse_addresses(six))
    four = (ipaddress.IPv4Network(cidr, strict=False) for cidr in rules.service_cidrs if ":" not in cidr)
    return tuple(str(network) for network in ipaddress.collapse_addresses(four))
