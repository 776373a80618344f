# SPDX-License-Identifier: Apache-2.0
"""Decides which removals of tenants are trusted, and which tenants are retained. Pure.

An unmounted directory, a list from an empty backup and an API server that has just started look as if every
tenant had been removed. A reading that lacks all tenants, or more than half of them and at least two, is
therefore distrusted: the tenants that it lacks are retained

- until a reading has them again, or has so many of them that the rest is plausible;
- until their deletion is confirmed: the source names them as deleted;
- until a person releases them.

Tenants are removed one at a time, or a few. A failed mount, backup or cache lacks nearly everything. Two is
the least, so that one of two tenants is removed at once; a source without its only tenant looks like one
that failed.
"""

import msgspec

_SHARE = 0.5
_LEAST = 2


class Distrust(msgspec.Struct, frozen=True):
    """Since when (wall clock) readings are distrusted, and the sources that were served at that time.

    Sources that came later are not in the `baseline`: new tenants do not make the loss of old ones plausible.
    """

    since_s: float
    baseline: frozenset[str]


class Removals(msgspec.Struct, frozen=True):
    """What follows from a reading: the sources to retain, and the distrust that goes on or begins."""

    retained: frozenset[str] = frozenset()
    distrust: Distrust | None = None


def evaluate(
    served: frozenset[str],
    present: frozenset[str],
    deleted: frozenset[str],
    before: Distrust | None,
    now_s: float,
) -> Removals:
    """Judge a reading that accounts for the sources `present` and names some as `deleted`.

    `served` are the sources whose tenants are served now, `before` the distrust of the last reading.
    """
    missing = served - present - deleted
    known = [Distrust(now_s, served)] if before is None else [before, Distrust(now_s, served)]
    for distrust in known:
        baseline = (distrust.baseline & served) - deleted
        if is_distrusted(len(baseline), len(baseline - present)):
            return Removals(missing, Distrust(distrust.since_s, baseline))
    return Removals()


def is_distrusted(known: int, missing: int) -> bool:
    """Whether a reading that lacks `missing` of `known` tenants is distrusted."""
    return missing > 0 and (missing == known or (missing >= _LEAST and missing > known * _SHARE))
