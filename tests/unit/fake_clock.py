# SPDX-License-Identifier: Apache-2.0
"""A clock that a test sets."""


class FakeClock:
    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
