# SPDX-License-Identifier: Apache-2.0
"""The limits of one tenant on this node, so that no tenant can starve another."""

import enum
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """Per tenant; 0 means none. `requests_per_second` allows bursts of one second's requests. Some of the
    excess is answered 429 (`REFUSED_PART`)."""

    connections: int
    tunnels: int
    requests_per_second: int
    buffered_bytes: int = 0


@dataclass(slots=True)
class TenantUsage:
    """What a tenant uses now.

    `tokens` and `counted_at_s` are the token bucket of its requests, `refusals` that of its 429s.
    `waiting` counts connections with a queued request, `lookups` requests that wait for a read of the pods.
    `unsent_bytes` sums the unread bytes of all its streams and replies, and incomplete heads.
    `handshake_bytes` sums the handshakes of its connections and streams.
    """

    max_unsent_bytes: int = 0
    handshake_bytes: int = 0
    unsent_bytes: int = 0
    connections: int = 0
    tunnels: int = 0
    tokens: float = field(default=0.0)
    refusals: float = field(default=0.0)
    counted_at_s: float = field(default=float("-inf"))
    waiting: int = 0
    lookups: int = 0

    @property
    def is_idle(self) -> bool:
        return not (self.connections or self.tunnels or self.unsent_bytes or self.waiting or self.lookups)


class RateVerdict(enum.Enum):
    """What happens to a complete request."""

    SERVE = "serve"
    REFUSE = "refuse"  # 429
    WAIT = "wait"  # queued


# A head takes a token for each so many bytes: an apiserver's has fewer. One of 190 KB costs milliseconds to
# parse, so that some hundred of them a second were within the rate and more than a core.
HEAD_BYTES_A_TOKEN = 1024
# Of the rate. Every 429 costs an answer and an audit line: unbounded 429s would be no limit.
REFUSED_PART = 0.1
# For small rates: so many at once cost nothing, and a client learns at once why it is slow.
MIN_REFUSALS = 100.0
MIN_REFUSALS_PER_SECOND = 10.0


def admit_request(
    usage: TenantUsage, limits: Limits, now_s: float, *, has_waited: bool = False, head_bytes: int = 0
) -> RateVerdict:
    """Take one request, or one refusal, from the tenant's buckets. `now_s` is monotonic.

    A large head takes several tokens, and may leave a debt of up to a second. Queued requests go first: one
    that `has_waited` is served before newer ones.
    """
    rate = limits.requests_per_second
    if not rate:
        return RateVerdict.SERVE
    _fill(usage, rate, now_s)
    cost = min(rate, 1 + head_bytes // HEAD_BYTES_A_TOKEN)
    if usage.tokens >= 1.0 and (has_waited or not usage.waiting):
        usage.tokens -= cost
        return RateVerdict.SERVE
    if usage.refusals >= 1.0 and not has_waited:
        usage.refusals -= cost
        return RateVerdict.REFUSE
    return RateVerdict.WAIT


def ready_count(usage: TenantUsage, limits: Limits, now_s: float) -> int:
    """How many queued requests can be served now."""
    rate = limits.requests_per_second
    if not rate:
        return usage.waiting
    _fill(usage, rate, now_s)
    return max(0, min(usage.waiting, int(usage.tokens)))


def _fill(usage: TenantUsage, rate: int, now_s: float) -> None:
    passed_s = now_s - usage.counted_at_s
    usage.counted_at_s = now_s
    usage.tokens = min(float(rate), usage.tokens + passed_s * rate)
    refused = rate * REFUSED_PART
    usage.refusals = min(
        max(MIN_REFUSALS, refused), usage.refusals + passed_s * max(MIN_REFUSALS_PER_SECOND, refused)
    )


class Buffered(Protocol):
    unsent_bytes: int
    max_unsent_bytes: int


def has_memory(usage: Buffered) -> bool:
    """Whether the tenant may get another reply of any size, or send another large head."""
    return not usage.max_unsent_bytes or usage.unsent_bytes <= usage.max_unsent_bytes


def can_hold(usage: TenantUsage, size: int) -> bool:
    """Whether a reply of `size` bytes may be kept for the tenant until its client has read it.

    A reply above half of the limit is kept while little else is, or it could never be sent. So a tenant has
    at most the limit in memory, or half of it and one page.
    """
    limit = usage.max_unsent_bytes
    return not limit or usage.unsent_bytes + size <= limit or 2 * usage.unsent_bytes <= limit


def is_below(used: int, limit: int) -> bool:
    """Whether one more may be used. 0 is no limit."""
    return not limit or used < limit
