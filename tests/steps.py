# SPDX-License-Identifier: Apache-2.0
"""Long work in steps: what each of them looks at, and the result."""

import itertools
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def finish(work: Generator[None, None, T]) -> T:
    """What the work returns, with all steps taken at once."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        found: T = end.value
        return found


def most_in_a_step(
    work: Generator[None, None, object] | Coroutine[Any, Any, object], done: Callable[[], int]
) -> int:
    """How much one step does at most, by what is `done` so far."""
    counts = [done()]
    try:
        while True:
            work.send(None)
            counts.append(done())
    except StopIteration:
        counts.append(done())
    return max(after - before for before, after in itertools.pairwise(counts))
