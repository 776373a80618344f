# SPDX-License-Identifier: Apache-2.0
"""How much memory the process may hold, and what of it is for tenants. Pure.

The unit's MemoryMax, the Deployments' limit and the configuration's `maxMemoryBytes` are one figure:
LIMIT_BYTES, to which a test holds them.
"""

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
