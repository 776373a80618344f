# SPDX-License-Identifier: Apache-2.0
"""A node with tenants a and b, its saved state, and a text without its server."""

from daemonkit.kube.relist_guard import HOLD_SECONDS
from devkit.kube.storage import Storage
from dnsconfig.cluster.snapshot import Snapshot
from dnsconfig.retention.resolver_retention import ResolverRetention
from dnsconfig.retention.sandbox_networks import SandboxNetworks
from dnsconfig.saved_state import RestoredState, objects_to_save, snapshot_of
from tests.unit.dnsconfig.node import SimulatedNode
from tests.unit.dnsconfig.objects import tenant


def node(storage: Storage | None = None, *, hold_s: float = HOLD_SECONDS) -> SimulatedNode:
    made = SimulatedNode(storage, hold_s=hold_s)
    if storage is None:
        made.put(*tenant("a", default="10.96.0.10", blue="10.96.0.11"), *tenant("b", default="10.96.0.20"))
    return made


def as_saved(before: SimulatedNode) -> tuple[Snapshot, ResolverRetention, SandboxNetworks]:
    """The state that the next daemon restores."""
    controller, pods = before.controller, before.controller.pods
    saved = objects_to_save(controller.snapshot, pods.retention, pods.sandbox_networks, 0.0)
    restored = RestoredState(
        snapshot_of(saved),
        saved.texts,
        0.0,
        saved.revocable,
        saved.revoked,
        saved.text_networks,
        saved.sandboxes,
    )
    retention = restored.retention(HOLD_SECONDS, 0.0, before.clock())
    return restored.snapshot, retention, restored.sandbox_networks()


def without_server(uid_text: str) -> None:
    """A reduced text: a comment, and no server."""
    assert uid_text == (
        "# The DNS server of network blue (Service kube-system/kube-dns-blue) is gone, "
        "and its address may be another Service's by now.\n"
        "search shop.svc.cluster.local svc.cluster.local cluster.local\n"
        "options ndots:5\n"
    )
