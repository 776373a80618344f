# SPDX-License-Identifier: Apache-2.0
"""Keys of labels and annotations by the SyncPolicy, as in docs/spec/sync-policy.md#labels-and-annotations."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.objects import Object
from syncer.policy import patterns
from syncer.policy.metadata_keys import (
    HARMLESS,
    UNREPORTED,
    KeyVerdict,
    changes,
    label_verdict,
    refusals,
)
from syncer.policy.sync_policy import (
    DEFAULT,
    IngressPolicy,
    MetadataPolicy,
    PodPolicy,
    ServicePolicy,
    SyncPolicy,
)
from tests.unit.syncer.policy.arbitrary_json import JSON, are_refusals
from tests.unit.syncer.policy.judged import DOMAINS, rules

# What controllers of many clusters do as annotations say.
HONOURED = (
    "IO.katacontainers.config.hypervisor.kernel",
    "ad.datadoghq.com/web.checks",
    "azure.workload.identity/client-id",
    "cdi.kubevirt.io/storage.import.endpoint",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "co.elastic.logs/hosts",
    "eks.amazonaws.com/role-arn",
    "iam.amazonaws.com/role",
    "iam.gke.io/gcp-service-account",
    "io.example.undotted",
    "linkerd.io/inject",
    "reflector.v1.k8s.emberstack.com/reflection-allowed",
    "replicator.v1.mittwald.de/replicate-to",
    "scheduler.alpha.kubernetes.io/node-selector",
    "sidecar.istio.io/userVolume",
    "tailscale.com/tailnet-ip",
    "vault.hashicorp.com/agent-inject",
)
KINDS = (
    "ConfigMap",
    "EndpointSlice",
    "Endpoints",
    "Namespace",
    "Network",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "Secret",
    "Service",
    "ServiceAccount",
    "Widget",
)
NOWHERE: Object = {"metadata": {}}


def annotated(*names: str, **spec: Any) -> Object:
    return {"metadata": {"annotations": dict.fromkeys(names, "x")}, "spec": spec}


def reported(kind: str, value: Object, policy: SyncPolicy = DEFAULT) -> list[str]:
    return [each.path for each in changes(value, rules(kind, value, policy), lambda _: False)]


def refused(kind: str, value: Object, policy: SyncPolicy = DEFAULT) -> list[str]:
    found = refusals(value, rules(kind, value, policy), lambda _: False)
    assert are_refusals(found)
    return [each.path for each in found]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", HONOURED)
def test_what_a_controller_may_honour_stays_or_is_refused(kind: str, key: str) -> None:
    assert rules(kind, NOWHERE, DEFAULT).annotation(key) in (KeyVerdict.REPORTED, KeyVerdict.REFUSED)
    assert label_verdict(key, DEFAULT.metadata, DOMAINS) in (KeyVerdict.REPORTED, KeyVerdict.UNREPORTED)


@pytest.mark.parametrize("kind", [*KINDS, "Ingress"])
@pytest.mark.parametrize("key", HONOURED)
def test_each_key_can_be_allowed(kind: str, key: str) -> None:
    policy = SyncPolicy(
        pods=PodPolicy(allowed_annotations=patterns.of(key)),
        metadata=MetadataPolicy(allowed_labels=patterns.of(key), allowed_annotations=patterns.of(key)),
    )
    assert rules(kind, NOWHERE, policy).annotation(key) is KeyVerdict.ALLOWED
    assert label_verdict(key, policy.metadata, DOMAINS) is KeyVerdict.ALLOWED


@pytest.mark.parametrize("key", ["app", "note", "pod-template-hash", "helm.sh/chart", "checksum/config"])
def test_harmless_keys_go_down(key: str) -> None:
    for kind in (*KINDS, "Ingress"):
        assert rules(kind, NOWHERE, DEFAULT).annotation(key) is KeyVerdict.ALLOWED
    assert label_verdict(key, DEFAULT.metadata, DOMAINS) is KeyVerdict.ALLOWED


def test_a_key_of_no_domain_can_be_withheld() -> None:
    """Sidecars of Grafana load ConfigMaps of all namespaces that have this label."""
    assert label_verdict("grafana_datasource", DEFAULT.metadata, DOMAINS) is KeyVerdict.REPORTED
    assert (
        label_verdict("grafana_datasource", MetadataPolicy(withheld_keys=patterns.of()), DOMAINS)
        is KeyVerdict.ALLOWED
    )


def test_a_chart_of_today_has_nothing_reported() -> None:
    value = annotated("kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision")
    value["metadata"]["annotations"] |= {"meta.helm.sh/release-name": "r", "prometheus.io/scrape": "true"}
    value["metadata"]["labels"] = {"app.kubernetes.io/name": "n", "helm.sh/chart": "c-1"}
    for kind in (*KINDS, "Ingress"):
        assert (reported(kind, value), refused(kind, value)) == ([], [])


@pytest.mark.parametrize(
    "key",
    [
        "nginx.ingress.kubernetes.io/auth-type",
        "nginx.ingress.kubernetes.io/auth-secret",
        "nginx.ingress.kubernetes.io/whitelist-source-range",
        "nginx.ingress.kubernetes.io/force-ssl-redirect",
        "traefik.ingress.kubernetes.io/router.middlewares",
        "some.controller.example/allow-list",
    ],
)
def test_an_ingress_keeps_what_keeps_people_out(key: str) -> None:
    path = f"metadata.annotations[{key}]"
    assert refused("Ingress", annotated(key)) == [path]
    allowed = SyncPolicy(ingresses=IngressPolicy(allowed_annotations=patterns.of(key)))
    assert (refused("Ingress", annotated(key), allowed), reported("Ingress", annotated(key), allowed)) == (
        [],
        [],
    )


def test_an_ingress_may_lack_a_timeout() -> None:
    value = annotated("nginx.ingress.kubernetes.io/proxy-read-timeout")
    assert refused("Ingress", value) == []
    assert reported("Ingress", value) == [
        "metadata.annotations[nginx.ingress.kubernetes.io/proxy-read-timeout]"
    ]


@pytest.mark.parametrize(
    "key",
    [
        "service.beta.kubernetes.io/aws-load-balancer-internal",
        "service.beta.kubernetes.io/azure-load-balancer-internal",
        "networking.gke.io/load-balancer-type",
        "some.cloud.example/internal",
    ],
)
def test_a_load_balancer_does_not_become_public(key: str) -> None:
    path = f"metadata.annotations[{key}]"
    for spec in ({"type": "LoadBalancer"}, {"type": "NodePort"}, {"externalIPs": ["192.0.2.1"]}):
        assert refused("Service", annotated(key, **spec)) == [path]
        allowed = SyncPolicy(services=ServicePolicy(allowed_annotations=patterns.of(key)))
        assert refused("Service", annotated(key, **spec), allowed) == []


def test_an_unknown_key_of_a_service_that_nobody_reaches_stays() -> None:
    value = annotated("some.mesh.example/retries", type="ClusterIP")
    assert refused("Service", value) == []
    assert reported("Service", value) == ["metadata.annotations[some.mesh.example/retries]"]


def test_an_order_to_the_runtime_has_the_pod_refused_in_any_case() -> None:
    for key in ("io.katacontainers.config.agent.debug", "IO.KataContainers.config.agent.debug"):
        assert refused("Pod", annotated(key)) == [f"metadata.annotations[{key}]"]
        # What is allowed for all kinds is not an order to the runtime.
        every = SyncPolicy(metadata=MetadataPolicy(allowed_annotations=patterns.of("*")))
        assert refused("Pod", annotated(key), every) == [f"metadata.annotations[{key}]"]


def test_keys_that_are_nobodys_are_passed_over() -> None:
    value = annotated("transparency.tenancy.x-k8s.io/clusterIP", type="LoadBalancer")
    judged = rules("Service", value, DEFAULT)
    assert refusals(value, judged, lambda key: "tenancy" in key) == ()
    assert list(changes(value, judged, lambda key: "tenancy" in key)) == []


def test_each_reason_is_written() -> None:
    for key, reason in (*HARMLESS, *UNREPORTED):
        assert patterns.is_pattern(key)
        assert reason


@given(JSON, JSON)
def test_any_json_is_judged(labels: Any, annotations: Any) -> None:
    value = {"metadata": {"labels": labels, "annotations": annotations}}
    for kind in ("Pod", "Ingress", "Service", "Secret"):
        refused(kind, value)
        reported(kind, value)


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=3), max_size=200))
def test_what_is_refused_is_bounded(annotations: dict[str, str]) -> None:
    refused("Ingress", {"metadata": {"annotations": annotations}})
