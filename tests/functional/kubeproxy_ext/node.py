# SPDX-License-Identifier: Apache-2.0
"""A node under test: a real kubeproxy-ext process, a fake API server, a fake kata-bridge."""

from pathlib import Path
from typing import Any

from daemonkit.kube.resources import ENDPOINT_SLICES, NAMESPACES, NODES, SERVICES
from tenancy import keys
from tests.functional.daemon_node import NAME, DaemonNode


class RulesNode(DaemonNode):
    """With tenants' Services, and guests that get rules."""

    def __init__(self, directory: Path, settings: dict[str, Any] | None = None) -> None:
        its = {"kind": "KubeproxyExtConfiguration", "serviceCIDRs": ["10.96.0.0/16"]}
        program = ("-m", "kubeproxy_ext")
        super().__init__(directory, "kubeproxy-ext", program, its | (settings or {}))
        node = {"name": NAME, "labels": {"topology.kubernetes.io/zone": "z1"}}
        self.apiserver.storage.put(NODES, {"metadata": node})

    # ---- the super cluster

    def put_tenant(self, tenant: str, *namespaces: str) -> None:
        for name in namespaces or ("default",):
            annotations = {keys.CLUSTER: tenant, keys.NAMESPACE: name}
            metadata = {"name": f"{tenant}-{name}", "annotations": annotations}
            self.apiserver.storage.put(NAMESPACES, {"metadata": metadata})

    def put_service(self, tenant: str, name: str, ip: str, *endpoints: str, protocol: str = "TCP") -> None:
        """A Service in the tenant's default namespace, with one slice of these endpoints."""
        metadata = {"name": name, "namespace": f"{tenant}-default"}
        port = {"name": "p", "protocol": protocol, "port": 80}
        spec = {"clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"], "ports": [port]}
        self.apiserver.storage.put(SERVICES, {"metadata": metadata, "spec": spec})
        self.put_slice(tenant, name, *endpoints, protocol=protocol)

    def put_slice(
        self, tenant: str, service: str, *endpoints: str, protocol: str = "TCP", namespace: str = "default"
    ) -> None:
        metadata = {
            "name": f"{service}-1",
            "namespace": f"{tenant}-{namespace}",
            "labels": {"kubernetes.io/service-name": service},
        }
        self.apiserver.storage.put(
            ENDPOINT_SLICES,
            {
                "metadata": metadata,
                "addressType": "IPv4",
                "endpoints": [{"addresses": [ip], "conditions": {"ready": True}} for ip in endpoints],
                "ports": [{"name": "p", "protocol": protocol, "port": 8080}],
            },
        )

    # ---- the daemon

    async def metric(self, name: str) -> float:
        """The sum of a family's series."""
        lines = (await self.get("/metrics"))[1].splitlines()
        found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    # ---- what guests have

    def rules(self, guest: str) -> str:
        """The IPv4 text that a guest has; empty if it has none."""
        installed_ruleset = self.bridge.installed(guest)
        texts = (
            [d.text() for d in installed_ruleset.documents if d.family.value == "ipv4"]
            if installed_ruleset is not None
            else []
        )
        return "".join(texts)

    def has(self, guest: str, *texts: str) -> bool:
        return all(text in self.rules(guest) for text in texts)
