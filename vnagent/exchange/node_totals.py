# SPDX-License-Identifier: Apache-2.0
"""The processor time of vNodes: one total for each kind of page and tenant, kept over restarts.

The pages' own times differ by up to a sample, so that each kind of page has totals of its own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from tenancy.ownership import OwnerIndex
from vnagent.core.requests import Endpoint
from vnagent.pages.node_cpu import CpuReading, CpuSample, NodeCpu
from vnagent.saved_state import SavedState


class NodeTotals:
    """`tenants` returns the keys of all registered ones; totals of others are removed. `saved` is None where
    nothing is kept on disk."""

    def __init__(self, tenants: Callable[[], Iterable[str]], saved: SavedState | None = None) -> None:
        self._tenants = tenants
        self._saved = saved
        self._totals: defaultdict[str, NodeCpu] = defaultdict(NodeCpu)

    def restore(self) -> None:
        """Go on from the totals on disk."""
        if self._saved is not None:
            self._totals.update(self._saved.load_node_cpu())

    def take(self, page: Endpoint, reading: CpuReading, index: OwnerIndex) -> None:
        """Take what one read of the page shows. `index` has to be synced."""
        node_cpu = self._totals[page.value]
        is_new = node_cpu.take(reading, index)
        node_cpu.keep_only(self._tenants())
        self._save(is_new=is_new)

    def total(self, page: Endpoint, tenant: str) -> CpuSample | None:
        """The tenant's total; None before it had a pod here."""
        return self._totals[page.value].total(tenant)

    def save(self) -> None:
        """Have the totals written with what is due: the daemon stops."""
        self._save(is_new=True)

    def _save(self, *, is_new: bool) -> None:
        if self._saved is not None and self._totals:
            self._saved.node_cpu_confirmed(self._totals, is_new=is_new)
