# SPDX-License-Identifier: Apache-2.0
"""One cluster, two nodes with a kube-proxy each, and a guest of ours beside each."""

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from ruleset.names import Backend
from ruletrace.packet import Outcome
from tests.k8s.oracle.barrier import Barrier
from tests.k8s.oracle.cluster import SERVICE_CIDRS, link_node, start_cluster
from tests.k8s.oracle.differences import IPTABLES, NFTABLES
from tests.k8s.oracle.draw import NODES, PODS, ZONES, DrawnNamespace, Json, draw_namespace
from tests.k8s.oracle.kube_proxy import start_kube_proxy
from tests.k8s.oracle.ours import OracleGuests, OurGuest
from tests.k8s.oracle.prober import Prober
from tests.k8s.oracle.probes import FlowProbe, cluster_ips, probes_of_namespaces
from tests.k8s.oracle.scenarios import SCENARIOS
from tests.k8s.oracle.sides import OracleNode, OracleSide, guest_side, host_side
from tests.k8s.oracle.store import Store
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import RingProcess

_NODES = (
    OracleNode(NODES[0], ZONES[0], ("10.71.0.1", "fd00:71::1"), PODS[0]),
    OracleNode(NODES[1], ZONES[1], ("10.71.0.2", "fd00:71::2"), PODS[1]),
)
_MODES = (IPTABLES, NFTABLES)


@dataclass(slots=True)
class NodeComparison:
    """One node: its kube-proxy, probed from a pod, and the guest that the pod would be in a VPC.

    `agreed` has the outcomes of probes in which both sides agreed last.
    """

    node: OracleNode
    mode: str
    proxy: RingProcess
    theirs: Prober
    guest: OurGuest
    ours: Prober
    agreed: dict[FlowProbe, frozenset[Outcome]] = field(default_factory=dict)

    @property
    def sides(self) -> tuple[OracleSide, OracleSide]:
        return self.theirs.side, self.ours.side


@dataclass(slots=True)
class Figures:
    """The counts of a run."""

    probes: int = 0
    connections: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Laboratory:
    """Everything that runs. `namespaces` are as the API server accepted them, by number: first the `drawn`
    ones, then those of the scenarios."""

    seed: int
    drawn: int
    store: Store
    ours: OracleGuests
    barrier: Barrier
    comparisons: tuple[NodeComparison, ...]
    namespaces: list[DrawnNamespace]
    figures: Figures = field(default_factory=Figures)

    def follow(self) -> None:
        """Wait until all sides are synced with the API server."""
        self.barrier.wait()
        self.ours.sync()

    @property
    def scenario_numbers(self) -> range:
        """The numbers of the scenarios' namespaces."""
        return range(self.drawn, len(self.namespaces))

    def service(self, reference: str) -> Json | None:
        """By `namespace/name`, as the API server has it; None without one."""
        namespace, _, name = reference.partition("/")
        return self.store.services.get((namespace, name))

    def probes(self, comparison: NodeComparison, namespaces: Iterable[DrawnNamespace]) -> list[FlowProbe]:
        """All probes of these namespaces, from one node."""
        taken = cluster_ips(self.store.services.values())
        return probes_of_namespaces(namespaces, self.store.services, comparison.node, taken)

    def rng_for(self, what: str) -> random.Random:
        """A random generator for choices of one kind, the same under the same seed."""
        return random.Random(f"{self.seed}/{what}")  # noqa: S311 - test data, not secrets

    @property
    def packets(self) -> int:
        return sum(
            prober.sent for comparison in self.comparisons for prober in (comparison.theirs, comparison.ours)
        )


def build_laboratory(seed: int, count: int, ring: Ring, stack: ExitStack) -> Laboratory:
    """Start all, and bring `count` namespaces to every node and guest. Raises RingError.

    The namespaces are written before any kube-proxy runs, so that each writes them all at once.
    """
    begin = time.monotonic()
    cluster = start_cluster(ring, stack)
    hosts = [host_side(node, stack) for node in _NODES]
    guests = [guest_side(node, stack, is_legacy=node is _NODES[0]) for node in _NODES]
    for number, host in enumerate(hosts, 1):
        link_node(cluster, host.ruled, number)
    ours = OracleGuests()
    store = Store(cluster.api, ours.on_update, ours.on_delete)
    # One guest with iptables, without the catch-all: it must agree with kube-proxy, wrong ports included.
    # One with nft and the catch-all.
    made = [
        ours.add_guest(guests[0], Backend.IPTABLES, (), stack),
        ours.add_guest(guests[1], Backend.NFT, SERVICE_CIDRS, stack),
    ]
    for node in _NODES:
        store.put_node(node)
    namespaces = [draw_namespace(seed, index) for index in range(count)]
    namespaces += [one.draw(index) for index, one in enumerate(SCENARIOS, count)]
    for drawn in namespaces:
        store.put_drawn(drawn)
    ours.sync()
    proxies = [
        start_kube_proxy(host, mode, cluster, ring.binaries, stack)
        for host, mode in zip(hosts, _MODES, strict=True)
    ]
    comparisons = tuple(
        NodeComparison(node, mode, proxy, Prober(host), guest, Prober(side))
        for node, mode, proxy, host, guest, side in zip(
            _NODES, _MODES, proxies, hosts, made, guests, strict=True
        )
    )
    laboratory = Laboratory(seed, count, store, ours, _barrier(store, comparisons), comparisons, namespaces)
    laboratory.follow()
    laboratory.figures.lines.append(
        f"seed {seed}: {count} namespaces and {len(SCENARIOS)} scenarios, {store.written} objects, "
        f"{len(store.refused)} refused by the API server, "
        f"{sum(len(one.frontends) for one in made)} captured addresses, "
        f"ready in {time.monotonic() - begin:.0f} s"
    )
    return laboratory


def _barrier(store: Store, comparisons: Sequence[NodeComparison]) -> Barrier:
    return Barrier(store, [comparison.theirs for comparison in comparisons])
