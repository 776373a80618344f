# SPDX-License-Identifier: Apache-2.0
"""The super cluster's nodes as all vNodes need them, and whether vn-agent answers on each.

One probe a node serves all tenants. Only nodes that have a vNode are probed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from daemonkit.tasks import Tasks
from syncer.core.objects import Object, name_of
from syncer.vnodes.desired import (
    AgentEndpoint,
    VNodePolicy,
    desired_vnode,
    is_ready,
    reduced_node,
    without_heartbeats,
)

# As often as a Lease is renewed, which needs the answer.
PROBE_S = 10.0
# A handshake takes 1 to 2 ms of this process and of vn-agent's. With more nodes rounds take longer.
MAX_PROBES_PER_S = 50
PROBE_TIMEOUT_S = 5.0
# The node lifecycle controller's grace (--node-monitor-grace-period) before 1.32: it is 50 s since.
SILENT_S = 40.0


class AgentProbe(Protocol):
    """Finds out whether a vn-agent answers."""

    async def probe(self, address: str, port: int) -> bool: ...


class NodeUser(Protocol):
    """A tenant with vNodes."""

    def super_node_changed(self, name: str) -> None: ...


@dataclass(slots=True)
class _SuperNode:
    """`form` is what decides whether it changed, `raw` what vNodes are made of."""

    raw: bytes
    form: bytes
    is_ready: bool
    addresses: tuple[str, ...]
    version: int


@dataclass(slots=True)
class _Agent:
    """A vn-agent by its address. `failing_s` is since when it did not answer, on the loop's clock."""

    address: str
    nodes: set[str] = field(default_factory=set)
    is_answering: bool = False
    is_probing: bool = False
    probed_s: float | None = None
    failing_s: float | None = None
    silent_since: str = ""


class SuperNodes:
    """All nodes of the super cluster.

    `agent_addresses` finds the addresses of a node's vn-agent. `timestamp` is the time of day in the form of
    conditions.

    Of a node that is to be shown differently those tenants hear that have a vNode of it, and those that watch
    all nodes. To tell each tenant of each node would be 15 s at a start with 15 000 nodes and 1 000 tenants.
    """

    def __init__(
        self,
        agent_addresses: Callable[[Object], tuple[str, ...]],
        agent_port: int,
        probe: AgentProbe,
        tasks: Tasks,
        timestamp: Callable[[], str],
    ) -> None:
        self._agent_addresses = agent_addresses
        self._agent_port = agent_port
        self._probe = probe
        self._tasks = tasks
        self._timestamp = timestamp
        self._nodes: dict[str, _SuperNode] = {}
        self._agents: OrderedDict[str, _Agent] = OrderedDict()  # the first is probed next
        self._assigned: dict[str, str] = {}  # a node in use: the address of its agent
        self._users: dict[str, dict[NodeUser, None]] = {}
        self._users_of_all: dict[NodeUser, None] = {}
        self._version = 0
        self._unreadable: set[str] = set()
        self.has_synced = False

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: Object) -> None:
        """A node as it is now. Heartbeats alone are no change."""
        name, reduced = name_of(node), reduced_node(node)
        self._unreadable.discard(name)
        addresses = self._agent_addresses(node)
        form = msgspec.json.encode(without_heartbeats(reduced))
        old = self._nodes.get(name)
        is_changed = old is None or old.form != form or old.addresses != addresses
        if is_changed:
            self._version += 1
        version = self._version if old is None or is_changed else old.version
        raw = msgspec.json.encode(reduced)
        self._nodes[name] = _SuperNode(raw, form, is_ready(reduced), addresses, version)
        if is_changed:
            self._assign_agent(name)
            self._report_change(name)

    def remove(self, name: str) -> None:
        """A node that was deleted."""
        was_unreadable = name in self._unreadable
        self._unreadable.discard(name)
        if self._nodes.pop(name, None) is not None or was_unreadable:
            self._assign_agent(name)
            self._report_change(name)

    def note_unreadable(self, name: str) -> None:
        """A node that is there cannot be read: it stays as it was, and if it was not known, it is not."""
        self._unreadable.add(name)

    def is_known(self, name: str) -> bool:
        """Whether the super cluster has been read as to this node: the node, or its absence, is known."""
        return self.has_synced and (name in self._nodes or name not in self._unreadable)

    def find(self, name: str) -> Object | None:
        """The part of a node that `reduced_node` keeps."""
        found = self._nodes.get(name)
        return None if found is None else msgspec.json.decode(found.raw, type=dict[str, Any])

    def version(self, name: str) -> int:
        """Another number after each change of what the node's vNodes show; 0 if there is no node."""
        found = self._nodes.get(name)
        return 0 if found is None else found.version

    def desired(self, name: str, policy: VNodePolicy) -> Object | None:
        """The vNode of a node as it is now; None if there is no such node."""
        found, node = self._nodes.get(name), self.find(name)
        if found is None or node is None:
            return None
        agent = self._agent_of(found.addresses)
        endpoint = AgentEndpoint(found.addresses, self._agent_port)
        return desired_vnode(node, policy, endpoint, "" if agent is None else agent.silent_since)

    def is_alive(self, name: str) -> bool:
        """Whether the node is ready and its vn-agent has answered the last probe: its Leases are renewed."""
        found = self._nodes.get(name)
        agent = None if found is None else self._agent_of(found.addresses)
        return found is not None and found.is_ready and agent is not None and agent.is_answering

    def add_user(self, name: str, user: NodeUser) -> None:
        """One more tenant has a vNode of this node."""
        users = self._users.setdefault(name, {})
        users[user] = None
        if len(users) == 1:
            self._assign_agent(name)

    def remove_user(self, name: str, user: NodeUser) -> None:
        """A tenant has no vNode of this node any more."""
        users = self._users[name]
        del users[user]
        if not users:
            del self._users[name]
            self._assign_agent(name)

    def add_user_of_all(self, user: NodeUser) -> None:
        """Have a tenant hear of the changes of all nodes."""
        self._users_of_all[user] = None

    def remove_user_of_all(self, user: NodeUser) -> None:
        """Report changes of a node only to the tenants that have its vNode."""
        self._users_of_all.pop(user, None)

    def probe_due(self) -> None:
        """Start the probes of this second, those of new vn-agents first."""
        now = asyncio.get_running_loop().time()
        count = min(MAX_PROBES_PER_S, -(-len(self._agents) // int(PROBE_S)))
        for _ in range(count):
            agent = next(iter(self._agents.values()))
            if agent.probed_s is not None and now < agent.probed_s + PROBE_S:
                break
            self._agents.move_to_end(agent.address)
            agent.probed_s = now
            self._start_probe(agent)

    def _report_change(self, name: str) -> None:
        for user in self._users.get(name, {}) | self._users_of_all:
            user.super_node_changed(name)

    def _agent_of(self, addresses: tuple[str, ...]) -> _Agent | None:
        # Without an address there is nothing to ask: such an agent does not answer.
        return self._agents.get(addresses[0] if addresses else "")

    def _assign_agent(self, name: str) -> None:
        """Have the right vn-agent probed for a node, or none."""
        found = self._nodes.get(name)
        wanted = None
        if found is not None and name in self._users:
            wanted = found.addresses[0] if found.addresses else ""
        old = self._assigned.get(name)
        if old == wanted:
            return
        if old is not None:
            del self._assigned[name]
            self._agents[old].nodes.discard(name)
            if not self._agents[old].nodes:
                del self._agents[old]
        if wanted is not None:
            self._assigned[name] = wanted
            if wanted not in self._agents:
                self._agents[wanted] = _Agent(wanted)
                self._agents.move_to_end(wanted, last=False)
            self._agents[wanted].nodes.add(name)

    def _start_probe(self, agent: _Agent) -> None:
        if agent.is_probing:
            return
        agent.is_probing = True

        def end() -> None:
            agent.is_probing = False

        self._tasks.spawn(self._probe_agent(agent), f"probe {agent.address}", when_over=end)

    async def _probe_agent(self, agent: _Agent) -> None:
        is_answering = False
        if agent.address:
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    is_answering = await self._probe.probe(agent.address, self._agent_port)
            except TimeoutError:
                pass
        self._record(agent, is_answering=is_answering)

    def _record(self, agent: _Agent, *, is_answering: bool) -> None:
        now = asyncio.get_running_loop().time()
        agent.is_answering = is_answering
        if is_answering:
            was_silent, agent.failing_s, agent.silent_since = agent.silent_since, None, ""
            if was_silent:
                self._report(agent)
        elif agent.failing_s is None:
            agent.failing_s = now
        elif not agent.silent_since and now >= agent.failing_s + SILENT_S:
            agent.silent_since = self._timestamp()
            self._report(agent)

    def _report(self, agent: _Agent) -> None:
        for name in sorted(agent.nodes):
            found = self._nodes.get(name)
            if found is not None:
                self._version += 1
                found.version = self._version
                self._report_change(name)
