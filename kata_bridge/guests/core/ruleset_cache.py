# SPDX-License-Identifier: Apache-2.0
"""Desired rulesets, each kept once for all guests that share it. Pure."""

from collections.abc import Collection
from dataclasses import replace

from ruleset.delta import RulesetDelta, apply_delta, difference
from ruleset.document import Ruleset

# The deltas of one burst: every network of every tenant on the node changes at once.
MAX_DELTAS = 256
# A new guest of the same tenant will need one of these; sending another again is cheap.
MAX_UNUSED = 16


class RulesetCache:
    """Rulesets by digest, and the deltas between them."""

    def __init__(self) -> None:
        self._rulesets: dict[str, Ruleset] = {}
        self._deltas: dict[tuple[str, str], RulesetDelta | None] = {}

    def __len__(self) -> int:
        return len(self._rulesets)

    def intern(self, ruleset: Ruleset) -> Ruleset:
        """Return `ruleset` with the documents of the cached one that has its digest."""
        known = self._rulesets.get(ruleset.digest)
        if known is None:
            self._rulesets[ruleset.digest] = ruleset
            return ruleset
        if known.generation == ruleset.generation:
            return known
        return replace(known, generation=ruleset.generation)

    def compose(self, base: Ruleset, delta: RulesetDelta) -> Ruleset:
        """Apply `delta` to `base`. Raises `BaseMismatch`."""
        known = self._rulesets.get(delta.digest)
        if known is None or base.digest not in (delta.base_digest, delta.digest):
            known = apply_delta(base, delta)
        self._add_delta((delta.base_digest, delta.digest), delta)
        return self.intern(replace(known, generation=delta.generation))

    def payload(self, base: Ruleset, ruleset: Ruleset) -> Ruleset | RulesetDelta:
        """What to send to a guest that holds `base`: the delta, computed once for all guests."""
        key = (base.digest, ruleset.digest)
        if key not in self._deltas:
            self._add_delta(key, difference(base, ruleset))
        delta = self._deltas[key]
        return ruleset if delta is None else replace(delta, generation=ruleset.generation)

    def evict_unused(self, used: Collection[str]) -> None:
        """Drop all rulesets but those with a digest in `used` and the latest others."""
        unused = [digest for digest in self._rulesets if digest not in used]
        for digest in unused[: max(0, len(unused) - MAX_UNUSED)]:
            del self._rulesets[digest]

    def _add_delta(self, key: tuple[str, str], delta: RulesetDelta | None) -> None:
        self._deltas[key] = delta
        while len(self._deltas) > MAX_DELTAS:
            del self._deltas[next(iter(self._deltas))]
