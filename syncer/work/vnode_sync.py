# SPDX-License-Identifier: Apache-2.0
"""Connects vNodes with the caches, and lets a bind wait for its vNode."""

from collections.abc import Callable, Collection, Generator, Sequence

from daemonkit.fairness.steps import WorkStep, in_steps
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import PODS, SERVICES, Key, Resource
from daemonkit.kube.store import Added, Change, Deleted, Modified
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import CachedObject, parse, parse_with_spec
from syncer.caches.super_change import NODE, SuperChange
from syncer.caches.super_cluster import SuperCaches
from syncer.config import VnAgentConfig
from syncer.core.objects import Object, name_of
from syncer.core.plan import Conflict, Wait
from syncer.policy import quantity
from syncer.policy.sync_policy import PolicyUnusable, SyncPolicy, VNodeCapacity
from syncer.tenant.session import TenantSession
from syncer.vnodes.controller import VNodes
from syncer.vnodes.desired import AgentAddress, VNodePolicy, agent_addresses, quota_resources
from syncer.vnodes.super_nodes import AgentProbe
from syncer.vnodes.tenant_vnodes import TenantVNodes

# Nodes that are read in one step, of up to 30 us each.
_NODES_AT_ONCE = 100


class VNodeSync:
    """The engine's port `Nodes`. Watches vn-agent's Service or pods, if vNodes have their addresses."""

    def __init__(
        self,
        client: Transport,
        super_cluster: SuperCaches,
        config: VnAgentConfig,
        tasks: Tasks,
        wall: Callable[[], float],
        jitter: Callable[[], float],
        *,
        probe: AgentProbe,
        timing: Timing | None = None,
    ) -> None:
        self._super = super_cluster
        self._config = config
        self._tasks = tasks
        self._agents: Reflector[CachedObject] | None = None
        # vn-agent's pods by their nodes, oldest first: a node may have two of them while one ends.
        self._agent_pods: dict[str, dict[Key, CachedObject]] = {}
        # Nodes whose vn-agent may have another address by now.
        self._moved: dict[str, None] = {}
        namespace, _, service = config.service.partition("/")
        if config.address is AgentAddress.SERVICE:
            self._agents = self._follow(
                client, SERVICES, namespace, timing, field_selector=f"metadata.name={service}"
            )
        elif config.address is AgentAddress.POD_IP:
            self._agents = self._follow(
                client, PODS, config.pod_namespace, timing, label_selector=config.pod_selector
            )
        self.vnodes = VNodes(self._addresses, config.port, probe, tasks, wall, jitter)

    def _follow(
        self,
        client: Transport,
        resource: Resource,
        namespace: str,
        timing: Timing | None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Reflector[CachedObject]:
        return Reflector(
            client,
            resource,
            parse_with_spec if resource == PODS else parse,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            delivers_parts=True,
            on_change=self._agents_changed,
            timing=timing,
        )

    def start(self, tasks: Tasks) -> None:
        """Begin to watch vn-agent's Service or pods, and the timer."""
        if self._agents is not None:
            tasks.spawn(self._agents.run(), "vn-agents")
        tasks.spawn(self.vnodes.run(), "vnodes")

    def _addresses(self, super_node: Object) -> tuple[str, ...]:
        service = agent_pod = None
        if self._agents is not None:
            if self._config.address is AgentAddress.SERVICE:
                service = next((each.load() for each in self._agents.objects.values()), None)
            else:
                own = self._agent_pods.get(name_of(super_node), {})
                agent_pod = next((each.load() for each in own.values()), None)
        return agent_addresses(self._config.address, super_node, service, agent_pod)

    # ---- what changes

    def node_changed(self, change: SuperChange) -> None:
        """A super node appeared, changed, was deleted, or cannot be read."""
        where = "", change.name
        found = self._super.objects(NODE).get(where)
        if found is not None:
            self.vnodes.node_changed(found.load())
        elif where in self._super.reflectors[NODE].decode_failures:
            self.vnodes.node_unreadable(change.name)
        else:
            self.vnodes.node_gone(change.name)

    def pod_changed(self, session: TenantSession, pod: CachedObject, *, is_deleted: bool) -> None:
        """A super pod of a tenant changed."""
        if pod.node and session.vnodes is not None:
            note = session.vnodes.pod_gone if is_deleted else session.vnodes.pod_bound
            note(pod.node, pod.metadata.uid)

    def nodes_synced(self) -> None:
        """All super nodes are known."""
        self.vnodes.mark_nodes_synced()

    def _agents_changed(self, changes: Sequence[Change[CachedObject]]) -> None:
        """Look at nodes again in steps, for a Service at all: 5 000 take 0.13 s."""
        is_running = bool(self._moved)
        if self._config.address is AgentAddress.SERVICE:
            self._moved.update(dict.fromkeys(name for _, name in self._super.objects(NODE)))
        else:
            self._moved.update(dict.fromkeys(self._note_agent_pods(changes)))
        if self._moved and not is_running:
            self._tasks.spawn(in_steps(self._look_again()), "nodes of changed vn-agents")

    def _note_agent_pods(self, changes: Sequence[Change[CachedObject]]) -> Collection[str]:
        """Returns the nodes that have other pods of vn-agent than before, or whose pod has changed."""
        found: list[str] = []
        for change in changes:
            if isinstance(change, Modified | Deleted) and (node := change.old.node):
                found.append(node)
                own = self._agent_pods.get(node, {})
                if isinstance(change, Deleted) or change.value.node != node:
                    own.pop(change.key, None)
                if not own:
                    self._agent_pods.pop(node, None)
            if isinstance(change, Added | Modified) and (node := change.value.node):
                found.append(node)
                self._agent_pods.setdefault(node, {})[change.key] = change.value
        return found

    def _look_again(self) -> Generator[None, None, None]:
        nodes, step = self._super.objects(NODE), WorkStep(_NODES_AT_ONCE)
        while self._moved:
            name, _ = self._moved.popitem()
            found = nodes.get(("", name))
            if found is not None:
                self.vnodes.node_changed(found.load())
            if step.count(0 if found is None else found.json_bytes):
                yield

    def attach(self, session: TenantSession) -> Generator[None, None, None]:
        """A tenant is synced: its vNodes are those of the super pods that it has, looked up in steps."""
        policy = vnode_policy(session.last_known_policy)
        tenant = self.vnodes.add_tenant(session.tenant.key, session.client, policy, session.account.run)
        session.vnodes = tenant
        step = WorkStep()
        bound: dict[str, list[str]] = {}
        for each in session.caches.super_objects("Pod"):
            if each is not None and each[1].node:
                bound.setdefault(each[1].node, []).append(each[1].metadata.uid)
            if step.count():
                _report_bound(tenant, bound)  # before others have a turn, in which one of them may go
                yield
                if session.vnodes is not tenant:
                    return
        _report_bound(tenant, bound)
        nodes = session.caches.nodes.objects
        for key in list(nodes):
            if (node := nodes.get(key)) is None:
                continue
            tenant.tenant_node_changed(node.metadata.name, node.load())
            if step.count(node.json_bytes):
                yield
                if session.vnodes is not tenant:
                    return
        tenant.mark_synced()

    def policy_changed(self, session: TenantSession) -> None:
        """The tenant has another SyncPolicy."""
        if session.vnodes is not None:
            session.vnodes.set_policy(vnode_policy(session.last_known_policy))

    def detach(self, session: TenantSession) -> Generator[None, None, None]:
        """A tenant is not synced any more: its vNodes are left alone from now on, and forgotten in steps."""
        session.vnodes = None
        return self.vnodes.remove_tenant(session.tenant.key)

    # ---- what the engine asks

    async def ensure(self, session: TenantSession, node: str) -> Wait | Conflict | None:
        if session.vnodes is None:
            return Wait("VNodeNotReady", f"node {node} is not there yet")
        return await session.vnodes.ensure(node)


def _report_bound(tenant: TenantVNodes, bound: dict[str, list[str]]) -> None:
    """Report pods by the nodes that they are on: there are fewer of these."""
    while bound:
        tenant.pods_bound(*bound.popitem())


def vnode_policy(policy: SyncPolicy | PolicyUnusable) -> VNodePolicy | None:
    """What a tenant's vNodes show; None before a policy has been known."""
    if isinstance(policy, PolicyUnusable):
        return None
    limits = policy.v_nodes
    resources = None
    if limits.capacity is VNodeCapacity.QUOTA:
        resources = quota_resources({name: quantity.text(limit) for name, limit in policy.quota})
    return VNodePolicy(
        labels=frozenset(limits.labels),
        taints=frozenset(limits.taints),
        resources=resources,
        scope=limits.scope,
        node_labels=dict(limits.node_labels),
        is_schedulable=limits.is_schedulable,
    )
