# SPDX-License-Identifier: Apache-2.0
"""What one tenant may hold and ask for at once on this node, so that no tenant can starve another."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Per tenant; 0 means none. `requests_per_second` allows bursts of one second's worth."""

    connections: int
    tunnels: int
    requests_per_second: int
    buffered_bytes: int = 0


@dataclass(slots=True)
class Use:
    """What a tenant holds now. `tokens` and `counted_at_s` are the token bucket of its requests,
    `unsent_bytes` is what its peers have not taken yet, all streams and replies together."""

    max_unsent_bytes: int = 0
    unsent_bytes: int = 0
    connections: int = 0
    tunnels: int = 0
    tokens: float = field(default=0.0)
    counted_at_s: float = field(default=float("-inf"))

    @property
    def is_idle(self) -> bool:
        return not (self.connections or self.tunnels or self.unsent_bytes)


def takes_request(use: Use, limits: Limits, now_s: float) -> bool:
    """Take one request out of the tenant's bucket; False if it is empty. `now_s` is monotonic."""
    rate = limits.requests_per_second
    if not rate:
        return True
    tokens = min(float(rate), use.tokens + (now_s - use.counted_at_s) * rate)
    use.counted_at_s = now_s
    if tokens < 1.0:
        use.tokens = tokens
        return False
    use.tokens = tokens - 1.0
    return True


def has_memory(use: Use) -> bool:
    """Whether the tenant may be given another reply of any size."""
    return not use.max_unsent_bytes or use.unsent_bytes <= use.max_unsent_bytes


def has_room(held: int, limit: int) -> bool:
    return not limit or held < limit
