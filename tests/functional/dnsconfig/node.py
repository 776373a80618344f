# SPDX-License-Identifier: Apache-2.0
"""A node under test: a real dnsconfig process, a fake API server, a fake kata-bridge."""

from pathlib import Path
from typing import Any

from daemonkit.kube.resources import NAMESPACES, PODS, SERVICES, VIRTUAL_CLUSTERS, Resource
from dnsconfig.cluster.objects import NETWORKS
from tests.functional.daemon_node import NAME, DaemonNode
from tests.unit.dnsconfig import objects

_RESOURCES = {
    "Namespace": NAMESPACES,
    "Pod": PODS,
    "Service": SERVICES,
    "Network": NETWORKS,
    "VirtualCluster": VIRTUAL_CLUSTERS,
}


class DnsNode(DaemonNode):
    """With pods, their tenants and networks, and a resolv.conf of the node's own."""

    def __init__(self, directory: Path, settings: dict[str, Any] | None = None) -> None:
        self.resolv_conf = directory / "resolv.conf"
        self.resolv_conf.write_text("nameserver 192.0.2.1\nsearch example.org\n")
        its = {"kind": "DnsConfigConfiguration", "resolvConf": str(self.resolv_conf)}
        super().__init__(directory, "dnsconfig", ("-m", "dnsconfig"), its | (settings or {}))

    # ---- the super cluster

    def put(self, *items: dict[str, Any]) -> None:
        for item in items:
            self.apiserver.storage.put(_RESOURCES[item["kind"]], item)

    def put_pod(self, tenant: str, name: str, **how: Any) -> str:
        """A pod of a tenant on this node; returns its UID."""
        item = objects.pod(tenant, name, nodeName=NAME, **how)
        uid: str = self.apiserver.storage.put(PODS, item)["metadata"]["uid"]
        return uid

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        self.apiserver.storage.delete(resource, namespace, name)

    # ---- what pods have

    def text(self, uid: str) -> str:
        return self.bridge.resolv_confs.get(uid, "")

    def servers(self, uid: str) -> list[str]:
        lines = self.text(uid).splitlines()
        return [line.removeprefix("nameserver ") for line in lines if line.startswith("nameserver ")]

    def waits(self, uid: str) -> str:
        return self.bridge.wait_messages.get(uid, "")
