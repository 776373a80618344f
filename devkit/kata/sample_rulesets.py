# SPDX-License-Identifier: Apache-2.0
"""Small rulesets for guests."""

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
from ruleset.render.iptables import render

# Per family: the range of Services and that of pods.
_SERVICES = {Family.IPV4: "10.96.0.", Family.IPV6: "fd00:96::"}
_PODS = {Family.IPV4: "10.0.0.", Family.IPV6: "fd00:10::"}
CIDRS = {Family.IPV4: "10.96.0.0/16", Family.IPV6: "fd00:96::/112"}


def service(
    number: int, endpoints: int, family: Family = Family.IPV4, affinity_s: int | None = None
) -> ServiceRules:
    """Service `team/app-NUMBER` at .NUMBER, TCP port 80; without endpoints it is rejected."""
    name = f"team/app-{number}"
    to: EndpointSet | NoBackendAction = NoBackendAction.REJECT
    if endpoints:
        places = sorted((Endpoint(f"{_PODS[family]}{n + 1}", 8080) for n in range(endpoints)), key=str)
        to = EndpointSet(f"{name}:http", Protocol.TCP, False, tuple(places), affinity_s)
    frontend = Frontend(f"{_SERVICES[family]}{number}", 80, Protocol.TCP, f"{name}:http", to)
    return ServiceRules(name, (frontend,))


def sample(
    generation: int,
    endpoints: int = 2,
    *,
    families: tuple[Family, ...] = (Family.IPV4,),
    services: int = 3,
    affinity_s: int | None = None,
) -> Ruleset:
    """`services` Services with 0, 1 and `endpoints` endpoints in rotation, and the catch-all."""
    counts = [(0, 1, endpoints)[number % 3] for number in range(services)]
    return make_ruleset(
        generation,
        [
            render(
                GuestRules(
                    family,
                    tuple(service(n + 1, count, family, affinity_s) for n, count in enumerate(counts)),
                    (CIDRS[family],),
                )
            )
            for family in families
        ],
    )
