# SPDX-License-Identifier: Apache-2.0
"""A token bucket: so many at once, and then so many a second. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class Bucket:
    """Tokens that come again by the second, up to `burst`. `at_s` is when `tokens` were counted."""

    burst: float
    per_s: float
    tokens: float
    at_s: float

    def take(self, now_s: float) -> bool:
        """Take one if there is one."""
        self._fill(now_s)
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def draw(self, now_s: float) -> float:
        """Take one that may have to come first; return for how long to wait for it, in seconds."""
        self._fill(now_s)
        wait_s = max(0.0, 1 - self.tokens) / self.per_s
        self.tokens -= 1
        return wait_s

    def spend(self, amount: float) -> None:
        """Take so many, be they there or not: who spends waits for `wait_s` before the next time."""
        self.tokens -= amount

    def wait_s(self, now_s: float) -> float:
        """How long it takes until what was spent too much has come again."""
        self._fill(now_s)
        return max(0.0, -self.tokens) / self.per_s

    def is_full(self, now_s: float) -> bool:
        self._fill(now_s)
        return self.tokens >= self.burst

    def _fill(self, now_s: float) -> None:
        self.tokens = min(self.burst, self.tokens + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s
