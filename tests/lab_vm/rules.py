# SPDX-License-Identifier: Apache-2.0
"""Rulesets for guests, made of Services in a few words."""

from ruleset.document import Ruleset, make_ruleset
from ruleset.model import (
    Endpoint,
    EndpointSet,
    Family,
    Frontend,
    GuestRules,
    NoBackendAction,
    Protocol,
    ServiceRules,
)
from ruleset.names import Backend
from ruleset.render.iptables import render as render_iptables
from ruleset.render.nft import render as render_nft

CIDRS = {Family.IPV4: "10.96.0.0/16", Family.IPV6: "fd00:96::/112"}


def service(
    name: str,
    ip: str,
    *endpoints: str,
    protocol: Protocol = Protocol.TCP,
    port: int = 80,
    affinity_s: int | None = None,
) -> ServiceRules:
    """One Service with one port; endpoints are addresses, and serve at 8080."""
    serving = tuple(sorted((Endpoint(each, 8080) for each in endpoints), key=str))
    full = f"default/{name}"
    to: EndpointSet | NoBackendAction = NoBackendAction.REJECT
    if serving:
        to = EndpointSet(f"{full}:p", protocol, False, serving, affinity_s)
    return ServiceRules(full, (Frontend(ip, port, protocol, f"{full}:p", to),))


def ruleset(generation: int, *services: ServiceRules, backend: Backend = Backend.IPTABLES) -> Ruleset:
    """These Services, and a reject for the rest of the ranges; both families."""
    documents = []
    for family, cidr in CIDRS.items():
        of_family = (each for each in services if (":" in each.frontends[0].ip) is (family is Family.IPV6))
        rules = GuestRules(family, tuple(sorted(of_family, key=lambda each: each.service)), (cidr,))
        documents.append(render_nft(rules) if backend is Backend.NFT else render_iptables(rules))
    return make_ruleset(generation, documents)
