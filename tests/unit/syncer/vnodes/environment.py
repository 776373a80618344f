# SPDX-License-Identifier: Apache-2.0
"""vNodes of tenants on fake control planes, with a super cluster of dictionaries."""

import copy
from typing import Any

from daemonkit.kube.resources import NODES
from daemonkit.tasks import Tasks
from devkit.syncer.fake_control_plane import FakeControlPlane
from syncer.core.objects import Object
from syncer.vnodes.controller import VNodes
from syncer.vnodes.desired import AgentAddress, VNodePolicy, agent_addresses
from syncer.vnodes.lease import LEASE_NAMESPACE, LEASES
from syncer.vnodes.tenant_vnodes import TenantVNodes

EPOCH_S = 1_764_075_600.0
BUILT_IN = VNodePolicy()


def super_node(name: str = "node-7", address: str = "192.0.2.7", ready: str = "True", **more: Any) -> Object:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/os": "linux"}},
        "spec": more,
        "status": {
            "capacity": {"cpu": "4"},
            "allocatable": {"cpu": "4"},
            "conditions": [{"type": "Ready", "status": ready, "reason": "R", "lastHeartbeatTime": "h1"}],
            "addresses": [{"type": "InternalIP", "address": address}],
        },
    }


def own_node(name: str = "node-7", *, label: bool = False, of: str = "") -> Object:
    """A Node that was in the tenant before."""
    return {
        "metadata": {
            "name": name,
            "labels": {"tenancy.x-k8s.io/virtualnode": "true"} if label else {},
            "annotations": {"vcnode.io/vnode-of": of} if of else {},
        },
        "status": {"capacity": {"cpu": "1"}},
    }


class FakeAgentProbe:
    """All vn-agents answer, but those of `silent`; those of `hanging` never do."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.probed: list[str] = []

    async def probe(self, address: str, port: int) -> bool:
        assert port == 10550
        self.probed.append(address)
        return address not in self.silent


class VNodesEnvironment:
    """Use it as a context manager, within a test's loop."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        """Tasks that failed: in a daemon each ends it."""
        self.tasks = Tasks("test", on_failure=lambda name, _: self.failed.append(name))
        self.probe = FakeAgentProbe()
        self.now = EPOCH_S
        self.vnodes = VNodes(
            lambda node: agent_addresses(AgentAddress.NODE, node, None, None),
            10550,
            self.probe,
            self.tasks,
            lambda: self.now,
            lambda: 1.0,
        )
        self.planes: dict[str, FakeControlPlane] = {}

    async def __aenter__(self) -> "VNodesEnvironment":
        self.vnodes.node_changed(super_node())
        self.vnodes.mark_nodes_synced()
        self.tasks.spawn(self.vnodes.run(), "timer")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert await self.tasks.close(1.0) == ()

    def tenant(self, key: str = "a", policy: VNodePolicy | None = BUILT_IN) -> TenantVNodes:
        """A tenant whose pods are known; its policy is not if it is None."""
        self.planes[key] = FakeControlPlane()
        added = self.vnodes.add_tenant(key, self.planes[key], policy)
        added.mark_synced()
        return added

    def node(self, key: str = "a", name: str = "node-7") -> Object | None:
        """A Node of a tenant."""
        found = [each for (_, n), each in self.planes[key].storage._of(NODES).items() if n == name]  # noqa: SLF001
        return copy.deepcopy(found[0]) if found else None

    def lease(self, key: str = "a", name: str = "node-7") -> Object | None:
        found = self.planes[key].storage._of(LEASES).get((LEASE_NAMESPACE, name))  # noqa: SLF001
        return copy.deepcopy(found)

    def put(self, node: Object, key: str = "a") -> None:
        """Another's write in a tenant."""
        self.planes[key].storage.put(NODES, node)

    def take_requests(self, key: str = "a") -> list[str]:
        """What was asked of a tenant since the last call, without renewals of Leases."""
        plane = self.planes[key]
        found = [each for each in plane.requests if "leases" not in each]
        plane.requests.clear()
        return found
