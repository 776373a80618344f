# SPDX-License-Identifier: Apache-2.0
"""Endpoint changes, one after the other, each until it is live; with our daemons or with kube-proxy."""

import itertools
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from tests.bench import usage
from tests.bench.services import churn
from tests.bench.services.cluster import BenchCluster, BenchTenant, Writer, Written
from tests.bench.services.guests import BenchGuest
from tests.bench.services.kubeproxy import KubeProxy
from tests.bench.services.node import BenchNode
from tests.bench.services.watcher import EndpointWatcher, wait_for_all

LIVE_S = 30.0
# More than kube-proxy's default interval between two syncs.
_DEFAULT_GAP_S = (1.15, 1.4)
_GAP_S = (0.15, 0.35)
_CHURN_GAP_S = (0.1, 0.5)
# The churn's process starts, connects and makes its first changes in less.
_CHURN_SETTLE_S = 1.5
# More than kube-proxy's minimum between two syncs.
_KUBE_PROXY_SETTLE_S = 1.5


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """One change: when it was written, and when each namespace had it. Of `time.monotonic`."""

    written: Written
    seen_s: list[float]

    @property
    def each_ms(self) -> list[float]:
        """From the API's response to each namespace."""
        return [(seen - self.written.responded_s) * 1e3 for seen in self.seen_s]

    @property
    def last_ms(self) -> float:
        return (max(self.seen_s) - self.written.responded_s) * 1e3

    @property
    def from_before_ms(self) -> float:
        """From just before the write to the last namespace."""
        return (max(self.seen_s) - self.written.before_s) * 1e3


@dataclass(frozen=True, slots=True)
class ChangeSlice:
    """Changes in a row, and the CPU time of each part of the subject meanwhile."""

    changes: list[MeasuredChange]
    cpu_s: dict[str, float]

    def cpu_ms_each(self, *parts: str) -> float:
        return sum(self.cpu_s[part] for part in parts) / len(self.changes) * 1e3


@dataclass(slots=True)
class Collected:
    """Slices by load (quiet, churn, ...) and subject; one a round."""

    slices: dict[str, dict[str, list[ChangeSlice]]] = field(default_factory=dict)

    def add(self, what: str, who: str, made: ChangeSlice) -> None:
        self.slices.setdefault(what, {}).setdefault(who, []).append(made)


class ServiceProxy(Protocol):
    """A measured proxy: after `start` all rules are live."""

    @property
    def name(self) -> str: ...
    @property
    def watchers(self) -> Sequence[EndpointWatcher]: ...
    @property
    def gap_s(self) -> tuple[float, float]: ...
    @property
    def pids(self) -> dict[str, list[int]]: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(slots=True)
class KubeproxyExtProxy:
    """kubeproxy-ext before guests that have rules already. kata-bridge and the agents run all the time."""

    node: BenchNode
    name: str = "ours"
    gap_s: tuple[float, float] = _GAP_S
    guest: BenchGuest | None = None
    """The guest that changes reach; None: all."""

    @property
    def watchers(self) -> Sequence[EndpointWatcher]:
        return [each.watcher for each in ([self.guest] if self.guest is not None else self.node.guests)]

    @property
    def pids(self) -> dict[str, list[int]]:
        agents = [guest.agent.pid for guest in self.node.guests if guest.agent is not None]
        return {"proxy": [self.node.proxy.pid], "bridge": [self.node.bridge.pid], "agents": agents}

    def start(self) -> None:
        self.node.proxy.start()
        self.node.proxy.wait_ready()
        self.node.wait_current()

    def stop(self) -> None:
        self.node.proxy.stop()


@dataclass(slots=True)
class RealKubeProxy:
    """kube-proxy, started on a namespace without rules. `took_s` is from its start to the first rules."""

    proxy: KubeProxy
    probe: str
    """An existing endpoint: when it is live, so are all."""
    took_s: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.proxy.name

    @property
    def watchers(self) -> Sequence[EndpointWatcher]:
        return [self.proxy.watcher]

    @property
    def gap_s(self) -> tuple[float, float]:
        return _GAP_S if self.proxy.has_no_min_sync else _DEFAULT_GAP_S

    @property
    def pids(self) -> dict[str, list[int]]:
        return {"proxy": [self.proxy.pid]}

    def start(self) -> None:
        self.proxy.watcher.arm(self.probe)
        self.proxy.start()
        (seen_s,) = wait_for_all(self.watchers, LIVE_S)
        self.took_s.append(seen_s - self.proxy.started_s)
        # kube-proxy syncs again when all its caches have synced. The first change would wait for this sync,
        # and its CPU time would count as that of the changes.
        time.sleep(_KUBE_PROXY_SETTLE_S)  # no event reports the end of that sync

    def stop(self) -> None:
        self.proxy.stop()


def run(
    cluster: BenchCluster, subject: ServiceProxy, tenant: BenchTenant, count: int, *, has_churn: bool = False
) -> ChangeSlice:
    """Start the subject, make `count` changes, stop it, and restore the endpoints.

    Half of the Services churn, changes are measured at the others: each gets one endpoint more.
    """
    names = list(tenant.services)
    measured, churning = names[: len(names) // 2], names[len(names) // 2 :]
    with ExitStack() as stack:
        writer = cluster.writer()
        stack.callback(writer.close)
        stack.callback(subject.stop)
        subject.start()
        if has_churn:
            disturber = churn.start(cluster, tenant, churning)
            stack.callback(_put_back, writer, tenant, churning)
            stack.callback(disturber.stop)
            # Before its first write, samples would be those of a quiet cluster.
            time.sleep(_CHURN_SETTLE_S)  # no event reports that the churn is under way
        chosen = list(itertools.islice(itertools.cycle(measured), count))
        stack.callback(_put_back, writer, tenant, chosen)
        return changes(cluster, subject, tenant, writer, chosen, _CHURN_GAP_S if has_churn else subject.gap_s)


def changes(
    cluster: BenchCluster,
    subject: ServiceProxy,
    tenant: BenchTenant,
    writer: Writer,
    services: Sequence[str],
    gap_s: tuple[float, float],
) -> ChangeSlice:
    """Change one Service after the other, each when the one before has been live for a while."""
    made: list[MeasuredChange] = []
    watchers = subject.watchers
    before = {part: usage.cpu_s(pids) for part, pids in subject.pids.items()}
    for name in services:
        # Longer than the subject's minimum interval between syncs, so that no change waits for it; random,
        # or all changes would meet the same phase of the subject's timers.
        gap = random.uniform(*gap_s)  # noqa: S311 - no secret
        time.sleep(gap)  # the pace of the changes is part of what is measured
        address = cluster.addresses.next()
        for watcher in watchers:
            watcher.arm(address)
        endpoints = (*tenant.services[name], address)
        written = writer.set_endpoints(tenant.namespace, name, tenant.key, endpoints)
        made.append(MeasuredChange(written, wait_for_all(watchers, LIVE_S)))
    # A change costs CPU time also after it is live: the last one gets the same time as the others.
    time.sleep(gap_s[0])  # no event reports that this work is done
    after = {part: usage.cpu_s(pids) for part, pids in subject.pids.items()}
    return ChangeSlice(made, {part: after[part] - before[part] for part in after})


def _put_back(writer: Writer, tenant: BenchTenant, names: Sequence[str]) -> None:
    for name in dict.fromkeys(names):
        writer.set_endpoints(tenant.namespace, name, tenant.key, tenant.services[name])
