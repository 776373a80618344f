# SPDX-License-Identifier: Apache-2.0
"""How much memory the process may hold, and what of it is for tenants. Pure.

The unit's MemoryMax and the Deployments' limit are LIMIT_BYTES, to which a test holds them. With another one
nothing else need be changed: without `maxMemoryBytes` the limit that the process finds in its cgroup counts.
"""

from daemonkit.kube.shared_budget import MIN_SHARE_BYTES

LIMIT_BYTES = 1 << 30
# The interpreter with all that is imported takes 45 MiB. Beside it there are Nodes, published objects,
# Events, pages of the super cluster's own lists, and what is under way for a moment: a line of 16 MiB is held
# twice while it is cut off.
BASE_BYTES = 192 << 20
# What was counted as bytes takes more: rooms in the allocator's arenas, dictionaries, what waits.
_OVERHEAD = 1.25
MIN_LIMIT_BYTES = 256 << 20
# docs/scale.md: 0.58 to 0.73 MB for one that is idle, as it is counted.
TENANT_BYTES = 600 << 10


def budget_bytes(limit_bytes: int) -> int:
    """What all tenants may take, here and in the super cluster's caches, as it is counted."""
    return int((max(limit_bytes, MIN_LIMIT_BYTES) - BASE_BYTES) / _OVERHEAD)


def chosen_limit_bytes(configured: int | None, found: int | None) -> int:
    """What the process may take: as it is configured, or as it was found in its cgroup."""
    if configured is not None:
        return configured
    return LIMIT_BYTES if found is None else found


def room(limit_bytes: int) -> int:
    """For how many tenants there is memory, each with the smallest share."""
    return budget_bytes(limit_bytes) // (TENANT_BYTES + MIN_SHARE_BYTES)


def limit_for(tenants: int) -> int:
    """The smallest limit, in bytes, that has room for so many tenants."""
    return max(BASE_BYTES + int(tenants * (TENANT_BYTES + MIN_SHARE_BYTES) * _OVERHEAD) + 1, MIN_LIMIT_BYTES)
