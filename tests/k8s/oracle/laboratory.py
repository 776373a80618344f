# SPDX-License-Identifier: Apache-2.0
"""All of it together: one cluster, two nodes with a kube-proxy each, a guest of ours beside each."""

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
from tests.k8s.oracle.questions import Question, cluster_ips, questions
from tests.k8s.oracle.shapes import SHAPES
from tests.k8s.oracle.sides import NodeAndPod, Side, guest_side, host_side
from tests.k8s.oracle.store import Store
from tests.k8s.oracle.volley import Volleys
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import RingProcess

_PLACES = (
    NodeAndPod(NODES[0], ZONES[0], ("10.71.0.1", "fd00:71::1"), PODS[0]),
    NodeAndPod(NODES[1], ZONES[1], ("10.71.0.2", "fd00:71::2"), PODS[1]),
)
_MODES = (IPTABLES, NFTABLES)


@dataclass(slots=True)
class Pair:
    """One node: its kube-proxy, asked from a pod, and the guest that the pod would be in a VPC.

    `agreed` are the answers that both sides gave alike when they were asked last.
    """

    place: NodeAndPod
    mode: str
    proxy: RingProcess
    theirs: Volleys
    guest: OurGuest
    ours: Volleys
    agreed: dict[Question, frozenset[Outcome]] = field(default_factory=dict)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.theirs.side, self.ours.side


@dataclass(slots=True)
class Figures:
    """What a run came to."""

    questions: int = 0
    connections: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Laboratory:
    """Everything that runs. `namespaces` are as the API server took them, by number: so many that were
    `drawn`, and then those of the shapes."""

    seed: int
    drawn: int
    store: Store
    ours: OracleGuests
    barrier: Barrier
    pairs: tuple[Pair, ...]
    namespaces: list[DrawnNamespace]
    figures: Figures = field(default_factory=Figures)

    def follow(self) -> None:
        """Wait until all sides have what was written."""
        self.barrier.wait()
        self.ours.settle()

    @property
    def shaped(self) -> range:
        """The numbers of the namespaces that were made by hand."""
        return range(self.drawn, len(self.namespaces))

    def service(self, reference: str) -> Json | None:
        """By `namespace/name`, as the API server has it; None if there is none."""
        namespace, _, name = reference.partition("/")
        return self.store.services.get((namespace, name))

    def questions(self, pair: Pair, namespaces: Iterable[DrawnNamespace]) -> list[Question]:
        """All about these namespaces, from one node."""
        taken = cluster_ips(self.store.services.values())
        return questions(namespaces, self.store.services, pair.place, taken)

    def chooser(self, what: str) -> random.Random:
        """For choices of one kind, the same under the same seed."""
        return random.Random(f"{self.seed}/{what}")  # noqa: S311 - test data, not secrets

    @property
    def packets(self) -> int:
        return sum(volleys.sent for pair in self.pairs for volleys in (pair.theirs, pair.ours))


def build_laboratory(seed: int, count: int, ring: Ring, stack: ExitStack) -> Laboratory:
    """Start all, and bring `count` namespaces to every node and guest. Raises RingError.

    The namespaces are written before any kube-proxy runs, so that each writes them all in one go.
    """
    begin = time.monotonic()
    cluster = start_cluster(ring, stack)
    hosts = [host_side(place, stack) for place in _PLACES]
    guests = [guest_side(place, stack, is_legacy=place is _PLACES[0]) for place in _PLACES]
    for number, host in enumerate(hosts, 1):
        link_node(cluster, host.ruled, number)
    ours = OracleGuests()
    store = Store(cluster.api, ours.see, ours.forget)
    # One guest by iptables, without the catch-all: it has to answer as kube-proxy does, wrong ports
    # and all. One by nft, with it.
    made = [
        ours.add_guest(guests[0], Backend.IPTABLES, (), stack),
        ours.add_guest(guests[1], Backend.NFT, SERVICE_CIDRS, stack),
    ]
    for place in _PLACES:
        store.put_node(place)
    namespaces = [draw_namespace(seed, index) for index in range(count)]
    namespaces += [one.draw(index) for index, one in enumerate(SHAPES, count)]
    for drawn in namespaces:
        store.put_drawn(drawn)
    ours.settle()
    proxies = [
        start_kube_proxy(host, mode, cluster, ring.binaries, stack)
        for host, mode in zip(hosts, _MODES, strict=True)
    ]
    pairs = tuple(
        Pair(place, mode, proxy, Volleys(host), guest, Volleys(side))
        for place, mode, proxy, host, guest, side in zip(
            _PLACES, _MODES, proxies, hosts, made, guests, strict=True
        )
    )
    laboratory = Laboratory(seed, count, store, ours, _barrier(store, pairs), pairs, namespaces)
    laboratory.follow()
    laboratory.figures.lines.append(
        f"seed {seed}: {count} namespaces and {len(SHAPES)} made by hand, {store.written} objects, "
        f"{len(store.refused)} refused by the API server, "
        f"{sum(len(one.frontends) for one in made)} captured addresses, "
        f"ready in {time.monotonic() - begin:.0f} s"
    )
    return laboratory


def _barrier(store: Store, pairs: Sequence[Pair]) -> Barrier:
    return Barrier(store, [pair.theirs for pair in pairs])
