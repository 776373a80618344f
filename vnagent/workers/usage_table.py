# SPDX-License-Identifier: Apache-2.0
"""What each worker counts for each tenant, in memory that all workers share.

A tenant has a row. In it each worker has a column that it alone writes, so that no lock is needed: what the
tenant uses is the sum. The buckets of its rates are one number each, the time at which the bucket is full
again. A worker that takes a token moves that time. If another one does so between its read and its write,
what that one takes is not counted.

The table is sparse: a page of it takes memory once a tenant on it has been served.
"""

import mmap
import os
import struct

from daemonkit.token_bucket import TokenBucket
from vnagent.core.limits import PeerUsage, TenantUsage

# Tenants of a node; what is beyond has limits in each worker.
MAX_ROWS = 16_384
# Native, so that each number is written at once (`struct` copies it whole).
_COLUMN = struct.Struct("@6q")
_BUCKET = struct.Struct("@d")
# Of a worker itself, in front of the rows: its open connections, and those that it has accepted so far.
_LOAD = struct.Struct("@2q")
_BUCKETS = 2


class SharedTokenBucket(TokenBucket):
    """A bucket of all workers. Its state is the time at which it is full again, by the monotonic clock."""

    def __init__(self, table: mmap.mmap, place: int, burst: float, per_s: float, now_s: float) -> None:
        super().__init__(burst, per_s, burst, now_s)
        self._table = table
        self._place = place

    def try_acquire(self, now_s: float, cost: float = 1.0) -> bool:
        full_s: float = _BUCKET.unpack_from(self._table, self._place)[0]
        if self.burst - max(0.0, full_s - now_s) * self.per_s < 1:
            return False
        _BUCKET.pack_into(self._table, self._place, max(full_s, now_s) + cost / self.per_s)
        return True

    def available(self, now_s: float) -> float:
        full_s: float = _BUCKET.unpack_from(self._table, self._place)[0]
        return self.burst - max(0.0, full_s - now_s) * self.per_s


class SharedPeerUsage(PeerUsage):
    """One tenant's row as one worker sees it."""

    __slots__ = ("_buckets", "_others", "_own", "_table")

    def __init__(self, table: mmap.mmap, row: int, workers: int, own: int) -> None:
        """`row` is its place in bytes; `own` the index of this worker's column."""
        super().__init__()
        columns = [row + index * _COLUMN.size for index in range(workers)]
        self._table = table
        self._own = columns.pop(own)
        self._others = tuple(columns)
        self._buckets = row + workers * _COLUMN.size

    def exchange(self, usage: TenantUsage) -> None:
        table = self._table
        _COLUMN.pack_into(
            table,
            self._own,
            usage.connections.count,
            usage.tunnels.count,
            usage.log_follows.count,
            usage.lookups.count,
            usage.handshake_bytes,
            usage.unsent_bytes,
        )
        connections = tunnels = log_follows = lookups = handshake_bytes = unsent_bytes = 0
        for column in self._others:
            found = _COLUMN.unpack_from(table, column)
            connections += found[0]
            tunnels += found[1]
            log_follows += found[2]
            lookups += found[3]
            handshake_bytes += found[4]
            unsent_bytes += found[5]
        usage.connections.peer_count, usage.tunnels.peer_count = connections, tunnels
        usage.log_follows.peer_count, usage.lookups.peer_count = log_follows, lookups
        usage.peer_handshake_bytes, usage.peer_unsent_bytes = handshake_bytes, unsent_bytes

    def request_bucket(self, per_s: float, burst: float, now_s: float) -> TokenBucket:
        return SharedTokenBucket(self._table, self._buckets, burst, per_s, now_s)

    def refusal_bucket(self, per_s: float, burst: float, now_s: float) -> TokenBucket:
        return SharedTokenBucket(self._table, self._buckets + _BUCKET.size, burst, per_s, now_s)


class UsageTable:
    """The shared memory, of one process. The main process clears columns and rows, and reads loads."""

    def __init__(self, descriptor: int, workers: int) -> None:
        """`descriptor` is of `create`. Raises OSError."""
        self.workers = workers
        self.memory = mmap.mmap(descriptor, table_bytes(workers))

    def peers(self, row: int, own: int) -> PeerUsage:
        """The row as the worker with index `own` sees it."""
        return SharedPeerUsage(self.memory, self._place(row), self.workers, own)

    def publish_load(self, own: int, open_count: int, accepted_count: int) -> None:
        """The worker `own` has so many connections, and has accepted so many since it began."""
        _LOAD.pack_into(self.memory, own * _LOAD.size, open_count, accepted_count)

    def load(self, worker: int) -> tuple[int, int]:
        """Open and accepted connections of a worker."""
        open_count, accepted_count = _LOAD.unpack_from(self.memory, worker * _LOAD.size)
        return open_count, accepted_count

    def clear_worker(self, worker: int, row_count: int) -> None:
        """Nothing is counted for a worker that has ended, in the first `row_count` rows."""
        self.publish_load(worker, 0, 0)
        for row in range(row_count):
            _COLUMN.pack_into(self.memory, self._place(row) + worker * _COLUMN.size, 0, 0, 0, 0, 0, 0)

    def is_unused(self, row: int) -> bool:
        """Whether no worker counts anything in the row."""
        place = self._place(row)
        return not any(self.memory[place : place + self.workers * _COLUMN.size])

    def clear_row(self, row: int) -> None:
        """Make an unused row new: its buckets are full."""
        place = self._place(row)
        self.memory[place : place + _row_bytes(self.workers)] = bytes(_row_bytes(self.workers))

    def _place(self, row: int) -> int:
        return self.workers * _LOAD.size + row * _row_bytes(self.workers)


def _row_bytes(workers: int) -> int:
    return workers * _COLUMN.size + _BUCKETS * _BUCKET.size


def table_bytes(workers: int) -> int:
    """The size of the table's address space."""
    return workers * _LOAD.size + MAX_ROWS * _row_bytes(workers)


def create(workers: int) -> int:
    """A descriptor of new shared memory, all zero. Raises OSError."""
    descriptor = os.memfd_create("vn-agent-usage", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, table_bytes(workers))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
