# SPDX-License-Identifier: Apache-2.0
"""What vc-operator needs of a super cluster: volumes, cluster DNS, images of control planes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.k8s.operator import releases, storage
from tests.k8s.operator.storage import DiskProvisioner
from tests.k8s.ring import cluster_dns, images
from tests.k8s.ring.api import KubernetesApi
from tests.k8s.syncer.cluster import SUPER_DNS, SyncedRing


@dataclass(frozen=True, slots=True)
class OperatorGround:
    """The syncer's ring, ready for control planes in pods."""

    ring: SyncedRing = field(repr=False)
    provisioner: DiskProvisioner = field(repr=False)

    @property
    def api(self) -> KubernetesApi:
        """The super cluster, as its administrator."""
        return self.ring.super_cluster.api

    @property
    def directory(self) -> Path:
        return self.ring.directory


@contextmanager
def prepared(ring: SyncedRing) -> Iterator[OperatorGround]:
    """The ring with images of etcd, the current Kubernetes and vc-signer on its nodes, DNS, and volumes."""
    api = ring.super_cluster.api
    coredns = ring.binaries["coredns"]
    releases.import_image(ring, lambda archive: images.write_coredns_image(archive, coredns))
    cluster_dns.install(api, SUPER_DNS, images.COREDNS)
    releases.import_etcd(ring)
    releases.import_kubernetes(ring, releases.CURRENT)
    releases.import_signer(ring)
    cluster_dns.wait_ready(api)
    with storage.provisioning(api, {node.name: node.directory for node in ring.nodes}) as provisioner:
        yield OperatorGround(ring, provisioner)
