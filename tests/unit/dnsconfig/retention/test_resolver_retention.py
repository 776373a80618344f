# SPDX-License-Identifier: Apache-2.0
"""When a retained address is removed: decisions at given times."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.state import Absence, ClusterState
from dnsconfig.resolve.decision import ResolverDecision, decide, node_dns_of
from dnsconfig.resolve.network import ClusterIps, RevocableAddresses
from dnsconfig.resolve.resolv_conf import ResolvConfLine
from dnsconfig.resolve.resolver import DnsClass, SourcedValue
from dnsconfig.retention.desired import DesiredResolver
from dnsconfig.retention.resolver_retention import (
    REVOCATION_DELAY_S,
    ResolverRetention,
    RevokedAddress,
)
from dnsconfig.saved_state import INTERVAL_S
from dnsconfig.service import SAVE_S
from tenancy import keys
from tests.cluster_states import cluster_state_of, decode_object
from tests.unit.dnsconfig.objects import network, pod, service, tenant

TEXT = "nameserver 10.0.0.1\n"
REDUCED = (
    "# The DNS server of network blue (Service kube-system/kube-dns-blue) is gone, "
    "and its address may be another Service's by now.\n"
)

HELD = ClusterIps(("10.0.0.1",))
GONE = ClusterIps()
UNCONFIRMED = ClusterIps(is_confirmed=False)


HOLD = 120.0


def decision(ips: ClusterIps | None) -> ResolverDecision:
    """One without a resolver."""
    return ResolverDecision("ClusterFirst", DnsClass.CLUSTER, cluster_ips=ips)


def retention(*cluster_ips: str) -> ResolverRetention:
    made = ResolverRetention(HOLD)
    made.record_applied(
        "u", DesiredResolver(TEXT, revocable=RevocableAddresses("blue", cluster_ips) if cluster_ips else None)
    )
    return made


# The observed addresses at each second, and whether the pod's address is removed then.
CONFIRMED = REVOCATION_DELAY_S


@pytest.mark.parametrize(
    "steps",
    [
        [
            (0.0, GONE, False),
            (CONFIRMED - 1, GONE, False),
            (CONFIRMED, GONE, True),
            (10 * CONFIRMED, GONE, True),
        ],
        # A new revocation starts anew; unknown state changes nothing.
        [
            (0.0, GONE, False),
            (5.0, HELD, False),
            (6.0, GONE, False),
            (CONFIRMED, GONE, False),
            (CONFIRMED + 6, GONE, True),
        ],
        [
            (0.0, GONE, False),
            (5.0, None, False),
            (CONFIRMED, None, True),
            (99.0, None, True),
            (100.0, HELD, False),
        ],
        [(0.0, None, False), (10 * HOLD, None, False)],
        # A distrusted relist.
        [(0.0, UNCONFIRMED, False), (HOLD - 1, UNCONFIRMED, False), (HOLD, UNCONFIRMED, True)],
        [(0.0, UNCONFIRMED, False), (HOLD, None, False), (2 * HOLD, UNCONFIRMED, True)],
        [
            (0.0, UNCONFIRMED, False),
            (5.0, GONE, False),
            (CONFIRMED, GONE, False),
            (CONFIRMED + 5, GONE, True),
        ],
        [
            (0.0, GONE, False),
            (5.0, UNCONFIRMED, False),
            (CONFIRMED, UNCONFIRMED, True),
            (99.0, UNCONFIRMED, True),
        ],
        # Another Service's address does not confirm the pod's.
        [(0.0, ClusterIps(("10.0.0.2",)), False), (CONFIRMED, ClusterIps(("10.0.0.2",)), True)],
    ],
)
def test_when_a_revoked_address_is_removed(steps: list[tuple[float, ClusterIps | None, bool]]) -> None:
    kept = retention("10.0.0.1")
    for at, ips, expected in steps:
        revoked = kept.evaluate("u", decision(ips), at, is_host_network=False)
        assert (revoked is not None and revoked.is_removed) is expected, at
        if revoked is not None:
            assert revoked.reduced_text == (REDUCED if expected else ""), at
    assert kept.texts == {"u": TEXT}


def test_without_a_cluster_ip_nothing_is_revoked() -> None:
    kept = retention()
    assert (kept.previous_network("u"), retention("10.0.0.1").previous_network("u")) == ("", "blue")
    assert kept.evaluate("u", decision(GONE), 0.0, is_host_network=False) is None
    assert ResolverRetention(HOLD).evaluate("u", decision(GONE), 0.0, is_host_network=False) is None
    assert kept.revoked == {}


def test_a_decided_resolver_ends_a_revocation() -> None:
    kept = retention("10.0.0.1")
    assert kept.evaluate("u", decision(GONE), 0.0, is_host_network=False) == RevokedAddress(
        0.0, is_confirmed=True
    )
    assert kept.removal_times() == [REVOCATION_DELAY_S]
    lines = (ResolvConfLine("nameserver", (SourcedValue("10.0.0.2", ""),)),)
    decided = ResolverDecision(
        "ClusterFirst", DnsClass.CLUSTER, cluster_ips=GONE, lines=lines, text="nameserver 10.0.0.2\n"
    )
    assert kept.evaluate("u", decided, REVOCATION_DELAY_S, is_host_network=False) is None
    assert kept.revoked == {}
    assert kept.removal_times() == []


def test_a_reduced_text_is_never_retained() -> None:
    kept = retention("10.0.0.1")
    kept.record_applied("u", DesiredResolver(REDUCED, "why", is_reduced=True))
    kept.record_applied("u", DesiredResolver(wait_message="why"))
    assert (kept.texts, kept.revocable) == ({"u": TEXT}, {"u": RevocableAddresses("blue", ("10.0.0.1",))})
    kept.record_applied("u", DesiredResolver("nameserver 192.0.2.1\n"))
    assert (kept.texts, kept.revocable) == ({"u": "nameserver 192.0.2.1\n"}, {})


def test_forget_removes_all_of_a_pod() -> None:
    kept = retention("10.0.0.1")
    kept.evaluate("u", decision(GONE), 0.0, is_host_network=False)
    kept.forget("u")
    assert (kept.texts, kept.revocable, kept.revoked) == ({}, {}, {})


def test_a_revocation_is_saved_before_its_removal() -> None:
    """So that a daemon that is killed right after continues from there."""
    assert REVOCATION_DELAY_S >= INTERVAL_S + SAVE_S


# ---- as a whole: no pod retains an address that is not its network's

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


@st.composite
def cluster_states(draw: st.DrawFn) -> ClusterState:
    """Two tenants with two networks. Their Services have some of a few addresses, each at most once."""
    free = list(draw(st.permutations(ADDRESSES)))
    items = [*tenant("a"), *tenant("b")]
    for tenant_key in ("a", "b"):
        for name in ("default", "blue"):
            if draw(st.booleans()):
                items.append(network(tenant_key, name, draw(st.sampled_from(["Ready", "Failed"]))))
            if draw(st.booleans()) and free:
                has_ip: bool = draw(st.booleans())
                items.append(service(tenant_key, name, *([free.pop()] if has_ip else [])))
    absences = dict.fromkeys(
        ("a-kube-system", "b-kube-system"),
        draw(st.sampled_from([Absence.CONFIRMED, Absence.CONFIRMED, Absence.UNKNOWN])),
    )
    return replace(cluster_state_of(items), absences=absences)


@settings(max_examples=150)
@given(
    steps=st.lists(st.tuples(cluster_states(), st.floats(0.1, REVOCATION_DELAY_S)), min_size=1, max_size=8)
)
def test_no_pod_retains_a_revoked_address_for_long(steps: list[tuple[ClusterState, float]]) -> None:
    pods = [decode_object(pod("a", f"{name}-0", network=name)) for name in ("default", "blue")]
    kept, now = ResolverRetention(HOLD), 0.0
    texts: dict[str, str] = {}
    foreign_since: dict[str, float] = {}
    for cluster, lasts_s in steps:
        for at in (now, now + lasts_s):
            for each in pods:
                assert isinstance(each, PodObject)
                uid, name = each.metadata.uid, each.metadata.labels[keys.ARKTOS_NETWORK]
                decided = decide(each, cluster, node_dns_of(None), (), kept.previous_network(uid))
                assert decided is not None
                revoked = kept.evaluate(uid, decided, at, is_host_network=False)
                if revoked is not None and revoked.is_removed:
                    assert decided.waiting is not None
                    texts[uid] = revoked.reduced_text
                elif decided.text is not None:
                    server = decided.server
                    assert server is not None
                    texts[uid] = decided.text
                    kept.record_applied(
                        uid,
                        DesiredResolver(decided.text, revocable=RevocableAddresses(name, server.addresses)),
                    )
                known = cluster.services.get(("a-kube-system", f"kube-dns-{name}"))
                holds = set() if known is None else set(known.spec.cluster_ips or ())
                used = {word for word in texts.get(uid, "").split() if word in ADDRESSES}
                is_foreign = bool(used - holds)
                if not is_foreign:
                    foreign_since.pop(uid, None)
                elif cluster.absences["a-kube-system"] is Absence.UNKNOWN:
                    pass  # unknown state removes nothing
                elif at - foreign_since.setdefault(uid, at) >= REVOCATION_DELAY_S:
                    raise AssertionError(f"{texts[uid]} for {at - foreign_since[uid]} s")
        now += lasts_s
