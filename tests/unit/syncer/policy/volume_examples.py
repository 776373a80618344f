# SPDX-License-Identifier: Apache-2.0
"""Pods by what they mount, and what the SyncPolicy says of them: docs/spec/sync-policy.md#pods."""

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.sync_policy import ClaimPolicy, SyncPolicy
from tests.unit.syncer.policy.pod_examples import (
    container,
    denied,
    never,
    volume,
    with_pods,
)

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
