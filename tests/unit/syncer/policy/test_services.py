# SPDX-License-Identifier: Apache-2.0
"""Services by the SyncPolicy, as in docs/spec/sync-policy.md#services."""

import ipaddress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import patterns, services
from syncer.policy.sync_policy import DEFAULT, ServicePolicy, SyncPolicy
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed
from tests.unit.syncer.policy.judged import with_keys

refusals_of = with_keys("Service", services.refusals)
ORDINARY: Object = {
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "annotations": {"prometheus.io/scrape": "true", "service.kubernetes.io/topology-mode": "Auto"},
    },
    "spec": {
        "type": "ClusterIP",
        "selector": {"app": "web"},
        "clusterIP": "10.32.0.10",
        "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}],
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    },
}


def service(**spec: Any) -> Object:
    return {"metadata": {"name": "web"}, "spec": spec}


def annotated(key: str) -> Object:
    return {"metadata": {"annotations": {key: "x"}}, "spec": {}}


def with_services(**fields: Any) -> SyncPolicy:
    return SyncPolicy(services=replace(ServicePolicy(), **fields))


def denied(path: str, what: str, field: str) -> Refusal:
    return Refusal(path, f"{what}: SyncPolicy field spec.services.{field} does not allow it")


NODE_PORT = frozenset({"ClusterIP", "NodePort"})
BALANCED = frozenset({"ClusterIP", "LoadBalancer"})
ALL_TYPES = frozenset({"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"})
RANGE = (ipaddress.ip_network("192.0.2.0/24"),)

CASES: list[tuple[Object, tuple[Refusal, ...], SyncPolicy]] = [
    (
        service(type="NodePort"),
        (Refusal("spec.type", "type NodePort: SyncPolicy field spec.services.types does not allow it"),),
        with_services(types=NODE_PORT),
    ),
    (
        service(type="LoadBalancer"),
        (denied("spec.type", "type LoadBalancer", "types"),),
        with_services(types=ALL_TYPES),
    ),
    (
        service(type="LoadBalancer", allocateLoadBalancerNodePorts=False),
        (denied("spec.type", "type LoadBalancer", "types"),),
        with_services(types=BALANCED),
    ),
    (
        service(externalIPs=["192.0.2.1", "192.0.2.2"]),
        (
            denied("spec.externalIPs[0]", "address 192.0.2.1", "externalCIDRs"),
            denied("spec.externalIPs[1]", "address 192.0.2.2", "externalCIDRs"),
        ),
        with_services(external_cidrs=RANGE),
    ),
    (
        service(loadBalancerIP="192.0.2.1"),
        (denied("spec.loadBalancerIP", "address 192.0.2.1", "loadBalancerCIDRs"),),
        with_services(load_balancer_cidrs=RANGE),
    ),
    (
        service(loadBalancerClass="example.com/internal"),
        (
            denied(
                "spec.loadBalancerClass", "load balancer class example.com/internal", "loadBalancerClasses"
            ),
        ),
        with_services(load_balancer_classes=frozenset({"example.com/internal"})),
    ),
    (
        service(externalName="api.other.svc.cluster.local"),
        (denied("spec.externalName", "name api.other.svc.cluster.local", "externalNames"),),
        with_services(external_names=patterns.of("*.svc.cluster.local")),
    ),
    *(
        (
            annotated(key),
            (denied(f"metadata.annotations[{key}]", "this annotation", "allowedAnnotations"),),
            with_services(allowed_annotations=patterns.of(key)),
        )
        for key in (
            "service.beta.kubernetes.io/aws-load-balancer-internal",
            "external-dns.alpha.kubernetes.io/hostname",
            "metallb.io/loadBalancerIPs",
            "cloud.google.com/neg",
            "service.cilium.io/global",
        )
    ),
]


@pytest.mark.parametrize(
    "value",
    [
        ORDINARY,
        {},
        service(),
        service(clusterIP="None"),
        service(type="ExternalName", externalName="db.example.com"),
        service(type="ExternalName", externalName="db.example.com."),
    ],
)
def test_ordinary_services_pass(value: Object) -> None:
    assert refusals_of(value, DEFAULT) == ()


@pytest.mark.parametrize(("value", "expected", "policy"), CASES)
def test_default_policy_refuses(value: Object, expected: tuple[Refusal, ...], policy: SyncPolicy) -> None:
    assert refusals_of(value, DEFAULT) == expected
    assert refusals_of(value, policy) == ()


@pytest.mark.parametrize(
    ("value", "policy", "expected"),
    [
        (
            service(type="LoadBalancer"),
            with_services(types=BALANCED),
            (denied("spec.allocateLoadBalancerNodePorts", "ports of the nodes", "types"),),
        ),
        (
            service(externalIPs=["192.0.2.1", "198.51.100.1", "x", None]),
            with_services(external_cidrs=RANGE),
            (
                denied("spec.externalIPs[1]", "address 198.51.100.1", "externalCIDRs"),
                denied("spec.externalIPs[2]", "address x", "externalCIDRs"),
                denied("spec.externalIPs[3]", "address (NoneType)", "externalCIDRs"),
            ),
        ),
        (
            service(externalName="api.other.svc.east.example"),
            with_services(cluster_domain="east.example"),
            (denied("spec.externalName", "name api.other.svc.east.example", "externalNames"),),
        ),
        (
            annotated("lb.example.com/pool"),
            with_services(denied_annotations=patterns.of("lb.example.com/*")),
            (denied("metadata.annotations[lb.example.com/pool]", "this annotation", "allowedAnnotations"),),
        ),
    ],
)
def test_policy_refuses(value: Object, policy: SyncPolicy, expected: tuple[Refusal, ...]) -> None:
    assert refusals_of(value, policy) == expected


@given(changed(ORDINARY, *(value for value, _, _ in CASES)))
def test_any_json_gives_refusals(value: Object) -> None:
    for policy in (DEFAULT, with_services(types=BALANCED, external_cidrs=RANGE)):
        assert are_refusals(services.refusals(value, policy))


@pytest.mark.parametrize("name", ["db.example.com", "169.254.169.254", "api.other.svc.cluster.local"])
def test_an_external_name_stays_in_the_tenant(name: str) -> None:
    """It may mean anything later, to who follows it in the super cluster."""
    value = service(type="ExternalName", externalName=name)
    assert refusals_of(value, DEFAULT) == ()
    assert [each.path for each in services.stays(value, DEFAULT)] == ["spec.type"]
    fqdn = {"addressType": "FQDN", "endpoints": [{"addresses": [name]}]}
    assert [each.path for each in services.slice_stays(fqdn, DEFAULT)] == ["addressType"]
    allowed = with_services(types=ALL_TYPES)
    assert (services.stays(value, allowed), services.slice_stays(fqdn, allowed)) == ((), ())


def test_an_external_name_that_may_go_down_is_judged() -> None:
    named = service(type="ExternalName", externalName="169.254.169.254")
    expected = denied("spec.externalName", "name 169.254.169.254", "externalNames")
    assert refusals_of(named, with_services(types=ALL_TYPES)) == (expected,)
    assert refusals_of(named, with_services(types=ALL_TYPES, external_names=patterns.of("*"))) == ()
