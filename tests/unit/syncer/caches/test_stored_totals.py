# SPDX-License-Identifier: Apache-2.0
"""What each tenant has in the super cluster, whatever the order of objects, owners and ends."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from syncer.caches.stored_totals import StoredTotals, Totals

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(["Pod", "Secret"]), st.integers(1, 9)),
        st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(["red", "blue", None])),
    ),
    max_size=30,
)


@given(_STEPS)
def test_totals_are_those_of_the_owned_namespaces(steps: list[tuple[object, ...]]) -> None:
    totals = StoredTotals()
    there: list[tuple[str, str, int]] = []
    owners: dict[str, str | None] = {}
    for step in steps:
        match step:
            case (str(namespace), str(kind), int(size)):
                # Of three of a size one is there already, and goes.
                if (namespace, kind, size) in there:
                    there.remove((namespace, kind, size))
                    totals.add(namespace, kind, -1, -size)
                else:
                    there.append((namespace, kind, size))
                    totals.add(namespace, kind, 1, size)
            case (str(namespace), owner):
                owners[namespace] = owner if isinstance(owner, str) else None
                totals.own(namespace, owners[namespace])
    for key in ("red", "blue"):
        mine = [each for each in there if owners.get(each[0]) == key]
        expected = Totals(sum(each[2] for each in mine), Counter(each[1] for each in mine), objects=len(mine))
        assert totals.of(key) == expected
