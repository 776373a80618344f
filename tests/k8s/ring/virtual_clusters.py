# SPDX-License-Identifier: Apache-2.0
"""VirtualClusters on a real apiserver: the shipped definition, objects, and a vn-agent that reads them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

from tests.k8s.ring.agent import AgentIdentity, VnAgentDaemon
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingError, RingProcess, wait_for

SHIPPED = Path(__file__).resolve().parents[3] / "packaging" / "crds"
GROUP = "tenancy.x-k8s.io/v1alpha1"
NAME = "virtualclusters.tenancy.x-k8s.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SERVED_S = 30.0
_ALIVE_S = 15.0


def install(api: KubernetesApi, file: str = "virtualclusters.yaml") -> None:
    """Apply a shipped definition and wait until the apiserver serves it."""
    definition = _definition(file)
    api.create(CRDS, definition, may_exist=True)
    plural = definition["spec"]["names"]["plural"]
    wait_for(f"{plural} are served", lambda: is_served(api, plural), timeout_s=_SERVED_S)


def uninstall(api: KubernetesApi, file: str = "virtualclusters.yaml") -> None:
    """Delete the definition, and every object of it."""
    definition = _definition(file)
    api.delete(f"{CRDS}/{definition['metadata']['name']}")
    plural = definition["spec"]["names"]["plural"]
    wait_for(f"{plural} are gone", lambda: not is_served(api, plural), timeout_s=_SERVED_S)


def _definition(file: str) -> JsonObject:
    value: JsonObject = yaml.safe_load((SHIPPED / file).read_text())
    return value


def is_served(api: KubernetesApi, plural: str = "virtualclusters") -> bool:
    try:
        api.get(f"/apis/{GROUP}/{plural}")
    except RingError:
        return False
    return True


def path(namespace: str, name: str = "") -> str:
    """Where the VirtualClusters of a namespace are, or one of them."""
    return f"/apis/{GROUP}/namespaces/{namespace}/virtualclusters" + (f"/{name}" if name else "")


def manifest(name: str, spec: JsonObject | None = None, status: JsonObject | None = None) -> JsonObject:
    """A VirtualCluster; without `spec` the least that there is."""
    found: JsonObject = {
        "apiVersion": GROUP,
        "kind": "VirtualCluster",
        "metadata": {"name": name},
        "spec": {"clusterVersionName": "cv"} if spec is None else spec,
    }
    return found if status is None else {**found, "status": status}


class VirtualClusterAgent(VnAgentDaemon):
    """A vn-agent of the node, at `port`, whose tenants come by the kubeconfig."""

    def __init__(
        self,
        node: str,
        namespace: NetworkNamespace,
        identity: AgentIdentity,
        directory: Path,
        port: int,
        kubeconfig: Path,
        token_listeners: Iterable[JsonObject] = (),
    ) -> None:
        super().__init__(node, namespace, sys.executable, directory, identity)
        self.directory = directory
        self.socket = directory / "vn-agent.sock"
        self._configuration = directory / "vn-agent.yaml"
        configuration = json.loads(self._configuration.read_text())
        configuration["listen"]["port"] = port
        configuration["tenants"] = {"kubeconfigFile": str(kubeconfig)}
        configuration["tokenListeners"] = list(token_listeners)
        self._configuration.write_text(json.dumps(configuration, indent=1))

    def start(self) -> None:
        """Start it and wait until it is alive: ready it is when its sources have synced."""
        self.daemon = RingProcess(
            "vn-agent with VirtualClusters",
            [
                *self.namespace.enter,
                sys.executable,
                *("-m", "vnagent", "--config", str(self._configuration)),
            ],
            self.directory / "vn-agent.log",
            directory=self.directory,
        )
        self.daemon.wait_until(lambda: self.status("/healthz")[0] == 200, timeout_s=_ALIVE_S)
