# SPDX-License-Identifier: Apache-2.0
"""What a pod may mount, by the SyncPolicy: docs/spec/sync-policy.md#pods."""

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import pods
from syncer.policy.sync_policy import DEFAULT, ClaimPolicy, SyncPolicy
from tests.unit.syncer.policy.judged import with_keys
from tests.unit.syncer.policy.pod_examples import (
    container,
    denied,
    never,
    volume,
    with_pods,
)

refusals_of = with_keys("Pod", pods.refusals)
C = "spec.containers[0]"

REFUSED: list[tuple[Object, Refusal]] = [
    (
        volume(hostPath={"path": "/"}),
        denied("spec.volumes[0].hostPath", "a volume of type hostPath", "pods.volumeTypes"),
    ),
    (
        container(volumeMounts=[{"mountPropagation": "Bidirectional"}]),
        never(f"{C}.volumeMounts[0].mountPropagation", "mounts that reach the node"),
    ),
    (
        volume(nfs={"server": "10.0.0.1"}),
        denied("spec.volumes[0].nfs", "a volume of type nfs", "pods.volumeTypes"),
    ),
    (
        volume(csi={"driver": "hostpath.csi.k8s.io"}),
        denied("spec.volumes[0].csi.driver", "CSI driver hostpath.csi.k8s.io", "pods.csiDrivers"),
    ),
    (
        volume(projected={"sources": [{"secret": {}}, {"clusterTrustBundle": {"name": "ca"}}]}),
        denied(
            "spec.volumes[0].projected.sources[1].clusterTrustBundle",
            "a projected clusterTrustBundle",
            "pods.projectedSources",
        ),
    ),
    (
        volume(projected={"sources": [{"podCertificate": {"signerName": "a/b"}}]}),
        denied(
            "spec.volumes[0].projected.sources[0].podCertificate",
            "a projected podCertificate",
            "pods.projectedSources",
        ),
    ),
    (
        volume(
            ephemeral={"volumeClaimTemplate": {"spec": {"dataSourceRef": {"name": "a", "namespace": "b"}}}}
        ),
        never(
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.dataSourceRef.namespace",
            "a source in another namespace",
        ),
    ),
]

ALLOWED: list[tuple[Object, SyncPolicy]] = [
    (volume(hostPath={"path": "/"}), with_pods(volume_types=frozenset({"hostPath"}))),
    (volume(csi={"driver": "a.io"}), with_pods(csi_drivers=frozenset({"a.io"}))),
    (
        volume(projected={"sources": [{"clusterTrustBundle": {}}]}),
        with_pods(projected_sources=frozenset({"clusterTrustBundle"})),
    ),
]

NARROWED: list[tuple[Object, SyncPolicy, Refusal]] = [
    (
        volume(ephemeral={"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}),
        SyncPolicy(claims=ClaimPolicy(frozenset({"slow"}))),
        denied(
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.storageClassName",
            "storage class fast",
            "claims.storageClasses",
        ),
    ),
]


@pytest.mark.parametrize(("value", "expected"), REFUSED, ids=lambda each: getattr(each, "path", ""))
def test_default_policy_refuses(value: Object, expected: Refusal) -> None:
    assert refusals_of(value, DEFAULT) == (expected,)


@pytest.mark.parametrize(("value", "policy"), ALLOWED)
def test_policy_allows(value: Object, policy: SyncPolicy) -> None:
    assert refusals_of(value, DEFAULT) != ()
    assert refusals_of(value, policy) == ()


@pytest.mark.parametrize(("value", "policy", "expected"), NARROWED)
def test_policy_refuses(value: Object, policy: SyncPolicy, expected: Refusal) -> None:
    assert refusals_of(value, policy) == (expected,)
