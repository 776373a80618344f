# SPDX-License-Identifier: Apache-2.0
"""The processor time of a vNode: that of all pods which a tenant has and had on the node. It never falls.

The kubelet's pages have present pods alone. A sum over these falls when a pod ends: `kubectl top node` then
has no figure, and Prometheus' `rate()` takes the fall for a restart of the counter. So an ended pod keeps its
share.

Pods are known by their names in the super cluster, as `/metrics/resource` has no uid. A later pod of the name
begins at zero, and so continues its predecessor's share. Times are whole nanoseconds: sums of
these do not depend on their order, and a rounded sum could fall.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from tenancy.ownership import OwnerIndex

# Ended pods that a tenant's total lists by name, as the index may get them back. Older ones are one number.
MAX_ENDED_PODS = 8
# A counter of nanoseconds has 64 bits in Go. This is 292 years.
MAX_NS = (1 << 63) - 1
# A sample that is so much older than the last one was measured after the clock had been set back. Others
# that are older are of a read that began earlier and took longer.
CLOCK_SET_BACK_MS = 60_000

PodKey = tuple[str, str]
"""The super namespace and the name of a pod."""


class CpuSample(NamedTuple):
    """Processor time in nanoseconds, and when it was measured, in ms since the epoch."""

    ns: int
    at_ms: int


class CpuReading(NamedTuple):
    """What one page shows: the samples of pods, and when the node itself was measured, in ms."""

    pods: Mapping[PodKey, CpuSample]
    node_at_ms: int


@dataclass(slots=True)
class PodShare:
    """One pod's processor time: `last_ns` at `at_ms`, and `earlier_ns` of earlier pods of its name."""

    last_ns: int
    at_ms: int
    earlier_ns: int = 0

    def take(self, sample: CpuSample) -> None:
        # One of the same time is the same one: /stats/summary has whole seconds, and two reads of a second
        # may end in another order than they began.
        if self.at_ms - CLOCK_SET_BACK_MS < sample.at_ms <= self.at_ms:
            return
        if sample.ns < self.last_ns:
            self.earlier_ns = min(MAX_NS, self.earlier_ns + self.last_ns)
        self.last_ns, self.at_ms = sample.ns, sample.at_ms


@dataclass(slots=True)
class TenantCpu:
    """One tenant's total: its pods, those longest without a sample first, and what older ones had."""

    ended_ns: int = 0
    at_ms: int = 0
    pods: dict[PodKey, PodShare] = field(default_factory=dict)

    @property
    def total(self) -> CpuSample:
        ns = self.ended_ns + sum(share.earlier_ns + share.last_ns for share in self.pods.values())
        return CpuSample(ns, self.at_ms)

    def take(self, key: PodKey, sample: CpuSample) -> None:
        share = self.pods.pop(key, None)
        if share is None:
            share = PodShare(sample.ns, sample.at_ms)
        else:
            share.take(sample)
        self.pods[key] = share

    def keep(self, key: PodKey) -> bool:
        """Have a pod without a sample listed still; False if it is not."""
        share = self.pods.pop(key, None)
        if share is None:
            return False
        self.pods[key] = share
        return True

    def end_round(self, newest_ms: int, present: int) -> None:
        """`newest_ms`: of the samples, or of the node without any. The last `present` pods have not ended."""
        if newest_ms > self.at_ms or 0 < newest_ms <= self.at_ms - CLOCK_SET_BACK_MS:
            self.at_ms = newest_ms
        while len(self.pods) - present > MAX_ENDED_PODS:
            share = self.pods.pop(next(iter(self.pods)))
            self.ended_ns = min(MAX_NS, self.ended_ns + share.earlier_ns + share.last_ns)


class NodeCpu:
    """The totals of all tenants, from one kind of page."""

    def __init__(self, tenants: Mapping[str, TenantCpu] | None = None) -> None:
        self._tenants = dict(tenants or {})
        self._present: Collection[PodKey] = ()

    @property
    def tenants(self) -> Mapping[str, TenantCpu]:
        return self._tenants

    def total(self, tenant: str) -> CpuSample | None:
        """The total of `tenant`; None before it had a pod here."""
        found = self._tenants.get(tenant)
        return None if found is None else found.total

    def take(self, reading: CpuReading, index: OwnerIndex) -> bool:
        """Take the samples of a page. Return whether a pod has begun or ended since the last page.

        A pod without a sample keeps its share: it has ended, or the kubelet could not measure it. It has
        ended if the index lacks it too.
        """
        newest: dict[str, int] = {}
        present: Counter[str] = Counter()
        for pod in index:
            key = (pod.super_namespace, pod.super_name)
            sample = reading.pods.get(key)
            if sample is None:
                known = self._tenants.get(pod.tenant)
                present[pod.tenant] += known is not None and known.keep(key)
                continue
            self._tenants.setdefault(pod.tenant, TenantCpu()).take(key, sample)
            newest[pod.tenant] = max(newest.get(pod.tenant, 0), sample.at_ms)
            present[pod.tenant] += 1
        for tenant, cpu in self._tenants.items():
            cpu.end_round(newest.get(tenant, reading.node_at_ms), present[tenant])
        before, self._present = self._present, reading.pods.keys()
        return before != self._present

    def keep_only(self, tenants: Iterable[str]) -> None:
        """Remove the totals of all other tenants."""
        kept = set(tenants)
        for tenant in self._tenants.keys() - kept:
            del self._tenants[tenant]


# ---- saved state

_Whole = Annotated[int, msgspec.Meta(ge=0)]


class _SavedShare(NamedTuple):
    namespace: str
    name: str
    last_ns: _Whole
    at_ms: _Whole
    earlier_ns: _Whole


class _SavedTenant(msgspec.Struct, rename="camel"):
    ended_ns: _Whole
    at_ms: _Whole
    pods: list[_SavedShare]


_SavedTotals = dict[str, dict[str, _SavedTenant]]


def dump(totals: Mapping[str, NodeCpu]) -> bytes:
    """The totals of pages, by their names, as JSON for `load`."""
    saved: _SavedTotals = {
        page: {
            tenant: _SavedTenant(
                cpu.ended_ns,
                cpu.at_ms,
                [
                    _SavedShare(*key, share.last_ns, share.at_ms, share.earlier_ns)
                    for key, share in cpu.pods.items()
                ],
            )
            for tenant, cpu in node_cpu.tenants.items()
        }
        for page, node_cpu in totals.items()
    }
    return msgspec.json.encode(saved)


def load(data: bytes | msgspec.Raw) -> dict[str, NodeCpu]:
    """What `dump` wrote. Raises ValueError."""
    return {
        page: NodeCpu(
            {
                tenant: TenantCpu(
                    each.ended_ns,
                    each.at_ms,
                    {
                        (namespace, name): PodShare(last_ns, at_ms, earlier_ns)
                        for namespace, name, last_ns, at_ms, earlier_ns in each.pods
                    },
                )
                for tenant, each in tenants.items()
            }
        )
        for page, tenants in msgspec.json.decode(data, type=_SavedTotals).items()
    }
