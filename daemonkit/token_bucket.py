# SPDX-License-Identifier: Apache-2.0
"""A token bucket: a burst at once, then a rate. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """Refilled by `per_s` up to `burst`. `at_s` is when `tokens` were counted.

    Use `try_acquire` to drop what exceeds the rate, `reserve` to delay it. Use `debit` and `wait_s` where
    the cost is known only afterwards.
    """

    burst: float
    per_s: float
    tokens: float
    at_s: float

    def try_acquire(self, now_s: float, cost: float = 1.0) -> bool:
        """Take `cost` if there is one token, which may leave a debt; false if there is none."""
        self._refill(now_s)
        if self.tokens < 1:
            return False
        self.tokens -= cost
        return True

    def reserve(self, now_s: float, cost: float = 1.0) -> float:
        """Take `cost`, in advance where it is not there; return the seconds to wait for it."""
        self._refill(now_s)
        wait_s = max(0.0, cost - self.tokens) / self.per_s
        self.tokens -= cost
        return wait_s

    def debit(self, amount: float) -> None:
        """Take `amount`, which may leave a debt."""
        self.tokens -= amount

    def wait_s(self, now_s: float) -> float:
        """The seconds until a debt is paid."""
        return max(0.0, -self.available(now_s)) / self.per_s

    def is_full(self, now_s: float) -> bool:
        return self.available(now_s) >= self.burst

    def available(self, now_s: float) -> float:
        return min(self.burst, self.tokens + (now_s - self.at_s) * self.per_s)

    def _refill(self, now_s: float) -> None:
        self.tokens, self.at_s = self.available(now_s), now_s
