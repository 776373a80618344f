# SPDX-License-Identifier: Apache-2.0
"""The parts of the bench, in the order in which they run."""

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.bench import usage
from tests.bench.services import bridge_calls, by_rule, fresh, guests, large
from tests.bench.services.changing import (
    LIVE_S,
    Collected,
    KubeproxyExtProxy,
    RealKubeProxy,
    ServiceProxy,
    run,
)
from tests.bench.services.cluster import BenchCluster, BenchTenant
from tests.bench.services.fresh import AtOnce, Fresh
from tests.bench.services.guests import GuestFilter
from tests.bench.services.kubeproxy import KubeProxy, saved_rules
from tests.bench.services.large import Cost
from tests.bench.services.node import BenchNode, Programs
from tests.bench.services.watcher import wait_for_all
from tests.k8s.build import Binaries
from tests.k8s.ring.processes import run as run_program

ON_GUESTS = ("fresh", "change", "churn", "drift")
PARTS = (*ON_GUESTS, "memory", "scale")
GUESTS = 30
NO_MINIMUM = "1ms"
SERVICES, ENDPOINTS = 100, 2
ALONE, ALL, CHURN = "alone", "all", "churn"


@dataclass(frozen=True, slots=True)
class Amounts:
    """The amounts of a run."""

    rounds: int
    changes: int
    slow_changes: int
    """Of kube-proxy with its default, which waits more than a second for each."""
    fresh: int
    at_once: int
    by_rule: int
    by_rule_at_once: int
    drift_checks: int
    dumps: int
    """Of all guests, by us and by a process each."""
    large_services: int
    large_changes: int
    tenants: int


FULL = Amounts(3, 20, 8, 25, 5, 5, 2, 40, 5, 1000, 20, 100)
QUICK = Amounts(1, 8, 4, 5, 1, 2, 1, 15, 2, 1000, 8, 20)

Log = Callable[[str], None]


@dataclass(slots=True)
class OfKind:
    """All measurements with guests of one kind."""

    kind: GuestFilter
    fresh: list[Fresh] = field(default_factory=list)
    at_once: list[AtOnce] = field(default_factory=list)
    rule_one_s: list[float] = field(default_factory=list)
    rule_all_s: list[float] = field(default_factory=list)
    rule_processes: int = 0
    changes: Collected = field(default_factory=Collected)
    kube_proxy_start_s: list[float] = field(default_factory=list)
    drift_ms: list[float] = field(default_factory=list)
    dump_ms: list[float] = field(default_factory=list)
    scan_ms: list[float] = field(default_factory=list)
    size: bridge_calls.Size | None = None
    delta_bytes: list[int] = field(default_factory=list)
    kube_proxy_rules: int = 0
    kube_proxy_bytes: int = 0
    memory: dict[str, list[usage.MemoryUsage]] = field(default_factory=dict)


@dataclass(slots=True)
class Results:
    by_kind: list[OfKind] = field(default_factory=list)
    memory: dict[str, Cost] = field(default_factory=dict)
    few: dict[str, Cost] = field(default_factory=dict)
    many: dict[str, Cost] = field(default_factory=dict)
    bridge: usage.MemoryUsage | None = None
    tenants: int = 0


@dataclass(slots=True)
class ServicesBench:
    """One run on one cluster."""

    cluster: BenchCluster
    binaries: Binaries
    programs: Programs
    amounts: Amounts
    log: Log
    results: Results = field(default_factory=Results)
    _nodes: int = 0

    def run_guests(self, kinds: Sequence[GuestFilter], parts: Sequence[str]) -> None:
        """The parts that are about guests, for each kind of guest."""
        (tenant,) = self.cluster.create_tenants(["bench-guests"], SERVICES, ENDPOINTS)
        text = by_rule.rules_text(self.cluster, tenant)
        for kind in kinds:
            found = OfKind(kind)
            self.results.by_kind.append(found)
            with ExitStack() as stack:
                node = self._node(kind, tenant, stack)
                if "fresh" in parts:
                    self._fresh(node, tenant, found, text)
                if "change" in parts:
                    fresh.renew(node, 1)
                    self._changes(node, tenant, found, ALONE)
                if set(parts) - {"fresh"}:
                    fresh.renew(node, GUESTS)
                if "change" in parts:
                    self._changes(node, tenant, found, ALL)
                if "churn" in parts:
                    self._changes(node, tenant, found, CHURN)
                if "drift" in parts:
                    self._drift(node, tenant, found)
        self.cluster.delete_tenants([tenant])

    def run_memory(self, kind: GuestFilter) -> None:
        """1 000 Services x 5, 30 guests."""
        (tenant,) = self.cluster.create_tenants(["bench-large"], self.amounts.large_services, 5)
        with ExitStack() as stack:
            node = self._node(kind, tenant, stack)
            fresh.renew(node, GUESTS)
            ours = KubeproxyExtProxy(node)
            subjects: list[ServiceProxy] = [ours, self._kube_proxy(kind, "", tenant, stack)]
            for subject in subjects:
                self.results.memory[_who(subject)] = large.cost(
                    self.cluster, subject, tenant, self._count(subject, self.amounts.large_changes)
                )
                self.log(f"memory: {subject.name}")
            self.results.bridge = large.bridge_memory(ours)
        self.cluster.delete_tenants([tenant])

    def run_scale(self, kind: GuestFilter) -> None:
        """Five tenants on the node: alone in the cluster, and among many more."""
        keys = [f"bench-{number:03d}" for number in range(self.amounts.tenants)]
        here = self.cluster.create_tenants(keys[:5], SERVICES, ENDPOINTS)
        with ExitStack() as stack:
            node = self._node(kind, here[0], stack)
            made = guests.create(
                f"{self.cluster.prefix}-scale", range(len(here)), kind, node.bridge.directory
            )
            node.guests += made
            for guest, tenant in zip(made, here, strict=True):
                node.bridge.add_guest_file(guest, tenant.key, netns=str(guest.namespace.path))
            subjects: list[ServiceProxy] = [
                KubeproxyExtProxy(node, guest=made[0]),
                self._kube_proxy(kind, "", here[0], stack),
            ]
            for subject in subjects:
                self.results.few[_who(subject)] = self._scale_cost(subject, here[0], ())
            others = self.cluster.create_tenants(keys[5:], SERVICES, ENDPOINTS)
            self.log(f"scale: {len(keys)} tenants, {len(keys) * SERVICES} Services")
            for subject in subjects:
                self.results.many[_who(subject)] = self._scale_cost(subject, here[0], others)
        self.results.tenants = len(keys)

    def _scale_cost(self, subject: ServiceProxy, tenant: BenchTenant, others: Sequence[BenchTenant]) -> Cost:
        made = large.cost(
            self.cluster, subject, tenant, self._count(subject, self.amounts.large_changes), others
        )
        self.log(f"scale: {subject.name}")
        return made

    # ---- with guests of one kind

    def _fresh(self, node: BenchNode, tenant: BenchTenant, found: OfKind, text: str) -> None:
        amounts, kind = self.amounts, node.kind
        node.proxy.start()
        node.proxy.wait_ready()
        found.fresh = [fresh.one(node, tenant) for _ in range(amounts.fresh)]
        node.proxy.stop()
        self.log(f"{kind.value}: {amounts.fresh} fresh guests")
        found.at_once = [fresh.at_once(node, tenant, GUESTS) for _ in range(amounts.at_once)]
        self.log(f"{kind.value}: {amounts.at_once} x {GUESTS} fresh guests at once")
        for number in range(amounts.by_rule):
            took_s, found.rule_processes = by_rule.measure(self.cluster, kind, tenant, text, number, 1)
            found.rule_one_s.append(took_s)
        for _ in range(amounts.by_rule_at_once):
            found.rule_all_s.append(by_rule.measure(self.cluster, kind, tenant, text, 0, GUESTS)[0])
        self.log(f"{kind.value}: one process a rule")

    def _changes(self, node: BenchNode, tenant: BenchTenant, found: OfKind, what: str) -> None:
        with ExitStack() as stack:
            theirs = [self._kube_proxy(node.kind, min_sync, tenant, stack) for min_sync in ("", NO_MINIMUM)]
            subjects: list[ServiceProxy] = [KubeproxyExtProxy(node), *theirs]
            for number in range(self.amounts.rounds):
                for subject in random.sample(subjects, k=len(subjects)):
                    count = self._count(subject, self.amounts.changes)
                    made = run(self.cluster, subject, tenant, count, has_churn=what == CHURN)
                    found.changes.add(what, _who(subject), made)
                self.log(f"{node.kind.value}: {what}: round {number + 1} of {self.amounts.rounds}")
            found.kube_proxy_start_s += [took_s for each in theirs for took_s in each.took_s]

    def _drift(self, node: BenchNode, tenant: BenchTenant, found: OfKind) -> None:
        """Drift checks, sizes and memory."""
        ours = KubeproxyExtProxy(node)
        ours.start()
        found.drift_ms = bridge_calls.check_drift(node.bridge.socket, GUESTS, self.amounts.drift_checks)
        ids = [guest.id for guest in node.guests]
        found.dump_ms = bridge_calls.dump_all(node.bridge.socket, ids, self.amounts.dumps)
        found.scan_ms = [by_rule.scan(node.guests, node.kind) * 1e3 for _ in range(self.amounts.dumps)]
        found.size, found.delta_bytes = self._sizes(ours, tenant)
        agents = [guest.agent.pid for guest in node.guests if guest.agent is not None]
        found.memory = {
            "agent": [usage.memory(pid) for pid in agents],
            "bridge": [usage.memory(node.bridge.pid)],
            "proxy": [usage.memory(node.proxy.pid)],
        }
        ours.stop()
        with ExitStack() as stack:
            theirs = self._kube_proxy(node.kind, "", tenant, stack)
            theirs.start()
            saved = theirs.proxy.saved()
            found.kube_proxy_rules, found.kube_proxy_bytes = saved_rules(saved), len(saved.encode())
            found.memory["kube-proxy"] = [usage.memory(theirs.proxy.pid)]
        self.log(f"{node.kind.value}: drift, sizes, memory")

    def _sizes(self, ours: KubeproxyExtProxy, tenant: BenchTenant) -> tuple[bridge_calls.Size, list[int]]:
        """The ruleset, and the deltas of an added and a removed endpoint."""
        guest, bridge = ours.node.guests[0], ours.node.bridge
        before = bridge_calls.desired(bridge.socket, guest.id)
        with ExitStack() as stack:
            writer = self.cluster.writer()
            stack.callback(writer.close)
            name = next(iter(tenant.services))
            own = tenant.services[name]
            stack.callback(writer.set_endpoints, tenant.namespace, name, tenant.key, own)
            address = self.cluster.addresses.next()
            for watcher in ours.watchers:
                watcher.arm(address)
            writer.set_endpoints(tenant.namespace, name, tenant.key, (*own, address))
            wait_for_all(ours.watchers, LIVE_S)
            ours.node.wait_current()
            after = bridge_calls.desired(bridge.socket, guest.id)
        deltas = [bridge_calls.delta_bytes(before, after), bridge_calls.delta_bytes(after, before)]
        return bridge_calls.size(before), deltas

    # ----

    def _node(self, kind: GuestFilter, tenant: BenchTenant, stack: ExitStack) -> BenchNode:
        self._nodes += 1
        node = BenchNode.make(self.cluster, self.programs, kind, tenant.key, f"node{self._nodes}")
        stack.callback(node.stop)
        node.bridge.start()
        return node

    def _kube_proxy(
        self, kind: GuestFilter, min_sync: str, tenant: BenchTenant, stack: ExitStack
    ) -> RealKubeProxy:
        proxy = KubeProxy(self.cluster, self.binaries, kind, min_sync)
        stack.callback(proxy.close)
        return RealKubeProxy(proxy, list(tenant.services.values())[-1][-1])

    def _count(self, subject: ServiceProxy, count: int) -> int:
        is_slow = isinstance(subject, RealKubeProxy) and not subject.proxy.has_no_min_sync
        return min(count, self.amounts.slow_changes) if is_slow else count


def _who(subject: ServiceProxy) -> str:
    if isinstance(subject, RealKubeProxy):
        return "no minimum" if subject.proxy.has_no_min_sync else "kube-proxy"
    return "ours"


def versions() -> str:
    """The versions of the guests' packet filters."""
    return ", ".join(
        run_program([program, "--version"]).decode().strip() for program in ("iptables-legacy", "nft")
    )
