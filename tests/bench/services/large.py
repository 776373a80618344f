# SPDX-License-Identifier: Apache-2.0
"""Large clusters: what the two proxies cost on a node, by the objects that there are."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench import usage

from .changing import Ours, Slice, Subject, changes
from .cluster import Cluster, Tenant

# How long a proxy has to come to rest; it does not say when it has.
_SETTLE_S = 2.0
# Between two changes of Services that the node has nothing to do with.
_ELSEWHERE_GAP_S = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one proxy. `start_cpu_s` is until it has come to rest, `memory` after the changes."""

    start_cpu_s: float
    started: usage.Memory
    memory: usage.Memory
    here: Slice | None
    elsewhere_cpu_ms: float | None
    """CPU time for each change of another node's tenant."""


def cost(
    cluster: Cluster,
    subject: Subject,
    tenant: Tenant,
    count: int,
    elsewhere: Sequence[Tenant] = (),
) -> Cost:
    """Start a proxy, make `count` changes of one tenant and as many of tenants that are not here."""
    writer = cluster.writer()
    try:
        subject.start()
        # What is live is not yet at rest: memory that the start took for a moment is given back, and what
        # it still has to do counts as the start's CPU time and not as the changes'.
        time.sleep(_SETTLE_S)
        pid = subject.pids["proxy"]
        start_cpu_s, started = usage.cpu_s(pid), usage.memory(pid[0])
        names = list(tenant.services)[:count]
        here = changes(cluster, subject, tenant, writer, names, subject.gap_s)
        elsewhere_cpu_ms = None
        if elsewhere:
            before_s = usage.cpu_s(pid)
            written = 0
            for other in elsewhere:
                for name in list(other.services)[: max(1, count // 10)]:
                    endpoints = (*other.services[name], cluster.addresses.next())
                    writer.set_endpoints(other.namespace, name, other.key, endpoints)
                    written += 1
                    # In one go they would be taken in as one, and each would look cheaper than it is.
                    time.sleep(_ELSEWHERE_GAP_S)
            # Nothing here shows when the last of them has been taken in: its CPU time would be missing.
            time.sleep(_SETTLE_S)
            elsewhere_cpu_ms = (usage.cpu_s(pid) - before_s) / written * 1e3
        # As after the start: what the last changes took for a moment is not what the proxy holds.
        time.sleep(_SETTLE_S)
        return Cost(start_cpu_s, started, usage.memory(pid[0]), here, elsewhere_cpu_ms)
    finally:
        subject.stop()
        for name in list(tenant.services)[:count]:
            writer.set_endpoints(tenant.namespace, name, tenant.key, tenant.services[name])
        writer.close()


def bridge_memory(ours: Ours) -> usage.Memory:
    return usage.memory(ours.node.bridge.pid)
