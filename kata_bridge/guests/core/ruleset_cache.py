# SPDX-License-Identifier: Apache-2.0
"""The rulesets that guests shall hold: each once, however many guests share it."""

from collections.abc import Collection
from dataclasses import replace

from ruleset.delta import RulesetDelta, apply_delta, difference
from ruleset.document import Ruleset

# The deltas of one burst: every network of every tenant on the node changes at once.
MAX_DELTAS = 256
# What a new guest of the tenant will need, though no guest holds it just now, is cheap to send again.
MAX_UNUSED = 16


class RulesetCache:
    """Rulesets by digest, and the deltas between them."""

    def __init__(self) -> None:
        self._whole: dict[str, Ruleset] = {}
        self._deltas: dict[tuple[str, str], RulesetDelta | None] = {}

    def __len__(self) -> int:
        return len(self._whole)

    def get(self, digest: str) -> Ruleset | None:
        return self._whole.get(digest)

    def shared(self, ruleset: Ruleset) -> Ruleset:
        """Return `ruleset` with the documents of an earlier one that says the same."""
        known = self._whole.get(ruleset.digest)
        if known is None:
            self._whole[ruleset.digest] = ruleset
            return ruleset
        if known.generation == ruleset.generation:
            return known
        return replace(known, generation=ruleset.generation)

    def composed(self, base: Ruleset, delta: RulesetDelta) -> Ruleset:
        """Return what `delta` makes of `base`. Raises `BaseMismatch`."""
        known = self._whole.get(delta.digest)
        if known is None or base.digest not in (delta.base_digest, delta.digest):
            known = apply_delta(base, delta)
        self._remember((delta.base_digest, delta.digest), delta)
        return self.shared(replace(known, generation=delta.generation))

    def between(self, base: Ruleset, ruleset: Ruleset) -> Ruleset | RulesetDelta:
        """Return what to send to a guest that holds `base`: the delta, computed once."""
        key = (base.digest, ruleset.digest)
        if key not in self._deltas:
            self._remember(key, difference(base, ruleset))
        delta = self._deltas[key]
        return ruleset if delta is None else replace(delta, generation=ruleset.generation)

    def keep(self, used: Collection[str]) -> None:
        """Forget what nobody has use for: all but these digests and the latest others."""
        unused = [digest for digest in self._whole if digest not in used]
        for digest in unused[: max(0, len(unused) - MAX_UNUSED)]:
            del self._whole[digest]

    def _remember(self, key: tuple[str, str], delta: RulesetDelta | None) -> None:
        self._deltas[key] = delta
        while len(self._deltas) > MAX_DELTAS:
            del self._deltas[next(iter(self._deltas))]
