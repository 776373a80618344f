# SPDX-License-Identifier: Apache-2.0
"""Every daemon of ours on every node, and a syncer that serves tenants' Networks by CoreDNS in their pods."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from tenancy import keys
from tests.k8s.ring import daemons, gate_networks, gating, images
from tests.k8s.ring.images import COREDNS
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.ring.virtual_clusters import CRDS
from tests.k8s.syncer import policies
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.node import SuperNode
from tests.k8s.syncer.shops import object_of

HANDLER = "kata"
"""The runtime handler and RuntimeClass of guests, whose rules kubeproxy-ext writes."""
NETWORKS = "/apis/arktos.futurewei.com/v1/networks"
_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_DEFINITION = f"{CRDS}/networks.arktos.futurewei.com"
_READY_S = 90.0
# Nothing listens there: no name of another domain is asked for.
_UPSTREAM = "10.70.0.1"
_SETTINGS = {"installsDefinition": True, "image": COREDNS, "upstream": [_UPSTREAM]}


@contextmanager
def networked(ring: SyncedRing, syncer: SyncerDaemon, by: str) -> Iterator[None]:
    """Within, both tenants of the ring have their network; afterwards all is as it was.

    By dnsconfig (`node`), or by the syncer itself (`syncer`), guests get their resolver.
    """
    api = ring.super_cluster.api
    gate_networks.install(api)
    archive = ring.directory / "coredns.tar"
    images.write_coredns_image(archive, ring.binaries["coredns"])
    with ExitStack() as stack:
        stack.enter_context(policies.applied(api, pods={"runtimeClasses": [HANDLER]}))
        made = object_of("node.k8s.io/v1", "RuntimeClass", HANDLER, handler=HANDLER)
        made["metadata"]["labels"] = {keys.SUPER_PUBLIC: "true"}
        api.create(_CLASSES, made, may_exist=True)
        stack.callback(api.delete, f"{_CLASSES}/{HANDLER}")
        for node in ring.nodes:
            node.node.import_image(archive)
            _start_daemons(node, stack)
        stack.callback(_start_again, syncer, {})
        stack.callback(_remove_networks, ring, syncer)
        pods = {"dns": by, "requiredPlugins": ["vcnode"]}
        _start_again(syncer, {"pods": pods, "networks": _SETTINGS})
        for tenant in ring.tenants:
            wait_for(f"{tenant.key} has its network", partial(_is_ready, tenant), timeout_s=_READY_S)
        yield


def phase(tenant: RingTenant, name: str = "default") -> str:
    """That of a Network; empty if there is none."""
    reply = tenant.api.endpoint.request("GET", f"{NETWORKS}/{name}")
    return str(reply.json().get("status", {}).get("phase", "")) if reply.status == 200 else ""


def _start_daemons(node: SuperNode, stack: ExitStack) -> None:
    gate = {"policy": "enforce", **gating.allow_bridge(node)}
    for daemon in (
        daemons.kata_bridge(node, sys.executable, gate),
        daemons.kubeproxy_ext(node, sys.executable),
        daemons.dnsconfig(node, sys.executable),
    ):
        stack.callback(daemon.stop)
        daemon.start()


def _start_again(syncer: SyncerDaemon, settings: dict[str, object]) -> None:
    syncer.stop()
    syncer.configure(settings)
    syncer.start()


def _remove_networks(ring: SyncedRing, syncer: SyncerDaemon) -> None:
    for tenant in ring.tenants:
        tenant.api.delete(f"{NETWORKS}/default")
    for tenant in ring.tenants:
        wait_for(f"{tenant.key} has no network", partial(_has_none, tenant), timeout_s=_READY_S)
    syncer.stop()
    for tenant in ring.tenants:
        tenant.api.delete(_DEFINITION)


def _is_ready(tenant: RingTenant) -> bool:
    return phase(tenant) == "Ready"


def _has_none(tenant: RingTenant) -> bool:
    return not phase(tenant)
