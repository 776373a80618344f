# SPDX-License-Identifier: Apache-2.0
"""The UDP destinations of a document are those of the model that it was rendered from."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ruleset.delta import difference
from ruleset.document import make_ruleset
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
from ruleset.render.frontends import is_renderable
from ruleset.udp_frontends import frontends_ended_by, udp_frontends
from tests.unit.ruleset.models import RENDERERS, everything, services


def _every_kind(family: Family) -> GuestRules:
    """A frontend of each kind, of UDP and TCP alike."""
    prefix = "172.31.0." if family is Family.IPV4 else "fd00:31::"
    frontends = []
    for number, protocol in enumerate((Protocol.UDP, Protocol.TCP), 1):
        some, other = Endpoint(f"{prefix}101", 53), Endpoint(f"{prefix}102", 53)
        targets: list[EndpointSet | NoBackendAction] = [
            EndpointSet("a/s:one", protocol, False, (some,)),
            EndpointSet("a/s:two", protocol, False, (some, other)),
            EndpointSet("a/s:sticky", protocol, False, (some, other), 60),
            *NoBackendAction,
        ]
        for offset, to in enumerate(targets):
            frontends.append(Frontend(f"{prefix}{10 * number + offset}", 53 + offset, protocol, "a/s", to))
    cidrs = (f"{prefix}0{'/24' if family is Family.IPV4 else '/112'}",)
    return GuestRules(family, (ServiceRules("a/s", tuple(frontends)),), cidrs)


_MODELS: list[Callable[[Family], GuestRules]] = [
    everything,
    _every_kind,
    lambda family: services(5, 2, family),
    lambda family: GuestRules(family, ()),
]


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("model", _MODELS)
def test_udp_frontends_of_a_document(
    model: Callable[[Family], GuestRules], backend: Backend, family: Family
) -> None:
    rules = model(family)
    expected = {
        Endpoint(one.ip, one.port)
        for service in rules.services
        for one in service.frontends
        if one.protocol is Protocol.UDP and is_renderable(one)
    }
    assert udp_frontends([RENDERERS[backend](rules)]) == expected


def _without(rules: GuestRules, left_out: int) -> GuestRules:
    """Without every third frontend; a service stays without any."""
    gone = set(list(rules.frontends())[left_out::3])
    kept = [
        ServiceRules(each.service, tuple(one for one in each.frontends if one not in gone))
        for each in rules.services
    ]
    return GuestRules(rules.family, tuple(kept), rules.service_cidrs)


def _without_endpoints(rules: GuestRules) -> GuestRules:
    """Each frontend is there, and has another line."""
    made = [
        replace(each, frontends=tuple(replace(one, to=NoBackendAction.REJECT) for one in each.frontends))
        for each in rules.services
    ]
    return replace(rules, services=tuple(made))


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("backend", Backend)
def test_a_delta_ends_what_the_whole_ruleset_would(backend: Backend, family: Family) -> None:
    """Of all pairs of models: also where an object goes, and where one line of many does."""
    models = [model(family) for model in _MODELS]
    models += [
        *(_without(each, left_out) for each in models for left_out in range(3)),
        *map(_without_endpoints, models),
    ]
    rulesets = [make_ruleset(1, [RENDERERS[backend](rules)]) for rules in models]
    for old in rulesets:
        for new in rulesets:
            delta = difference(old, new)
            if delta is not None:
                ended = udp_frontends(old.documents) - udp_frontends(new.documents)
                assert frontends_ended_by(delta, old) == ended
                assert frontends_ended_by(delta, new) == frozenset()


def test_documents_of_both_families_count() -> None:
    found = udp_frontends([RENDERERS[Backend.NFT](_every_kind(family)) for family in Family])
    assert len(found) == 10
