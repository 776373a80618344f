# SPDX-License-Identifier: Apache-2.0
"""In which order faults come. Each of them comes once in a cycle; a seed draws the order."""

import random
from collections.abc import Sequence

# Processes that are killed begin anew, and a leak with them: the middle of a run lets them live.
LIVES_FROM, LIVES_TO = 0.2, 0.85


def cycle(names: Sequence[str], ending: frozenset[str], seed: int, number: int, share: float) -> list[str]:
    """The faults of one cycle, in order. `ending` are those that end a daemon's process.

    These come first in the first cycle, and in others only near the begin and the end of the run: `share` is
    the part of its time that is over.
    """
    drawn = random.Random(f"{seed}/{number}")  # noqa: S311 - an order, no secret
    kills = [name for name in names if name in ending]
    others = [name for name in names if name not in ending]
    drawn.shuffle(kills)
    drawn.shuffle(others)
    if number == 0:
        return kills + others
    if LIVES_FROM < share < LIVES_TO:
        return others
    mixed = kills + others
    drawn.shuffle(mixed)
    return mixed
