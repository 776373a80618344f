# SPDX-License-Identifier: Apache-2.0
"""When a pod loses what it keeps: decisions in, at given times."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnsconfig.cluster.objects import PodObject, decode_object
from dnsconfig.cluster.state import Absence, World, world_of
from dnsconfig.resolve.decision import Decision, decide, node_of
from dnsconfig.resolve.network import ClusterIps, Origin
from dnsconfig.resolve.resolv_conf import Line
from dnsconfig.resolve.resolver import DnsClass, Entry
from dnsconfig.retention.desired import Wanted
from dnsconfig.retention.resolver_retention import HOLD_S, LOSS_S, Keeping, Loss
from dnsconfig.saved_state import INTERVAL_S
from dnsconfig.service import SAVE_S
from tenancy import keys
from tests.unit.dnsconfig.objects import network, pod, service, tenant

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
    return Decision("ClusterFirst", DnsClass.CLUSTER, cluster_ips=ips)


def keeping(*cluster_ips: str) -> Keeping:
    made = Keeping()
    made.remember("u", Wanted(TEXT, origin=Origin("blue", cluster_ips) if cluster_ips else None))
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
        if loss is not None:
            assert loss.bare == (BARE if expected else ""), at
    assert kept.given == {"u": TEXT}


def test_who_has_no_cluster_ip_has_none_to_lose() -> None:
    kept = keeping()
    assert (kept.had("u"), keeping("10.0.0.1").had("u")) == ("", "blue")
    assert kept.look("u", decision(GONE), 0.0, is_host_network=False) is None
    assert Keeping().look("u", decision(GONE), 0.0, is_host_network=False) is None
    assert kept.losses == {}


def test_who_has_a_resolver_loses_nothing() -> None:
    kept = keeping("10.0.0.1")
    assert kept.look("u", decision(GONE), 0.0, is_host_network=False) == Loss(0.0, is_told=True)
    assert kept.ends() == [LOSS_S]
    lines = (Line("nameserver", (Entry("10.0.0.2", ""),)),)
    decided = Decision(
        "ClusterFirst", DnsClass.CLUSTER, cluster_ips=GONE, lines=lines, text="nameserver 10.0.0.2\n"
    )
    assert kept.look("u", decided, LOSS_S, is_host_network=False) is None
    assert kept.losses == {}
    assert kept.ends() == []


def test_what_is_left_is_nothing_to_go_back_to() -> None:
    kept = keeping("10.0.0.1")
    kept.remember("u", Wanted(BARE, "why", is_bare=True))
    kept.remember("u", Wanted(waits="why"))
    assert (kept.given, kept.origins) == ({"u": TEXT}, {"u": Origin("blue", ("10.0.0.1",))})
    kept.remember("u", Wanted("nameserver 192.0.2.1\n"))
    assert (kept.given, kept.origins) == ({"u": "nameserver 192.0.2.1\n"}, {})


def test_nothing_is_left_of_a_pod_that_is_forgotten() -> None:
    kept = keeping("10.0.0.1")
    kept.look("u", decision(GONE), 0.0, is_host_network=False)
    kept.forget("u")
    assert (kept.given, kept.origins, kept.losses) == ({}, {}, {})


def test_a_loss_is_on_disk_before_it_counts() -> None:
    """So that whoever is killed right after goes on from there."""
    assert LOSS_S >= INTERVAL_S + SAVE_S


# ---- as a whole: whatever happens, nobody keeps an address that is not its network's

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two tenants with two networks, whose Services have some of a few addresses, each at most once."""
    free = list(draw(st.permutations(ADDRESSES)))
    items = [*tenant("a"), *tenant("b")]
    for owner in ("a", "b"):
        for name in ("default", "blue"):
            if draw(st.booleans()):
                items.append(network(owner, name, draw(st.sampled_from(["Ready", "Failed"]))))
            if draw(st.booleans()) and free:
                has_ip: bool = draw(st.booleans())
                items.append(service(owner, name, *([free.pop()] if has_ip else [])))
    absences = dict.fromkeys(
        ("a-kube-system", "b-kube-system"),
        draw(st.sampled_from([Absence.TOLD, Absence.TOLD, Absence.UNKNOWN])),
    )
    return replace(world_of(items), absences=absences)


@settings(max_examples=150)
@given(steps=st.lists(st.tuples(worlds(), st.floats(0.1, LOSS_S)), min_size=1, max_size=8))
def test_nobody_keeps_an_address_that_is_not_its_networks(steps: list[tuple[World, float]]) -> None:
    pods = [decode_object(pod("a", f"{name}-0", network=name)) for name in ("default", "blue")]
    kept, now = Keeping(), 0.0
    texts: dict[str, str] = {}
    foreign_since: dict[str, float] = {}
    for world, lasts_s in steps:
        for at in (now, now + lasts_s):
            for each in pods:
                assert isinstance(each, PodObject)
                uid, name = each.metadata.uid, each.metadata.labels[keys.ARKTOS_NETWORK]
                decided = decide(each, world, node_of(None), (), kept.had(uid))
                assert decided is not None
                loss = kept.look(uid, decided, at, is_host_network=False)
                if loss is not None and loss.is_taken:
                    assert decided.waits is not None
                    texts[uid] = loss.bare
                elif decided.text is not None:
                    server = decided.server
                    assert server is not None
                    texts[uid] = decided.text
                    kept.remember(uid, Wanted(decided.text, origin=Origin(name, server.addresses)))
                known = world.services.get(("a-kube-system", f"kube-dns-{name}"))
                holds = set() if known is None else set(known.spec.cluster_ips or ())
                used = {word for word in texts.get(uid, "").split() if word in ADDRESSES}
                is_foreign = bool(used - holds)
                if not is_foreign:
                    foreign_since.pop(uid, None)
                elif world.absences["a-kube-system"] is Absence.UNKNOWN:
                    pass  # who has heard nothing takes nothing
                elif at - foreign_since.setdefault(uid, at) >= LOSS_S:
                    raise AssertionError(f"{texts[uid]} for {at - foreign_since[uid]} s")
        now += lasts_s
