# SPDX-License-Identifier: Apache-2.0
"""Counts the connections that a pod tried and opened: what goes through its node, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.k8s.operator.escapes import DialledAddress
from tests.k8s.operator.policy_engine import nft
from tests.k8s.ring.processes import run
from tests.k8s.syncer.node import SuperNode

_TABLE = "ring_opened"


@dataclass(frozen=True, slots=True)
class OpenedConnections:
    """On the pod's own node."""

    node: SuperNode

    def take(self, to: DialledAddress) -> int:
        """How many were accepted since this was last asked."""
        return self._reset(to.name)

    def take_tried(self, to: DialledAddress) -> int:
        """How many were tried since this was last asked."""
        return self._reset(_tried(to))

    def _reset(self, counter: str) -> int:
        found = json.loads(
            run(
                [
                    *self.node.node.namespace.enter,
                    *("nft", "-j", "reset", "counter", "ip", _TABLE, counter),
                ]
            )
        )
        return sum(each["counter"]["packets"] for each in found["nftables"] if "counter" in each)


@contextmanager
def counted(node: SuperNode, pod_address: str, to: Sequence[DialledAddress]) -> Iterator[OpenedConnections]:
    """Within. A connection is tried with a packet that has one flag, and accepted with one that has both."""
    counters = "".join(f"  counter {name} {{ }}\n" for each in to for name in (each.name, _tried(each)))
    rules = "".join(
        f"    ip saddr {each.address} tcp sport {each.port} ip daddr {pod_address} "
        f"tcp flags & (syn | ack) == syn | ack counter name {each.name}\n"
        f"    ip saddr {pod_address} ip daddr {each.address} tcp dport {each.port} "
        f"tcp flags & (syn | ack) == syn counter name {_tried(each)}\n"
        for each in to
    )
    nft(
        node,
        f"table ip {_TABLE} {{\n{counters}  chain forward {{\n"
        f"    type filter hook forward priority 5; policy accept;\n{rules}  }}\n}}\n",
    )
    try:
        yield OpenedConnections(node)
    finally:
        nft(node, f"delete table ip {_TABLE}\n")


def _tried(to: DialledAddress) -> str:
    """The counter of what is tried, which is before the engine."""
    return f"tried-{to.name}"
