# SPDX-License-Identifier: Apache-2.0
"""Counts the connections that a pod opened to addresses: what comes back to it through its node."""

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
        found = json.loads(
            run(
                [
                    *self.node.node.namespace.enter,
                    *("nft", "-j", "reset", "counter", "ip", _TABLE, to.name),
                ]
            )
        )
        return sum(each["counter"]["packets"] for each in found["nftables"] if "counter" in each)


@contextmanager
def counted(node: SuperNode, pod_address: str, to: Sequence[DialledAddress]) -> Iterator[OpenedConnections]:
    """Within. A connection is accepted with a packet that has both flags."""
    counters = "".join(f"  counter {each.name} {{ }}\n" for each in to)
    rules = "".join(
        f"    ip saddr {each.address} tcp sport {each.port} ip daddr {pod_address} "
        f"tcp flags & (syn | ack) == syn | ack counter name {each.name}\n"
        for each in to
    )
    nft(
        node,
        f"table ip {_TABLE} {{\n{counters}  chain forward {{\n"
        f"    type filter hook forward priority 20; policy accept;\n{rules}  }}\n}}\n",
    )
    try:
        yield OpenedConnections(node)
    finally:
        nft(node, f"delete table ip {_TABLE}\n")
