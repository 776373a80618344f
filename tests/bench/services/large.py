# SPDX-License-Identifier: Apache-2.0
"""Large clusters: the cost of the two proxies on a node, by the number of objects."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench import usage
from tests.bench.services.changing import ChangeSlice, KubeproxyExtProxy, ServiceProxy, changes
from tests.bench.services.cluster import BenchCluster, BenchTenant

# Time for a proxy to become idle.
_SETTLE_S = 2.0
# Between two changes of Services of other nodes.
_ELSEWHERE_GAP_S = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one proxy. `start_cpu_s` is until it is idle, `memory` after the changes."""

    start_cpu_s: float
    started: usage.MemoryUsage
    memory: usage.MemoryUsage
    here: ChangeSlice | None
    elsewhere_cpu_ms: float | None
    """CPU time for each change of another node's tenant."""


def cost(
    cluster: BenchCluster,
    subject: ServiceProxy,
    tenant: BenchTenant,
    count: int,
    elsewhere: Sequence[BenchTenant] = (),
) -> Cost:
    """Start a proxy, make `count` changes of one tenant and as many of tenants of other nodes."""
    writer = cluster.writer()
    try:
        subject.start()
        # A proxy that is live still frees memory of its start, and its work until then is the start's CPU
        # time, not that of the changes.
        time.sleep(_SETTLE_S)  # no event reports that the proxy is idle
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
                    time.sleep(_ELSEWHERE_GAP_S)  # otherwise the proxy would merge several changes
            # The CPU time of the last of them would be missing.
            time.sleep(_SETTLE_S)  # no event reports that the proxy has read it
            elsewhere_cpu_ms = (usage.cpu_s(pid) - before_s) / written * 1e3
        # Memory that the last changes took for a moment is not the proxy's steady memory.
        time.sleep(_SETTLE_S)  # no event reports that freed memory is returned
        return Cost(start_cpu_s, started, usage.memory(pid[0]), here, elsewhere_cpu_ms)
    finally:
        subject.stop()
        for name in list(tenant.services)[:count]:
            writer.set_endpoints(tenant.namespace, name, tenant.key, tenant.services[name])
        writer.close()


def bridge_memory(ours: KubeproxyExtProxy) -> usage.MemoryUsage:
    return usage.memory(ours.node.bridge.pid)
