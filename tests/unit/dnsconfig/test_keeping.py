# SPDX-License-Identifier: Apache-2.0
"""When a pod loses what it keeps: decisions in, at given times."""

import pytest

from dnsconfig.core.decision import Decision
from dnsconfig.core.network import ClusterIps, Membership
from dnsconfig.core.resolver import DnsClass, Entry
from dnsconfig.core.text import Line
from dnsconfig.delivery import Wanted
from dnsconfig.keeping import HOLD_S, LOSS_S, Keeping, Loss
from dnsconfig.saved_state import INTERVAL_S
from dnsconfig.service import SAVE_S

TEXT = "nameserver 10.0.0.1\n"
BARE = (
    "# The DNS server of network blue (Service kube-system/kube-dns-blue) is gone, "
    "and its address may be somebody else's by now.\n"
)

HELD = ClusterIps(("10.0.0.1",))
GONE = ClusterIps()
DOUBTED = ClusterIps(is_doubted=True)


def decision(ips: ClusterIps | None) -> Decision:
    """One without a resolver."""
    network = None if ips is None else Membership("blue", "label")
    return Decision("ClusterFirst", DnsClass.CLUSTER, network=network, cluster_ips=ips)


def keeping(*cluster_ips: str) -> Keeping:
    made = Keeping()
    made.remember("u", Wanted(TEXT, cluster_ips=cluster_ips))
    return made


# What is told at which second, and whether the pod has lost its address then.
TOLD, HOLD = LOSS_S, HOLD_S


@pytest.mark.parametrize(
    "steps",
    [
        [(0.0, GONE, False), (TOLD - 1, GONE, False), (TOLD, GONE, True), (10 * TOLD, GONE, True)],
        # What is told again begins again; what is not known says nothing either way.
        [
            (0.0, GONE, False),
            (5.0, HELD, False),
            (6.0, GONE, False),
            (TOLD, GONE, False),
            (TOLD + 6, GONE, True),
        ],
        [
            (0.0, GONE, False),
            (5.0, None, False),
            (TOLD, None, True),
            (99.0, None, True),
            (100.0, HELD, False),
        ],
        [(0.0, None, False), (10 * HOLD, None, False)],
        # A list of nothing.
        [(0.0, DOUBTED, False), (HOLD - 1, DOUBTED, False), (HOLD, DOUBTED, True)],
        [(0.0, DOUBTED, False), (HOLD, None, False), (2 * HOLD, DOUBTED, True)],
        [(0.0, DOUBTED, False), (5.0, GONE, False), (TOLD, GONE, False), (TOLD + 5, GONE, True)],
        [(0.0, GONE, False), (5.0, DOUBTED, False), (TOLD, DOUBTED, True), (99.0, DOUBTED, True)],
        # Another one's address is none of the pod's.
        [(0.0, ClusterIps(("10.0.0.2",)), False), (TOLD, ClusterIps(("10.0.0.2",)), True)],
    ],
)
def test_when_an_address_is_lost(steps: list[tuple[float, ClusterIps | None, bool]]) -> None:
    kept = keeping("10.0.0.1")
    for at, ips, expected in steps:
        loss = kept.look("u", decision(ips), at, is_host_network=False)
        assert (loss is not None and loss.is_taken) is expected, at
        if loss is not None and ips is not None:
            assert loss.bare == (BARE if expected else ""), at
    assert kept.given == {"u": TEXT}


def test_who_has_no_cluster_ip_has_none_to_lose() -> None:
    kept = keeping()
    assert kept.look("u", decision(GONE), 0.0, is_host_network=False) is None
    assert Keeping().look("u", decision(GONE), 0.0, is_host_network=False) is None
    assert kept.losses == {}


def test_who_has_a_resolver_loses_nothing() -> None:
    kept = keeping("10.0.0.1")
    assert kept.look("u", decision(GONE), 0.0, is_host_network=False) == Loss(0.0, is_told=True)
    assert kept.ends() == [LOSS_S]
    lines = (Line("nameserver", (Entry("10.0.0.2", ""),)),)
    decided = Decision("ClusterFirst", DnsClass.CLUSTER, cluster_ips=GONE, lines=lines)
    assert kept.look("u", decided, LOSS_S, is_host_network=False) is None
    assert kept.losses == {}
    assert kept.ends() == []


def test_what_is_left_is_nothing_to_go_back_to() -> None:
    kept = keeping("10.0.0.1")
    kept.remember("u", Wanted(BARE, "why", is_bare=True))
    kept.remember("u", Wanted(waits="why"))
    assert (kept.given, kept.cluster_ips) == ({"u": TEXT}, {"u": ("10.0.0.1",)})
    kept.remember("u", Wanted("nameserver 192.0.2.1\n"))
    assert (kept.given, kept.cluster_ips) == ({"u": "nameserver 192.0.2.1\n"}, {})


def test_nothing_is_left_of_a_pod_that_is_forgotten() -> None:
    kept = keeping("10.0.0.1")
    kept.look("u", decision(GONE), 0.0, is_host_network=False)
    kept.forget("u")
    assert (kept.given, kept.cluster_ips, kept.losses) == ({}, {}, {})


def test_a_loss_is_on_disk_before_it_counts() -> None:
    """So that whoever is killed right after goes on from there."""
    assert LOSS_S >= INTERVAL_S + SAVE_S
