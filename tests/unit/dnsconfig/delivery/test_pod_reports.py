# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from daemonkit.kube.resources import ObjectMeta
from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.state import NamespaceOwner
from dnsconfig.delivery.pod_reports import EventLog, LogLine, PodEvents, PodLog
from dnsconfig.delivery.pod_resolvers import PodResolver
from dnsconfig.delivery.queue import ResolverTarget
from dnsconfig.resolve.decision import ResolverDecision
from dnsconfig.resolve.network import NetworkServer, PodNetwork
from dnsconfig.resolve.resolver import DnsClass, PodEvent, ResolverEventReason
from dnsconfig.resolve.waiting import PodWaiting, WaitReason
from dnsconfig.retention.desired import DesiredResolver
from dnsconfig.retention.resolver_retention import RevokedAddress

META = ObjectMeta("web", "a-shop", "u")
DECIDED = ResolverDecision(
    "ClusterFirst",
    DnsClass.CLUSTER,
    NamespaceOwner("a", "shop"),
    PodNetwork("blue", "label"),
    NetworkServer(("10.0.0.1",), "network blue"),
)
WAITING = replace(DECIDED, server=None, waiting=PodWaiting(WaitReason.NOT_FOUND, "why"))
POD = PodResolver(PodObject(META), DECIDED, ResolverTarget(pod_uid="u"), DesiredResolver("text"))
FIELDS = {"pod": "a-shop/web", "tenant": "a", "network": "blue"}
ONE, TWO = (PodEvent(ResolverEventReason.DNS_CONFIG_FORMING, each) for each in ("one", "two"))


@pytest.mark.parametrize(
    ("pod", "line"),
    [
        (POD, LogLine("pod has a resolver", False, FIELDS | {"servers": "10.0.0.1"})),
        (
            replace(POD, decision=WAITING, desired=DesiredResolver(wait_message="why")),
            LogLine("pod waits for its resolver", False, FIELDS | {"reason": "why"}),
        ),
        (
            replace(POD, decision=WAITING, is_retained=True),
            LogLine("pod retains its resolver", True, FIELDS | {"reason": "why"}),
        ),
        (
            replace(
                POD, decision=WAITING, is_retained=True, revoked=RevokedAddress(0.0, True), removal_at=15.0
            ),
            LogLine(
                "pod retains a revoked DNS server for now",
                True,
                FIELDS | {"removed_in_s": 10, "is_confirmed": True, "reason": "why"},
            ),
        ),
        (
            replace(POD, decision=WAITING, revoked=RevokedAddress(0.0, True, "# reduced\n")),
            LogLine("revoked DNS server removed from the pod", True, FIELDS | {"reason": "why"}),
        ),
    ],
)
def test_each_state_of_a_pod_has_one_line(pod: PodResolver, line: LogLine) -> None:
    log = PodLog()
    assert list(log.changes([pod], 5.0)) == [line]
    assert list(log.changes([pod], 6.0)) == []
    log.retain(())
    assert list(log.changes([pod], 5.0)) == [line]


def test_only_new_events_of_a_pod_are_returned() -> None:
    log = EventLog()
    assert list(log.changes([PodEvents(META, (ONE,), "a")])) == [PodEvents(META, (ONE,), "a")]
    assert list(log.changes([PodEvents(META, (ONE,), "a")])) == []
    assert list(log.changes([PodEvents(META, (ONE, TWO), "a")])) == [PodEvents(META, (TWO,), "a")]
    assert list(log.changes([PodEvents(META, (), "a")])) == []
    assert list(log.changes([PodEvents(META, (ONE,), "a")])) == [PodEvents(META, (ONE,), "a")]
