# SPDX-License-Identifier: Apache-2.0
"""Services (reference 8: service dws, patrol and uws)."""

import copy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devkit.syncer.fake_view import TENANT, FakeView
from syncer.core.objects import Object
from syncer.core.plan import Plan, Side
from syncer.kinds.service import SYNC
from syncer.policy.sync_policy import DEFAULT, ServicePolicy
from tests.cases.sync.policy import PERMISSIVE
from tests.cases.sync.world import World
from tests.unit.syncer.kinds.objects import (
    SUPER_NAMESPACE,
    brief,
    created,
    patched,
    plan,
    super_object,
    tenant_object,
)

SPEC = {
    "type": "NodePort",
    "clusterIP": "10.96.0.7",
    "clusterIPs": ["10.96.0.7"],
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
    "selector": {"app.kubernetes.io/name": "web", "tier": "a"},
    "ports": [
        {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30080},
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53, "nodePort": 30053},
    ],
    "trafficDistribution": "PreferClose",
    "ofANewerVersion": {"a": 1},
}
SUPER_SPEC = {
    "type": "NodePort",
    "clusterIP": "10.32.0.9",
    "clusterIPs": ["10.32.0.9"],
    "ipFamilies": ["IPv6"],
    "ipFamilyPolicy": "SingleStack",
    "selector": {"tenant-label.vcnode.io/app.kubernetes.io__name": "web", "tier": "a"},
    "ports": [
        {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 31001},
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53, "nodePort": 31002},
    ],
    "trafficDistribution": "PreferClose",
    "ofANewerVersion": {"a": 1},
    "internalTrafficPolicy": "Cluster",
}
SHOWN = {"transparency.tenancy.x-k8s.io/clusterIP": "10.32.0.9"}


def tenant(spec: Object = SPEC, annotations: dict[str, str] = SHOWN, **fields: Any) -> Object:
    meta = {"annotations": dict(annotations)}
    return tenant_object("Service", meta=meta, spec=copy.deepcopy(spec), **fields)


def found(spec: Object = SUPER_SPEC, annotations: dict[str, str] = SHOWN, **fields: Any) -> Object:
    meta = {"annotations": {"tenancy.x-k8s.io/clusterIP": "10.96.0.7", **annotations}}
    return super_object("Service", meta=meta, spec=copy.deepcopy(spec), **fields)


def _plan(own: Object, there: Object | None) -> Plan:
    return plan(SYNC, own, there, FakeView(policy=PERMISSIVE))


def test_addresses_and_node_ports_are_the_super_clusters() -> None:
    result = _plan(tenant(annotations={}), None)
    assert result.is_partial  # its address comes up
    body = created(result)
    assert body["metadata"]["annotations"]["tenancy.x-k8s.io/clusterIP"] == "10.96.0.7"
    assert body["spec"] == {
        "type": "NodePort",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "selector": {"tenant-label.vcnode.io/app.kubernetes.io__name": "web", "tier": "a"},
        "ports": [
            {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080},
            {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        ],
        "trafficDistribution": "PreferClose",
        "ofANewerVersion": {"a": 1},
    }


def test_a_headless_service_stays_one() -> None:
    body = created(_plan(tenant({"clusterIP": "None", "clusterIPs": ["None"]}, {}), None))
    assert body["spec"] == {"clusterIP": "None", "clusterIPs": ["None"]}
    assert "tenancy.x-k8s.io/clusterIP" not in body["metadata"]["annotations"]


def test_the_health_check_port_is_the_super_clusters() -> None:
    spec = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30999}
    assert created(_plan(tenant(spec, {}), None))["spec"] == {
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
    }


def test_what_each_server_chose_is_no_difference() -> None:
    assert _plan(tenant(), found()) == Plan()


def test_a_changed_selector_goes_down() -> None:
    changed = {**SPEC, "selector": {"tier": "b"}}
    assert patched(_plan(tenant(changed), found())) == {
        "spec": {"selector": {"tier": "b", "tenant-label.vcnode.io/app.kubernetes.io__name": None}}
    }


def test_ports_keep_their_node_ports_when_others_change() -> None:
    ports = [
        {"name": "new", "port": 443, "protocol": "TCP", "targetPort": 443, "nodePort": 30443},
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53, "nodePort": 30053},
        {"name": "http", "port": 81, "protocol": "TCP", "targetPort": 8080, "nodePort": 30080},
    ]
    assert patched(_plan(tenant({**SPEC, "ports": ports}), found())) == {
        "spec": {
            "ports": [
                {"name": "new", "port": 443, "protocol": "TCP", "targetPort": 443},
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53, "nodePort": 31002},
                {"name": "http", "port": 81, "protocol": "TCP", "targetPort": 8080, "nodePort": 31001},
            ]
        }
    }


def test_node_ports_go_with_the_type() -> None:
    spec = {**SPEC, "type": "ClusterIP"}
    body = patched(_plan(tenant(spec), found()))
    assert body["spec"]["type"] == "ClusterIP"
    assert all("nodePort" not in port for port in body["spec"]["ports"])


def test_the_address_comes_up_to_both() -> None:
    result = _plan(tenant(annotations={}), found(annotations={}))
    assert patched(result) == {"metadata": {"annotations": SHOWN}}
    assert patched(result, Side.TENANT) == {"metadata": {"annotations": SHOWN}}


def test_a_forged_address_is_repaired_on_both_sides() -> None:
    forged = {"transparency.tenancy.x-k8s.io/clusterIP": "192.0.2.1"}
    result = _plan(tenant(annotations=forged), found(annotations=forged))
    assert patched(result) == {"metadata": {"annotations": SHOWN}}
    assert patched(result, Side.TENANT) == {"metadata": {"annotations": SHOWN}}


def test_status_comes_up_whatever_the_type() -> None:
    status: Object = {
        "loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "Proxy"}]},
        "conditions": [{"type": "LoadBalancerPortsError", "reason": "A"}],
    }
    for kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        own = tenant({**SPEC, "type": kind}, status={"loadBalancer": {}})
        there = found({**SUPER_SPEC, "type": kind}, status=status)
        assert patched(_plan(own, there), Side.TENANT, "status") == {
            "status": {
                "loadBalancer": {"ingress": status["loadBalancer"]["ingress"]},
                "conditions": status["conditions"],
            }
        }
    assert _plan(tenant(status=status), found(status=status)) == Plan()


def test_an_external_name_stays_unless_it_is_allowed() -> None:
    spec = {"type": "ExternalName", "externalName": "example.com"}
    stays = plan(SYNC, tenant(spec, {}), None)
    assert (stays.actions, [each.path for each in stays.changes]) == ((), ["spec.type"])
    there = super_object("Service", spec=copy.deepcopy(spec))
    assert brief(plan(SYNC, tenant(spec, {}), there)) == ["delete in super s-1"]
    types = frozenset({"ClusterIP", "ExternalName"})
    view = FakeView(policy=replace(DEFAULT, services=ServicePolicy(types=types)))
    assert created(plan(SYNC, tenant(spec, {}), None, view))["spec"] == spec
    assert brief(plan(SYNC, tenant(spec, {}), there, view)) == []


def test_what_the_policy_refuses_stays_as_it_last_was() -> None:
    spec = {name: value for name, value in SPEC.items() if name != "ofANewerVersion"}
    changed = tenant({**spec, "type": "ClusterIP", "externalIPs": ["192.0.2.1"]})
    expected = ["refused spec.externalIPs[0]"]
    assert brief(plan(SYNC, changed, None)) == expected
    assert brief(plan(SYNC, changed, found())) == expected


_PORTS = st.lists(
    st.fixed_dictionaries(
        {"port": st.integers(80, 83), "protocol": st.sampled_from(["TCP", "UDP"])},
        optional={"name": st.sampled_from(["a", "b"]), "nodePort": st.integers(30000, 30002)},
    ),
    max_size=3,
    # The API server refuses others.
    unique_by=(lambda each: (each["protocol"], each["port"]), lambda each: each.get("name", each["port"])),
)
_SPECS = st.fixed_dictionaries(
    {"type": st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"])},
    optional={
        "ports": _PORTS,
        "selector": st.dictionaries(st.sampled_from(["a", "app.kubernetes.io/name"]), st.just("x")),
        "internalTrafficPolicy": st.sampled_from(["Cluster", "Local"]),
        "sessionAffinity": st.just("ClientIP"),
    },
)


@given(_SPECS, _SPECS, st.booleans())
def test_plans_come_to_an_end_whatever_each_side_has(own: Object, other: Object, is_first: bool) -> None:
    world = World(TENANT, PERMISSIVE)
    world.create(Side.TENANT, "Namespace", {"metadata": {"name": "ns"}})
    world.create(Side.TENANT, "Service", tenant_object("Service", spec=own))
    if is_first:
        world.reconcile("Service", "ns", "a")
        world.patch(Side.SUPER, ("Service", SUPER_NAMESPACE, "a"), {"spec": other})
    world.reconcile("Service", "ns", "a")
    there = world.sides[Side.SUPER][("Service", SUPER_NAMESPACE, "a")]
    shown = world.sides[Side.TENANT][("Service", "ns", "a")]["metadata"]["annotations"]
    assert shown == {"transparency.tenancy.x-k8s.io/clusterIP": there["spec"]["clusterIP"]}
    assert there["spec"]["type"] == own["type"]


_OWN_IPS = "vcnode.io/clusterIPs"
_DUAL = {
    **SPEC,
    "clusterIPs": ["10.96.0.7", "fd00:96::7"],
    "ipFamilies": ["IPv4", "IPv6"],
    "ipFamilyPolicy": "RequireDualStack",
}


def test_all_addresses_of_the_tenant_go_down() -> None:
    body = created(_plan(tenant(_DUAL, annotations={}), None))
    annotations = body["metadata"]["annotations"]
    assert annotations["tenancy.x-k8s.io/clusterIP"] == "10.96.0.7"
    assert annotations[_OWN_IPS] == "10.96.0.7,fd00:96::7"
    assert "clusterIPs" not in body["spec"]
    single = created(_plan(tenant(annotations={}), None))
    assert _OWN_IPS not in single["metadata"]["annotations"]


def test_a_second_family_is_carried_down_and_taken_back() -> None:
    """By the policy: the super API server adds the address of the second family or takes it away."""
    both = {"metadata": {"annotations": {_OWN_IPS: "10.96.0.7,fd00:96::7"}}}
    added = patched(_plan(tenant(_DUAL), found()))
    assert added == {"spec": {"ipFamilyPolicy": "RequireDualStack"}, **both}
    wide = {**SUPER_SPEC, "ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["10.32.0.9", "fd00:32::9"]}
    there = found(wide, annotations={**SHOWN, _OWN_IPS: "10.96.0.7,fd00:96::7"})
    assert brief(_plan(tenant(_DUAL), there)) == []
    back = patched(_plan(tenant(), there))
    assert back == {
        "spec": {"ipFamilyPolicy": "SingleStack"},
        "metadata": {"annotations": {_OWN_IPS: "10.96.0.7"}},
    }


def test_a_tenant_without_a_policy_of_families_decides_none() -> None:
    """An API server from before dual stack."""
    old = {name: value for name, value in SPEC.items() if not name.startswith("ipFamil")}
    assert brief(_plan(tenant(old), found())) == []


def test_one_node_port_of_two_protocols() -> None:
    """One number is two ports: of TCP and of UDP."""
    below = found()
    below["spec"]["ports"] = ports = [
        {"name": each, "port": 53, "protocol": each.upper(), "targetPort": 53, "nodePort": 30053}
        for each in ("tcp", "udp")
    ]
    assert _plan(tenant({**SPEC, "ports": ports}), below) == Plan()
