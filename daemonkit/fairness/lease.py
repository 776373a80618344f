# SPDX-License-Identifier: Apache-2.0
"""What a caller holds until it is released, once. Pure."""

from collections.abc import Callable
from types import TracebackType


class Lease:
    """`release` has an effect the first time alone: two ends of one request must not give back two places."""

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    @property
    def is_held(self) -> bool:
        return self._give_back is not None

    def release(self) -> None:
        """Give back what is held; nothing happens if that was done."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
