# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of real legacy tables."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from guest_agent.kernel.xtables import Xtables
from ruleset.model import Family
from tests.lab.namespaces import Lab, LabNamespace

FAMILIES = {
    Family.IPV4: ("iptables-legacy", "127.0.0.1", "192.0.2.%d", socket.AF_INET),
    Family.IPV6: ("ip6tables-legacy", "::1", "2001:db8::%d", socket.AF_INET6),
}


@pytest.fixture
def guest(lab: Lab) -> LabNamespace:
    return lab.namespace("sb")


@pytest.fixture
def xtables() -> Iterator[Xtables]:
    made = Xtables()
    yield made
    made.close()


@pytest.mark.parametrize("family", list(Family))
def test_fingerprint_changes_with_rules_alone(guest: LabNamespace, xtables: Xtables, family: Family) -> None:
    program, loopback, address, kind = FAMILIES[family]

    def states() -> str:
        return guest.inside(lambda: xtables.fingerprint(family))

    def rule(table: str, command: str, *rule: str) -> None:
        guest.run(program, "-w", "-t", table, command, *rule)

    def counters() -> str:
        return guest.run(f"{program}-save", "-c")

    for number in range(1, 5):
        rule("nat", "-A", "OUTPUT", "-d", address % number, "-p", "udp", "--dport", "9", "-j", "ACCEPT")
    rule("filter", "-A", "OUTPUT", "-d", loopback, "-j", "ACCEPT")
    first = states()
    assert states() == first
    for _ in range(3):
        before = counters()
        with guest.socket(kind, socket.SOCK_DGRAM) as traffic:
            traffic.sendto(b"x", (loopback, 9))
        assert counters() != before
        assert states() == first
    # The length stays; the first rule, the last one and the policy change.
    seen = {first}
    changes = [
        ("nat", "-R", "OUTPUT", "1", "-d", address % 9, "-p", "udp", "--dport", "9", "-j", "ACCEPT"),
        ("nat", "-R", "OUTPUT", "4", "-d", address % 4, "-p", "udp", "--dport", "10", "-j", "ACCEPT"),
        ("filter", "-P", "OUTPUT", "DROP"),
        ("filter", "-R", "OUTPUT", "1", "-d", loopback, "-j", "DROP"),
    ]
    for change in changes:
        rule(*change)
        now = states()
        assert now not in seen
        assert states() == now
        seen.add(now)
    rule("nat", "-A", "OUTPUT", "-d", address % 8, "-j", "ACCEPT")
    assert states() not in seen
    seen.add(states())
    # A known change gets another fingerprint, which then stays.
    taken = guest.inside(lambda: xtables.fingerprint(family, is_changed=True))
    assert taken not in seen
    assert states() == taken
    rule(*changes[0][:-1], "RETURN")
    assert states() not in {*seen, taken}
