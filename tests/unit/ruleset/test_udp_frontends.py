# SPDX-License-Identifier: Apache-2.0
"""The UDP destinations of a document are those of the model that it was rendered from."""

from collections.abc import Callable

import pytest

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
from ruleset.udp_frontends import udp_frontends
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


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(
    "model",
    [everything, _every_kind, lambda family: services(5, 2, family), lambda family: GuestRules(family, ())],
)
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


def test_documents_of_both_families_count() -> None:
    found = udp_frontends([RENDERERS[Backend.NFT](_every_kind(family)) for family in Family])
    assert len(found) == 10
