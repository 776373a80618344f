# SPDX-License-Identifier: Apache-2.0
"""What plans of all kinds say about what does not go down."""

from dataclasses import replace

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.plan import Refusal
from syncer.kinds import ingress, namespace, service
from syncer.kinds.custom_resource import CustomResource, CustomResourceSync
from syncer.kinds.port import KindSync
from syncer.kinds.table import kinds
from syncer.policy import patterns
from syncer.policy.sync_policy import DEFAULT, FieldLimits, IngressPolicy, MetadataPolicy, ServicePolicy
from tests.unit.syncer.kinds.objects import PREFIXED, brief, created, plan, tenant_object

NAMED = {
    each.kind.kind: each
    for each in kinds(["ingress"], [CustomResource("a.example", "v1", "widgets", "Widget")])
}
# Whose objects come from tenants as they are, without what the tests of the kind give them.
PLAIN = ("ConfigMap", "Namespace", "NetworkPolicy", "Secret", "Service", "ServiceAccount", "Widget")
_HONOURED = "some.controller.example/order"


@pytest.mark.parametrize("kind", PLAIN)
def test_what_stays_is_reported_once_it_goes_down(kind: str) -> None:
    sync: KindSync = NAMED[kind]
    own = tenant_object(kind, meta={"annotations": {_HONOURED: "x", "note": "n"}})
    made = plan(sync, own, None)
    meta = created(made)["metadata"]
    assert _HONOURED not in meta["annotations"]
    assert meta["annotations"]["note"] == "n"
    assert [each.path for each in made.changes] == [f"metadata.annotations[{_HONOURED}]"]


def test_an_ingress_with_authentication_is_refused() -> None:
    key = "nginx.ingress.kubernetes.io/auth-type"
    own = tenant_object(
        "Ingress", meta={"annotations": {key: "basic"}}, spec={"rules": [{"host": "a.example.com"}]}
    )
    found = plan(ingress.SYNC, own, None)
    assert found.actions == ()
    assert found.refusals == (
        Refusal(
            f"metadata.annotations[{key}]",
            "this annotation: SyncPolicy field spec.ingresses.allowedAnnotations does not allow it",
        ),
    )
    policy = replace(
        DEFAULT, ingresses=IngressPolicy(allowed_annotations=patterns.of("nginx.ingress.kubernetes.io/*"))
    )
    made = plan(ingress.SYNC, own, None, FakeView(policy=policy))
    assert created(made)["metadata"]["annotations"][key] == "basic"
    assert made.changes == ()


def test_an_internal_load_balancer_is_refused() -> None:
    key = "service.beta.kubernetes.io/azure-load-balancer-internal"
    spec = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}
    own = tenant_object("Service", meta={"annotations": {key: "true"}}, spec=spec)
    policy = replace(DEFAULT, services=ServicePolicy(types=frozenset({"ClusterIP", "LoadBalancer"})))
    assert [each.path for each in plan(service.SYNC, own, None, FakeView(policy=policy)).refusals] == [
        f"metadata.annotations[{key}]"
    ]


def test_keys_of_a_virtual_cluster_are_not_reported() -> None:
    meta = {"annotations": {"opaque.example.com/a": "1", "transparent.example.com/b": "2"}}
    made = plan(NAMED["ConfigMap"], tenant_object("ConfigMap", meta=meta), None, FakeView(tenant=PREFIXED))
    assert made.changes == ()


def test_labels_of_a_namespace_are_not_reported() -> None:
    own = tenant_object("Namespace", "ns", "", meta={"labels": {_HONOURED: "x"}})
    assert plan(namespace.SYNC, own, None).changes == ()


def test_an_allowed_label_keeps_its_key() -> None:
    view = FakeView(
        policy=replace(DEFAULT, metadata=MetadataPolicy(allowed_labels=patterns.of("*.example/*")))
    )
    own = tenant_object("ConfigMap", meta={"labels": {_HONOURED: "x"}})
    made = plan(NAMED["ConfigMap"], own, None, view)
    assert created(made)["metadata"]["labels"][_HONOURED] == "x"
    assert brief(made) != []


def test_custom_resources_have_the_rules_of_all_kinds() -> None:
    assert isinstance(NAMED["Widget"], CustomResourceSync)


@pytest.mark.parametrize("kind", [each for each in PLAIN if each not in ("Namespace", "Widget")])
def test_a_field_of_a_newer_kubernetes_is_refused(kind: str) -> None:
    own = tenant_object(kind, aNewField={"x": 1})
    assert brief(plan(NAMED[kind], own, None)) == ["refused aNewField"]
    view = FakeView(policy=replace(DEFAULT, fields=FieldLimits(allowed=patterns.of(f"{kind}.aNewField"))))
    assert created(plan(NAMED[kind], own, None, view))["aNewField"] == {"x": 1}
