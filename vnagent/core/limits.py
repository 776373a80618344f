# SPDX-License-Identifier: Apache-2.0
"""The limits of one tenant on this node, so that no tenant can starve another."""

import enum
from dataclasses import dataclass
from typing import Protocol

from daemonkit.token_bucket import TokenBucket


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

    `requests` and `refusals` are the buckets of its requests and of its 429s.
    `waiting` counts connections with a queued request, `lookups` requests that wait for a read of the pods.
    `unsent_bytes` sums the unread bytes of all its streams and replies, and incomplete heads.
    `handshake_bytes` sums the handshakes of its connections and streams.
    `sent_bytes` only grows: what was written to its clients, before encryption.
    """

    max_unsent_bytes: int = 0
    handshake_bytes: int = 0
    unsent_bytes: int = 0
    connections: int = 0
    tunnels: int = 0
    requests: TokenBucket | None = None
    refusals: TokenBucket | None = None
    waiting: int = 0
    lookups: int = 0
    sent_bytes: int = 0

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
    requests, refusals = _buckets(usage, rate, now_s)
    cost = min(rate, 1 + head_bytes // HEAD_BYTES_A_TOKEN)
    if (has_waited or not usage.waiting) and requests.try_acquire(now_s, cost):
        return RateVerdict.SERVE
    if not has_waited and refusals.try_acquire(now_s, cost):
        return RateVerdict.REFUSE
    return RateVerdict.WAIT


def ready_count(usage: TenantUsage, limits: Limits, now_s: float) -> int:
    """How many queued requests can be served now."""
    rate = limits.requests_per_second
    if not rate:
        return usage.waiting
    requests, _ = _buckets(usage, rate, now_s)
    return max(0, min(usage.waiting, int(requests.available(now_s))))


def _buckets(usage: TenantUsage, rate: int, now_s: float) -> tuple[TokenBucket, TokenBucket]:
    if usage.requests is None:
        usage.requests = TokenBucket(float(rate), float(rate), float(rate), now_s)
    if usage.refusals is None:
        refused = rate * REFUSED_PART
        burst, per_s = max(MIN_REFUSALS, refused), max(MIN_REFUSALS_PER_SECOND, refused)
        usage.refusals = TokenBucket(burst, per_s, burst, now_s)
    return usage.requests, usage.refusals


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
    """Whether one more may be used. Limit 0: unlimited."""
    return not limit or used < limit
