# SPDX-License-Identifier: Apache-2.0
import random

from hypothesis import given
from hypothesis import strategies as st

from syncer.core.plan import Side
from syncer.tenant.deletions import SyncKey
from syncer.tenant.waits import ANY, MAX_NAMES, MAX_NAMESPACES, Lookup, Waits

A, B = ("Endpoints", "web", "a"), ("Endpoints", "web", "b")
POD: SyncKey = ("Pod", "web", "p")


def _pods(count: int) -> list[Lookup]:
    return [(Side.SUPER, "Pod", "web", f"p{number}") for number in range(count)]


def test_what_changes_wakes_who_looked_at_it_once() -> None:
    waits = Waits()
    waits.note(A, [(Side.SUPER, *POD), (Side.TENANT, "Service", "web", "a")])
    waits.note(B, [(Side.SUPER, "Pod", "web", ANY)])
    assert waits.wake(Side.TENANT, POD) == frozenset()
    assert waits.wake(Side.SUPER, POD) == {A, B}
    assert (waits.is_woken(A), waits.is_woken(B)) == (True, True)
    # Both are planned again before anything else of theirs matters.
    assert waits.wake(Side.TENANT, ("Service", "web", "a")) == frozenset()
    waits.note(A, [])
    waits.forget(B)
    assert (waits.is_woken(A), waits.is_woken(B), len(waits), waits.lookups) == (False, False, 0, 0)


def test_an_object_that_names_thousands_looks_at_all() -> None:
    waits = Waits()
    waits.note(A, _pods(MAX_NAMES))
    assert waits.lookups == MAX_NAMES
    waits.note(A, _pods(MAX_NAMES + 1))
    assert waits.lookups == 1
    assert waits.wake(Side.SUPER, ("Pod", "web", "another")) == {A}
    waits.note(A, [(Side.TENANT, "Service", f"n{number}", "s") for number in range(MAX_NAMESPACES + 1)])
    assert waits.lookups == 1
    assert waits.wake(Side.TENANT, ("Service", "elsewhere", "t")) == {A}


def test_a_tenants_lookups_are_bounded_and_none_is_lost() -> None:
    waits = Waits(most=100, most_woken=50)
    items = [("Endpoints", "web", str(number)) for number in range(50)]
    for each in items:
        waits.note(each, _pods(10))
    # The first ten have all their names, the others one that is any.
    assert waits.lookups <= 100 + len(items)
    assert waits.wake(Side.SUPER, ("Pod", "web", "p9")) == set(items)
    assert waits.lookups == 0


def test_beyond_the_bound_cluster_scoped_objects_count_by_name() -> None:
    """Else each change of a Node has the pods of all Nodes planned, and of a Namespace all that is in any."""
    waits = Waits(most=0, most_woken=50)
    items = [("Pod", "web", str(number)) for number in range(50)]
    for number, each in enumerate(items):
        node = (Side.TENANT, "Node", "", f"n{number % 5}")
        waits.note(each, [node, (Side.SUPER, "Namespace", "", "web"), *_pods(1)])
    assert waits.lookups == 3 * len(items)
    assert waits.wake(Side.SUPER, ("Namespace", "", "another")) == frozenset()
    assert waits.wake(Side.TENANT, ("Node", "", "n3")) == set(items[3::5])
    assert waits.wake(Side.SUPER, ("Pod", "web", "another")) == set(items) - set(items[3::5])


def test_nothing_is_left_of_any_sequence() -> None:
    chance = random.Random(7)  # noqa: S311 - a repeatable one
    waits, items = Waits(most=40), [("Pod", "web", str(number)) for number in range(10)]
    for _ in range(2_000):
        item = chance.choice(items)
        match chance.randrange(3):
            case 0:
                waits.note(item, chance.sample(_pods(100), chance.randrange(1, 90)))
            case 1:
                waits.forget(item)
            case _:
                waits.wake(Side.SUPER, ("Pod", "web", f"p{chance.randrange(100)}"))
    for each in items:
        waits.forget(each)
    assert (len(waits), waits.lookups, waits._waiters, waits._woken) == (0, 0, {}, set())  # noqa: SLF001


def test_many_are_woken_in_pieces() -> None:
    waits = Waits()
    items: list[SyncKey] = [("Pod", "web", str(number)) for number in range(1_000)]
    lookups = [(Side.TENANT, *A), (Side.TENANT, *B)]
    for each in items:
        waits.note(each, lookups)
    assert waits.wake(Side.TENANT, A) == frozenset()
    assert waits.has_pending
    assert all(waits.is_woken(each) for each in items)
    waits.note(items[0], lookups)  # it was planned meanwhile
    assert not waits.is_woken(items[0])
    assert waits.wake(Side.TENANT, B) == frozenset()
    found = []
    while piece := waits.take_pending(300):
        assert len(piece) <= 300
        found += piece
    assert sorted(found) == sorted(items)
    assert (waits.has_pending, waits.lookups, len(waits)) == (False, 0, 0)


_NAMES = st.integers(0, 2).map(lambda number: ("Pod", "web", f"p{number}"))
_ACTS: st.SearchStrategy[tuple[str, SyncKey, list[SyncKey]]] = st.one_of(
    st.tuples(st.just("note"), _NAMES, st.lists(_NAMES, min_size=1, max_size=3)),
    st.tuples(st.just("wake"), _NAMES, st.just([])),
    st.tuples(st.just("forget"), _NAMES, st.just([])),
    st.tuples(st.just("take"), _NAMES, st.just([])),
)


@given(st.lists(_ACTS, max_size=40))
def test_in_pieces_the_same_are_woken(acts: list[tuple[str, SyncKey, list[SyncKey]]]) -> None:
    at_once, pieces = Waits(most_woken=100), Waits(most_woken=1)
    due, returned = set[SyncKey](), set[SyncKey]()
    for act, item, names in acts:
        match act:
            case "note":
                for each in (at_once, pieces):
                    each.note(item, [(Side.SUPER, *name) for name in names])
            case "wake":
                due |= at_once.wake(Side.SUPER, item)
                returned |= pieces.wake(Side.SUPER, item)
            case "forget":
                at_once.forget(item)
                pieces.forget(item)
            case _:
                returned |= set(pieces.take_pending(1))
        if act in ("note", "forget"):
            due.discard(item)
            returned.discard(item)
        of_each = [("Pod", "web", f"p{number}") for number in range(3)]
        assert [at_once.is_woken(each) for each in of_each] == [pieces.is_woken(each) for each in of_each]
    while pieces.has_pending:
        returned |= set(pieces.take_pending(1))
    assert returned == due
    assert pieces.lookups == at_once.lookups
