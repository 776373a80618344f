# SPDX-License-Identifier: Apache-2.0
"""What one tenant may hold and ask for at once on this node, so that no tenant can starve another."""

import enum
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """Per tenant; 0 means none. `requests_per_second` allows bursts of one second's worth, and some of
    what exceeds it is answered 429 (`REFUSED_PART`)."""

    connections: int
    tunnels: int
    requests_per_second: int
    buffered_bytes: int = 0


@dataclass(slots=True)
class Use:
    """What a tenant holds now. `tokens` and `counted_at_s` are the token bucket of its requests,
    `refusals` that of its 429s; `waiting` are its connections whose next request has to wait.
    `lookups` are its requests that wait for the pod source to be read.
    `unsent_bytes` is what its peers have not taken yet, all streams and replies together, and what has
    come of heads that are not whole yet. `handshake_bytes` is what came with the handshakes of its
    connections and streams."""

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


class Turn(enum.Enum):
    """What becomes of a request that has arrived whole."""

    SERVE = "serve"
    REFUSE = "refuse"  # 429
    WAIT = "wait"  # without an answer


# A head takes a turn for each so many bytes: an apiserver's has less. One of 190 KB costs milliseconds to
# read, so that some hundred of them a second were within the rate and more than a core.
HEAD_BYTES_A_TURN = 1024
# Of the rate. Every 429 is an answer and an audit line: without a bound of their own, a tenant that
# does not care would be limited in nothing.
REFUSED_PART = 0.1
# Where the rate is small: so many at once cost nothing, and a client learns at once why it is slow.
MIN_REFUSALS = 100.0
MIN_REFUSALS_PER_SECOND = 10.0


def take_turn(
    use: Use, limits: Limits, now_s: float, *, has_waited: bool = False, head_bytes: int = 0
) -> Turn:
    """Take one request out of the tenant's bucket, or one refusal. `now_s` is monotonic.

    A large head takes several turns, and may leave a debt of up to a second that later requests wait for.
    Those that wait go first: a request that `has_waited` is served before newer ones.
    """
    rate = limits.requests_per_second
    if not rate:
        return Turn.SERVE
    _fill(use, rate, now_s)
    cost = min(rate, 1 + head_bytes // HEAD_BYTES_A_TURN)
    if use.tokens >= 1.0 and (has_waited or not use.waiting):
        use.tokens -= cost
        return Turn.SERVE
    if use.refusals >= 1.0 and not has_waited:
        use.refusals -= cost
        return Turn.REFUSE
    return Turn.WAIT


def ready_count(use: Use, limits: Limits, now_s: float) -> int:
    """How many requests of those that wait can be served now."""
    rate = limits.requests_per_second
    if not rate:
        return use.waiting
    _fill(use, rate, now_s)
    return max(0, min(use.waiting, int(use.tokens)))


def _fill(use: Use, rate: int, now_s: float) -> None:
    passed_s = now_s - use.counted_at_s
    use.counted_at_s = now_s
    use.tokens = min(float(rate), use.tokens + passed_s * rate)
    refused = rate * REFUSED_PART
    use.refusals = min(
        max(MIN_REFUSALS, refused), use.refusals + passed_s * max(MIN_REFUSALS_PER_SECOND, refused)
    )


class Buffered(Protocol):
    unsent_bytes: int
    max_unsent_bytes: int


def has_memory(use: Buffered) -> bool:
    """Whether the tenant may be given another reply of any size, or another large head may be taken."""
    return not use.max_unsent_bytes or use.unsent_bytes <= use.max_unsent_bytes


def can_hold(use: Use, size: int) -> bool:
    """Whether a reply of `size` bytes may be kept for the tenant until its client takes it.

    A reply that is larger than half of the limit is kept as long as little else is: it could never be
    had otherwise. So a tenant has the limit in memory at most, or half of it and one page.
    """
    limit = use.max_unsent_bytes
    return not limit or use.unsent_bytes + size <= limit or 2 * use.unsent_bytes <= limit


def has_room(held: int, limit: int) -> bool:
    return not limit or held < limit
