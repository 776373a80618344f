# SPDX-License-Identifier: Apache-2.0
"""vcnode's three daemons on the node of the bench, and their counters."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import usage
from tests.k8s.ring import daemons, gating
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon

_BUCKET = re.compile(r'^vcnode_katabridge_needs_met_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
_NUDGES = re.compile(r'^vcnode_katabridge_nudges_total\{result="([^"]+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DaemonCounters:
    """Counters of the gate and CPU seconds, since the daemons started.

    `opened` is the histogram of the time from a sandbox to its open gate: how many took no longer
    than so many seconds.
    """

    opened: Mapping[float, float]
    nudges: Mapping[str, float]
    cpu_s: Mapping[str, float]


class VcnodeDaemons:
    """kata-bridge, kubeproxy-ext and dnsconfig, started and stopped together."""

    def __init__(self, ring: Ring, tree: Path | None, policies: Mapping[str, str]) -> None:
        """`policies`: of super namespaces."""
        gate: JsonObject = {
            "directory": str(ring.directory / "pods"),
            **gating.allow_bridge(ring),
            "policy": "off",
            "namespaces": [
                {"namespaces": [namespace], "policy": policy} for namespace, policy in policies.items()
            ],
        }
        self._bridge = daemons.kata_bridge(ring, sys.executable, gate, tree=tree)
        self._proxy = daemons.kubeproxy_ext(ring, sys.executable, tree=tree)
        self._names = daemons.dnsconfig(ring, sys.executable, tree=tree)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start all of them and wait until they are ready; stop them in the end."""
        try:
            for daemon in self._all:
                daemon.start()
            yield
        finally:
            for daemon in reversed(self._all):
                daemon.stop()

    def counters(self) -> DaemonCounters:
        page = self._bridge.page("/metrics")[1]
        return DaemonCounters(
            {float(most.replace("+Inf", "inf")): float(count) for most, count in _BUCKET.findall(page)},
            {result: float(count) for result, count in _NUDGES.findall(page)},
            {each.name: usage.cpu_s([each.process.pid]) for each in self._all if each.process is not None},
        )

    def blocked(self) -> Counter[str]:
        """Pods whose container was blocked at least once, by super namespace."""
        return self._count("container start blocked")

    def warned(self) -> Counter[str]:
        """Pods whose container started with missing needs, by super namespace."""
        return self._count("container start allowed by policy warn although needs are missing")

    def _count(self, message: str) -> Counter[str]:
        pods = {str(line["pod"]) for line in self._bridge.lines(message)}
        return Counter(pod.partition("/")[0] for pod in pods)

    @property
    def _all(self) -> tuple[NodeDaemon, ...]:
        return self._bridge, self._proxy, self._names
