# SPDX-License-Identifier: Apache-2.0
"""The limits of one tenant on this node, so that no tenant can starve another."""

import enum
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from daemonkit.fairness.lease import Lease
from daemonkit.token_bucket import TokenBucket
from vnagent.core.bearer_token import TokenFault


@dataclass(frozen=True, slots=True)
class Limits:
    """Per tenant; 0 means none. `requests_per_second` allows bursts of one second's requests. Some of the
    excess is answered 429 (`REFUSED_PART`)."""

    connections: int
    tunnels: int
    requests_per_second: int
    buffered_bytes: int = 0
    log_follows: int = 0


class PeerUsage:
    """What the other workers count for a tenant: nothing where one process serves all.

    `vnagent.workers.usage_table` has the one that workers share.
    """

    __slots__ = ()

    def exchange(self, usage: "TenantUsage") -> None:
        """Publish what this process counts, and read what the others do."""

    def request_bucket(self, per_s: float, burst: float, now_s: float) -> TokenBucket:
        """The bucket of the tenant's requests, full at the beginning."""
        return TokenBucket(burst, per_s, burst, now_s)

    def refusal_bucket(self, per_s: float, burst: float, now_s: float) -> TokenBucket:
        """The bucket of the tenant's 429s, full at the beginning."""
        return TokenBucket(burst, per_s, burst, now_s)


NO_PEERS = PeerUsage()


@dataclass(slots=True)
class HeldCount:
    """How many of one kind a tenant holds: in this process, and in the other workers."""

    count: int = 0
    peer_count: int = 0


@dataclass(slots=True)
class TenantUsage:
    """What a tenant uses now, of this process. `peers` exchanges that with the other workers: `peer_count` of
    what is held, `peer_unsent_bytes` and `peer_handshake_bytes` are theirs.

    `lookups` are requests that wait for a read of the pods; `waiting` counts connections with a queued
    request. `requests` and `refusals` are the buckets of its requests and of its 429s.
    `unsent_bytes` sums the unread bytes of all its streams and replies, and incomplete heads.
    `handshake_bytes` sums the handshakes of its connections and streams.
    `sent_bytes` only grows: what was written to its clients, before encryption.
    """

    max_unsent_bytes: int = 0
    handshake_bytes: int = 0
    peer_handshake_bytes: int = 0
    unsent_bytes: int = 0
    peer_unsent_bytes: int = 0
    connections: HeldCount = field(default_factory=HeldCount)
    tunnels: HeldCount = field(default_factory=HeldCount)
    log_follows: HeldCount = field(default_factory=HeldCount)
    lookups: HeldCount = field(default_factory=HeldCount)
    requests: TokenBucket | None = None
    refusals: TokenBucket | None = None
    waiting: int = 0
    sent_bytes: int = 0
    peers: PeerUsage = NO_PEERS

    def exchange(self) -> None:
        """Publish the counts to the other workers, and read theirs."""
        self.peers.exchange(self)

    def lease(self, held: HeldCount, limit: int) -> Lease | None:
        """Count one more until the lease is released; None if the tenant has `limit` in all workers. `held`
        is one of this usage's.

        It counts before it compares: of two workers that do so at the same time both may be refused, and the
        limit is never exceeded.
        """
        held.count += 1
        self.exchange()
        if is_within(held.count + held.peer_count, limit):
            return Lease(partial(self._release, held))
        self._release(held)
        return None

    def _release(self, held: HeldCount) -> None:
        held.count -= 1
        self.exchange()

    @property
    def is_idle(self) -> bool:
        held = self.connections.count or self.tunnels.count or self.log_follows.count or self.lookups.count
        return not (held or self.handshake_bytes or self.unsent_bytes or self.waiting)


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


class LimitReason(enum.StrEnum):
    """Which limit a 429 is about: the reason of its audit line."""

    CONNECTIONS = "too-many-connections"
    TUNNELS = "too-many-tunnels"
    LOG_FOLLOWS = "too-many-log-follows"
    REQUESTS = "too-many-requests"
    LOOKUPS = "too-many-lookups"
    PAGES = "too-many-pages"
    UNREAD = "too-much-unread"


# What a client holds ends when the client ends it, and vn-agent cannot compute when. A refused connection
# costs a handshake, 1 ms: at one retry a second 1 000 refused clients would be a core.
HELD_RETRY_S = 10
# A read of the pods begins each second at the latest.
LOOKUP_RETRY_S = 1
# Of the rate at which new tokens of a client address are verified (`core.verification_rate`).
TOKEN_RETRY_S = 2
# Of a bucket: a client must not take a long queue for a failure.
MAX_RETRY_S = 60


def retry_after_s(reason: str, usage: TenantUsage, limits: Limits, now_s: float) -> int | None:
    """The Retry-After of a 429, in whole seconds (RFC 9110, 10.2.3); None where vn-agent cannot know.

    None for a kubelet's own 429, `kubelet-rejected`. `too-many-pages` has a bucket of its own, which
    `exchange.page_service` reads: without it, LOOKUP_RETRY_S.
    """
    if reason == LimitReason.REQUESTS:
        if not limits.requests_per_second:
            return LOOKUP_RETRY_S
        requests, _ = _buckets(usage, limits.requests_per_second, now_s)
        # Queued requests go first.
        missing = 1 + usage.waiting - requests.available(now_s)
        return whole_seconds(missing / limits.requests_per_second)
    if reason in (LimitReason.LOOKUPS, LimitReason.PAGES):
        return LOOKUP_RETRY_S
    if reason == TokenFault.TOO_MANY:
        return TOKEN_RETRY_S
    if reason in (LimitReason.CONNECTIONS, LimitReason.TUNNELS, LimitReason.LOG_FOLLOWS, LimitReason.UNREAD):
        return HELD_RETRY_S
    return None


def whole_seconds(seconds: float) -> int:
    """`seconds` as a value of Retry-After: rounded up, within 1 and MAX_RETRY_S."""
    return max(1, min(MAX_RETRY_S, math.ceil(seconds)))


def _buckets(usage: TenantUsage, rate: int, now_s: float) -> tuple[TokenBucket, TokenBucket]:
    if usage.requests is None:
        usage.requests = usage.peers.request_bucket(float(rate), float(rate), now_s)
    if usage.refusals is None:
        refused = rate * REFUSED_PART
        burst, per_s = max(MIN_REFUSALS, refused), max(MIN_REFUSALS_PER_SECOND, refused)
        usage.refusals = usage.peers.refusal_bucket(per_s, burst, now_s)
    return usage.requests, usage.refusals


class Buffered(Protocol):
    unsent_bytes: int
    peer_unsent_bytes: int
    max_unsent_bytes: int


def has_memory(usage: Buffered) -> bool:
    """Whether the tenant may get another reply of any size, or send another large head."""
    limit = usage.max_unsent_bytes
    return not limit or usage.unsent_bytes + usage.peer_unsent_bytes <= limit


def can_hold(usage: TenantUsage, size: int) -> bool:
    """Whether a reply of `size` bytes may be kept for the tenant until its client has read it.

    A reply above half of the limit is kept while little else is, or it could never be sent. So a tenant has
    at most the limit in memory, or half of it and one page.
    """
    limit = usage.max_unsent_bytes
    if not limit:
        return True
    unsent_bytes = usage.unsent_bytes + usage.peer_unsent_bytes
    return unsent_bytes + size <= limit or 2 * unsent_bytes <= limit


def is_within(used: int, limit: int) -> bool:
    """Whether so many may be used. Limit 0: unlimited."""
    return not limit or used <= limit
