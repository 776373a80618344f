# SPDX-License-Identifier: Apache-2.0
"""Which row of the usage table a tenant has.

The row of a removed tenant is free again after QUARANTINE_S, if all workers have applied the removal and
count nothing in it. A worker writes to it no longer by then: one that hung was ended before.
"""

from collections.abc import Callable, Iterable, Mapping

QUARANTINE_S = 60.0


class Rows:
    """The rows of all tenants. `row_count` is how many were ever used; there are `max_rows`."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._by_tenant: dict[str, int] = {}
        # With the time of the removal.
        self._removed: dict[str, tuple[int, float]] = {}
        self._free: list[int] = []
        self.row_count = 0

    @property
    def has_removed(self) -> bool:
        """Whether a row is to be free again some time."""
        return bool(self._removed)

    def assign(self, tenants: Iterable[str], now_s: float) -> None:
        """Give each of the registered `tenants` a row, if one is left. One that returns has its old row."""
        present = set(tenants)
        for tenant in self._by_tenant.keys() - present:
            self._removed[tenant] = self._by_tenant.pop(tenant), now_s
        for tenant in sorted(present - self._by_tenant.keys()):
            if tenant in self._removed:
                self._by_tenant[tenant] = self._removed.pop(tenant)[0]
            elif self._free:
                self._by_tenant[tenant] = self._free.pop()
            elif self.row_count < self._max_rows:
                self._by_tenant[tenant] = self.row_count
                self.row_count += 1

    def free(self, is_unused: Callable[[int], bool], now_s: float) -> list[int]:
        """The rows that another tenant may have from now on. `is_unused` returns whether all workers have
        applied what was removed, and count nothing in a row."""
        freed = [
            (tenant, row)
            for tenant, (row, removed_s) in self._removed.items()
            if now_s - removed_s >= QUARANTINE_S and is_unused(row)
        ]
        for tenant, row in freed:
            del self._removed[tenant]
            self._free.append(row)
        return [row for _, row in freed]

    def of(self, tenants: Iterable[str]) -> Mapping[str, int]:
        """The rows of these tenants; one without a row is not in it."""
        return {tenant: self._by_tenant[tenant] for tenant in tenants if tenant in self._by_tenant}
