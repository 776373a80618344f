# SPDX-License-Identifier: Apache-2.0
"""vc-operator in the ring, with the configuration keys of its contract and its shipped rights alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import yaml

from tests.k8s.operator.ground import OperatorGround
from tests.k8s.ring import shipped, virtual_clusters
from tests.k8s.ring.agent import AGENT_PORT
from tests.k8s.ring.daemon_process import DaemonProcess
from tests.k8s.ring.processes import wait_for
from tests.k8s.syncer.cluster import NODE_NETWORK, SUPER_CIDR
from tests.k8s.syncer.node import PODS
from tests.k8s.syncer.shops import object_of

NAMESPACE = "vcnode-system"
CLUSTER_VERSIONS = f"/apis/{virtual_clusters.GROUP}/clusterversions"
_NAME = "vc-operator"
# The same for the operator and for the shipped policy of VirtualClusters.
_CIDRS = {"serviceCidrs": [SUPER_CIDR], "podCidrs": [PODS], "nodeCidrs": [NODE_NETWORK]}
_RANGES = "vc-operator-ranges"
_SERVED_S = 20.0


def is_built() -> bool:
    """Whether there is an operator to start."""
    return importlib.util.find_spec("tenant_operator.__main__") is not None


class OperatorDaemon(DaemonProcess):
    """One operator with its configuration, status page and log."""

    def __init__(
        self, ground: OperatorGround, settings: dict[str, Any] | None = None, *, name: str = _NAME
    ) -> None:
        """`settings` replace whole keys of the configuration."""
        ring = ground.ring
        super().__init__(name, "tenant_operator", ring.control, ring.directory)
        _install_definition(ground)
        ground.api.create("/api/v1/namespaces", object_of("v1", "Namespace", NAMESPACE), may_exist=True)
        ground.api.create(
            f"/api/v1/namespaces/{NAMESPACE}/configmaps",
            object_of("v1", "ConfigMap", _RANGES, data={key: ",".join(_CIDRS[key]) for key in _CIDRS}),
            may_exist=True,
        )
        self._kubeconfig = shipped.let_in(ring.super_cluster, _NAME, "", self.directory)
        # Where a test starts a server that tenants share.
        self._stores = ring.control.address
        self._serving_authority = self.directory / "vn-agent-ca.crt"
        self._serving_authority.write_bytes(ring.authorities.agent_serving.cert_pem)
        self.configure(settings or {})

    def configure(self, settings: dict[str, Any]) -> None:
        """Write its configuration, for its next start."""
        self.write_configuration(
            {
                "apiVersion": "vcnode.io/v1alpha1",
                "kind": "OperatorConfiguration",
                "superCluster": {
                    "kubeconfigFile": str(self._kubeconfig),
                    **_CIDRS,
                },
                "nodes": {"port": AGENT_PORT, "servingCaFile": str(self._serving_authority)},
                "namespace": NAMESPACE,
                "fence": {"storeCidrs": [f"{self._stores}/32"]},
                "status": {"socket": str(self.status_socket)},
                **settings,
            }
        )

    @property
    def kubeconfig(self) -> Path:
        """Its access to the super cluster."""
        return self._kubeconfig


def _install_definition(ground: OperatorGround) -> None:
    """ClusterVersions; the ring has VirtualClusters from its start."""
    document = yaml.safe_load((virtual_clusters.SHIPPED / "clusterversions.yaml").read_text())
    ground.api.create(virtual_clusters.CRDS, document, may_exist=True)
    wait_for(
        "ClusterVersions are served",
        lambda: ground.api.endpoint.request("GET", CLUSTER_VERSIONS).status == 200,
        timeout_s=_SERVED_S,
    )
