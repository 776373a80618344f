# SPDX-License-Identifier: Apache-2.0
"""Of two Services that claim one address, the same one always has it."""

import itertools
from typing import Any

import pytest

from kubeproxy_ext.compute.address_conflicts import AddressConflict, find_conflicts
from kubeproxy_ext.compute.parse import ServiceInfo, parse_service
from ruleset.model import Family, Protocol
from tests.unit.kubeproxy_ext.compute import builders


def parsed(reference: str, ip: str, **more: Any) -> ServiceInfo:
    found = parse_service(builders.service(reference, ip, **more))
    assert found is not None
    return found


SUPER = parsed("a/super", "172.30.0.41", created="2026-01-03T00:00:00Z")
OWN = parsed("a/own", "172.30.0.42", own_ip="172.30.0.41", created="2026-01-02T00:00:00Z")
TAKER = parsed("a/taker", "172.30.0.43", external=["172.30.0.41"], created="2026-01-01T00:00:00Z")
YOUNGER = parsed("a/a", "172.30.0.44", external=["172.30.0.41"], created="2026-01-02T00:00:00Z")
OTHER_NAME = parsed("a/b", "172.30.0.45", external=["172.30.0.41"], created="2026-01-02T00:00:00Z")
UDP = parsed("a/udp", "172.30.0.46", external=["172.30.0.41"], protocol="UDP")

ADDRESS = ("172.30.0.41", 80, Protocol.TCP)


@pytest.mark.parametrize(
    ("services", "winner"),
    [
        ([SUPER, OWN, TAKER], "a/super"),
        ([OWN, TAKER], "a/own"),
        ([TAKER, YOUNGER, OTHER_NAME], "a/taker"),
        ([YOUNGER, OTHER_NAME], "a/a"),
    ],
)
def test_conflict_is_decided_by_rank_then_age_then_name(services: list[ServiceInfo], winner: str) -> None:
    expected = {s.reference: (AddressConflict(ADDRESS, winner),) for s in services if s.reference != winner}
    for order in itertools.permutations(services):
        assert find_conflicts(order, Family.IPV4) == expected


def test_other_protocol_does_not_conflict() -> None:
    assert find_conflicts([SUPER, UDP], Family.IPV4) == {}


def test_families_do_not_conflict() -> None:
    assert find_conflicts([SUPER, OWN], Family.IPV6) == {}
