# SPDX-License-Identifier: Apache-2.0
"""What the conformance tests run on: the syncer's ring, with DNS in both clusters, and a SyncPolicy."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tenancy import keys
from tests.k8s.build import Binaries
from tests.k8s.conformance import policy
from tests.k8s.conformance.images import COREDNS
from tests.k8s.ring import cluster_dns
from tests.k8s.ring.processes import SYSTEM_PATH, wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.syncer import policies
from tests.k8s.syncer.cluster import SUPER_DNS, SyncedRing, start_synced_ring
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.node import start_kube_proxy

_TENANT_DNS = "10.32.0.10"
_VNODES_S = 60.0
# All that kube-proxy needs for iptables; without `nft` it cannot remove the rules of the super cluster's.
_PROXY_PROGRAMS = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save")
_MORE_PROXY_PROGRAMS = ("ip6tables-restore", "conntrack", "modprobe", "nsenter", "ip")


@dataclass(frozen=True, slots=True)
class Ground:
    """The ring with the tests' images; a tenant joins with `start_tenant`."""

    ring: SyncedRing
    stack: ExitStack

    def start_super_dns(self) -> None:
        """DNS in the super cluster, for the bare run."""
        api = self.ring.super_cluster.api
        cluster_dns.install(api, SUPER_DNS, COREDNS)
        cluster_dns.wait_ready(api)

    def start_tenant(self) -> RingTenant:
        """The syncer, and what a tenant's pods need: DNS, and rules for the tenant's own addresses."""
        api = self.ring.super_cluster.api
        policies.replace(api, policy.SPEC)
        api.create(
            "/apis/node.k8s.io/v1/runtimeclasses",
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": policy.RUNTIME_CLASS, "labels": {keys.SUPER_PUBLIC: "true"}},
                "handler": policy.HANDLER,
            },
        )
        syncer = SyncerDaemon(self.ring, {"networks": {"enabled": False}})
        self.stack.callback(syncer.stop)
        syncer.start()
        tenant = self.ring.tenants[0]
        names = {node.name for node in self.ring.nodes}

        def has_vnodes() -> bool:
            items = tenant.api.get("/api/v1/nodes")["items"]
            return names == {item["metadata"]["name"] for item in items if not item["spec"].get("taints")}

        wait_for("the tenant has all nodes", has_vnodes, timeout_s=_VNODES_S)
        path = _proxy_path(self.ring.directory / "proxy-programs")
        for node in self.ring.nodes:
            proxy = start_kube_proxy(
                node.node,
                tenant.apiserver,
                self.ring.binaries,
                node.directory,
                mode="iptables",
                path=path,
            )
            self.stack.callback(proxy.stop)
        cluster_dns.install(tenant.api, _TENANT_DNS, COREDNS)
        cluster_dns.wait_ready(tenant.api)
        return tenant


def start(binaries: Binaries, images: Path, stack: ExitStack) -> Ground:
    """Start the ring and import the images. Raises `RingError`."""
    ring = start_synced_ring(binaries, stack, dns_address=SUPER_DNS)
    for node in ring.nodes:
        node.node.import_image(images)
    return Ground(ring, stack)


def _proxy_path(directory: Path) -> str:
    """A search path that has only what is listed."""
    directory.mkdir()
    for name in (*_PROXY_PROGRAMS, *_MORE_PROXY_PROGRAMS):
        found = shutil.which(name, path=SYSTEM_PATH)
        if found is not None:
            (directory / name).symlink_to(found)
    return str(directory)
