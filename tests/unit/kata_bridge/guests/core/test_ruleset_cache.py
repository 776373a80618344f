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


def test_what_says_the_same_is_kept_once() -> None:
    rulesets = RulesetCache()
    first = rulesets.shared(A)
    again = rulesets.shared(_ruleset(5, 2))
    assert again == Ruleset(5, A.digest, A.documents)
    assert again.documents is first.documents
    assert len(rulesets) == 1


def test_a_delta_is_composed_once_for_all_guests_and_sent_on_as_it_came() -> None:
    rulesets = RulesetCache()
    base, delta = rulesets.shared(A), _delta(A, B)
    new = rulesets.composed(base, delta)
    assert new == B
    assert rulesets.composed(rulesets.shared(A), delta).documents is new.documents
    assert rulesets.between(base, new) == delta


def test_a_delta_that_came_to_what_is_there_changes_nothing() -> None:
    rulesets = RulesetCache()
    assert rulesets.composed(B, _delta(A, B)).digest == B.digest


def test_a_delta_of_another_base_is_refused() -> None:
    rulesets = RulesetCache()
    rulesets.composed(A, _delta(A, B))
    with pytest.raises(BaseMismatch):
        rulesets.composed(_ruleset(3, 9), _delta(A, B))


def test_between_two_that_nobody_compared_yet_the_delta_is_computed() -> None:
    rulesets = RulesetCache()
    assert rulesets.between(A, B) == _delta(A, B)
    later = Ruleset(7, B.digest, B.documents)
    assert rulesets.between(A, later).generation == 7
    assert rulesets.between(A, A) is A


def test_what_nobody_uses_is_forgotten_but_for_the_latest() -> None:
    rulesets = RulesetCache()
    made = [rulesets.shared(_ruleset(n, n)) for n in range(1, 101)]
    rulesets.keep({made[0].digest})
    assert len(rulesets) == MAX_UNUSED + 1
    assert rulesets.get(made[0].digest) is made[0]
    assert rulesets.get(made[50].digest) is None
    assert rulesets.get(made[99].digest) is made[99]
