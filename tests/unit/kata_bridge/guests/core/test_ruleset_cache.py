# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.guests.core.ruleset_cache import MAX_UNUSED, RulesetCache
from ruleset.delta import BaseMismatch, RulesetDelta, difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend


def _ruleset(generation: int, count: int) -> Ruleset:
    rules = tuple(
        f"-d 10.0.0.{n}/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.0.1:80"
        for n in range(count)
    )
    objects = {"nat/VCN-SERVICES": rules, "nat/OUTPUT": ("-j VCN-SERVICES",)}
    return make_ruleset(generation, (Document(Family.IPV4, Backend.IPTABLES, objects),))


def _delta(old: Ruleset, new: Ruleset) -> RulesetDelta:
    delta = difference(old, new)
    assert delta is not None
    return delta


A, B = _ruleset(1, 2), _ruleset(2, 3)


def test_rulesets_of_one_digest_share_their_documents() -> None:
    rulesets = RulesetCache()
    first = rulesets.intern(A)
    again = rulesets.intern(_ruleset(5, 2))
    assert again == Ruleset(5, A.digest, A.documents)
    assert again.documents is first.documents
    assert len(rulesets) == 1


def test_delta_is_composed_once_and_forwarded_unchanged() -> None:
    rulesets = RulesetCache()
    base, delta = rulesets.intern(A), _delta(A, B)
    new = rulesets.compose(base, delta)
    assert new == B
    assert rulesets.compose(rulesets.intern(A), delta).documents is new.documents
    assert rulesets.payload(base, new) == delta


def test_delta_to_the_current_digest_changes_nothing() -> None:
    rulesets = RulesetCache()
    assert rulesets.compose(B, _delta(A, B)).digest == B.digest


def test_delta_of_another_base_is_rejected() -> None:
    rulesets = RulesetCache()
    rulesets.compose(A, _delta(A, B))
    with pytest.raises(BaseMismatch):
        rulesets.compose(_ruleset(3, 9), _delta(A, B))


def test_delta_between_two_cached_rulesets_is_computed() -> None:
    rulesets = RulesetCache()
    assert rulesets.payload(A, B) == _delta(A, B)
    later = Ruleset(7, B.digest, B.documents)
    assert rulesets.payload(A, later).generation == 7
    assert rulesets.payload(A, A) is A


def test_unused_rulesets_are_evicted_but_for_the_latest() -> None:
    rulesets = RulesetCache()
    made = [rulesets.intern(_ruleset(n, n)) for n in range(1, 101)]
    rulesets.evict_unused({made[0].digest})
    assert len(rulesets) == MAX_UNUSED + 1
    cached = [n for n in range(1, 101) if rulesets.intern(_ruleset(n, n)) is made[n - 1]]
    assert cached == [1, *range(101 - MAX_UNUSED, 101)]
