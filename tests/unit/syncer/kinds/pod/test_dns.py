# SPDX-License-Identifier: Apache-2.0
"""The resolver of super pods (upstream's Test_mutateDNSConfig)."""

from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.plan import Wait
from syncer.core.view import PodDns, SyncSettings
from tests.unit.syncer.kinds.pod.pods import (
    API_SERVICE,
    DNS_ADDRESS,
    TENANT_CLUSTER,
    created,
    plan,
    pod,
    service,
    view,
)

SEARCHES = ["plain.svc.cluster.local", "svc.cluster.local", "cluster.local"]
CLUSTER = {
    "dnsPolicy": "None",
    "dnsConfig": {
        "nameservers": [DNS_ADDRESS],
        "searches": SEARCHES,
        "options": [{"name": "ndots", "value": "5"}],
    },
}


def resolver(spec: Object, seen: FakeView | None = None, **meta: Any) -> Object:
    found = created(pod(spec, **meta), seen)["spec"]
    return {name: found[name] for name in ("dnsPolicy", "dnsConfig") if name in found}


OWN = {
    "nameservers": ["9.9.9.9", DNS_ADDRESS],
    "searches": ["example.com", "cluster.local"],
    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"dnsPolicy": "ClusterFirst"}, CLUSTER, id="ClusterFirst"),
        pytest.param({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True}, CLUSTER, id="host net"),
        pytest.param(
            {"dnsPolicy": "ClusterFirst", "dnsConfig": OWN},
            {
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": [DNS_ADDRESS, "9.9.9.9"],
                    "searches": [*SEARCHES, "example.com"],
                    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
                },
            },
            id="ClusterFirst with its own",
        ),
        pytest.param(
            {"dnsPolicy": "None", "dnsConfig": OWN}, {"dnsPolicy": "None", "dnsConfig": OWN}, id="None"
        ),
        pytest.param({"dnsPolicy": "Default"}, {"dnsPolicy": "Default"}, id="Default"),
    ],
)
def test_resolver_by_policy(spec: Object, expected: Object) -> None:
    assert resolver(spec) == expected


def test_the_cluster_domain_may_be_unset() -> None:
    tenant = TENANT_CLUSTER.__class__(
        TENANT_CLUSTER.key, TENANT_CLUSTER.vc_namespace, TENANT_CLUSTER.vc_name, TENANT_CLUSTER.uid
    )
    seen = view()
    seen.tenant = tenant
    assert resolver({}, seen)["dnsConfig"]["searches"] == []


def test_limits_of_the_api_server_are_kept() -> None:
    own = {"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3"], "searches": [f"s{each}" for each in range(40)]}
    found = resolver({"dnsConfig": own})["dnsConfig"]
    assert found["nameservers"] == [DNS_ADDRESS, "1.1.1.1", "2.2.2.2"]
    assert found["searches"] == [*SEARCHES, *(f"s{each}" for each in range(29))]
    long = {"searches": [("x" * 60 + ".") * 4 + str(each) for each in range(20)]}
    assert len(" ".join(resolver({"dnsConfig": long})["dnsConfig"]["searches"])) <= 2048


def test_the_operators_options() -> None:
    settings = SyncSettings(dns_options=(("ndots", "3"), ("edns0", None)))
    found = resolver({}, view(settings=settings))["dnsConfig"]["options"]
    assert found == [{"name": "ndots", "value": "3"}, {"name": "edns0"}]


def test_the_node_may_be_left_to_choose() -> None:
    seen = view(settings=SyncSettings(pod_dns=PodDns.NODE))
    spec = {"dnsPolicy": "ClusterFirst", "dnsConfig": OWN}
    assert resolver(spec, seen) == spec


NETWORK = {"arktos.futurewei.com/network": "blue"}
BLUE = service("kube-system", "kube-dns-blue", "10.0.0.11", {"port": 53})


@pytest.mark.parametrize(
    ("services", "labels", "nameserver"),
    [
        pytest.param([BLUE], NETWORK, "10.0.0.11", id="of its network"),
        pytest.param([BLUE], {}, DNS_ADDRESS, id="without a network"),
        pytest.param([], NETWORK, DNS_ADDRESS, id="a network without its own"),
        pytest.param(
            [service("kube-system", "kube-dns-default", "10.0.0.12", {"port": 53})],
            {},
            "10.0.0.12",
            id="of the default network",
        ),
    ],
)
def test_the_nameserver_is_the_networks(
    services: list[Object], labels: dict[str, str], nameserver: str
) -> None:
    assert resolver({}, view(*services), labels=labels)["dnsConfig"]["nameservers"] == [nameserver]


def test_without_a_dns_service_the_policy_is_default() -> None:
    seen = view()
    seen.super_objects = [API_SERVICE]
    assert resolver({}, seen) == {"dnsPolicy": "Default"}


def test_a_dns_service_that_comes_down_is_waited_for() -> None:
    seen = view(tenant_objects=(service("kube-system", "kube-dns", "172.16.0.10", super_=False),))
    seen.super_objects = [API_SERVICE]
    assert plan(pod(), None, seen).wait == Wait(
        "DNSNotSynced", "Service kube-system/kube-dns has no super cluster IP yet"
    )
