# SPDX-License-Identifier: Apache-2.0
"""vc-syncer in the ring, with the configuration keys of its contract and its shipped role alone."""

from __future__ import annotations

import importlib.util
from typing import Any

from tests.k8s.ring import shipped
from tests.k8s.ring.agent import AGENT_PORT
from tests.k8s.ring.daemon_process import DaemonProcess
from tests.k8s.syncer.cluster import SyncedRing

_NAME = "vc-syncer"


def is_built() -> bool:
    """Whether there is a syncer to start."""
    return importlib.util.find_spec("syncer.__main__") is not None


class SyncerDaemon(DaemonProcess):
    """One syncer with its configuration, status page and log."""

    def __init__(
        self, ring: SyncedRing, settings: dict[str, Any] | None = None, *, name: str = _NAME
    ) -> None:
        """`settings` replace whole keys of the configuration."""
        super().__init__(name, "syncer", ring.control, ring.directory)
        self._kubeconfig = shipped.let_in(ring.super_cluster, _NAME, "", self.directory)
        self.configure(settings or {})

    def configure(self, settings: dict[str, Any]) -> None:
        """Write its configuration, for its next start."""
        self.write_configuration(
            {
                "apiVersion": "vcnode.io/v1alpha1",
                "kind": "SyncerConfiguration",
                "superCluster": {"kubeconfigFile": str(self._kubeconfig)},
                "tenants": {"virtualClusters": {}},
                "vnAgent": {"port": AGENT_PORT, "address": "node"},
                "resources": ["ingress", "ingressclass", "priorityclass", "runtimeclass", "crd"],
                "status": {"socket": str(self.status_socket)},
                **settings,
            }
        )

    def tail(self) -> str:
        """The last error of each tenant, and the end of its log."""
        tenants = self.status().get("tenants", {})
        errors = [f"{each['key']}: {each['lastError']}" for each in tenants.values() if each.get("lastError")]
        return "\n".join([*errors, super().tail()])
