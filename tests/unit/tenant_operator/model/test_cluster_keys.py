# SPDX-License-Identifier: Apache-2.0
"""The index finds what a look at all keys finds, and looks at few of them."""

import itertools
import random

import pytest

from tenancy import names
from tenant_operator.model.cluster_keys import ClusterKeys

LONG = "a" * names.HASHED_PREFIX_CHARS
KEYS = [
    *("a", "a-b", "a-b-c", "a-bc", "ab", "ab-c", "b", "b-a", "a-", "a--b", "aa-b"),
    *(LONG[1:], LONG, f"{LONG}b", f"{LONG}-b", f"{LONG}bc", f"{LONG[1:]}b", f"{LONG[1:]}-"),
]


def index_of(keys: list[str]) -> ClusterKeys:
    found = ClusterKeys()
    for key in keys:
        found.add(key, ("tenants", key))
    return found


@pytest.mark.parametrize("key", KEYS)
def test_those_that_overlap_are_found(key: str) -> None:
    found = sorted(index_of(KEYS).overlapping(key))
    assert found == [("tenants", each) for each in sorted(KEYS) if names.overlaps(key, each)]


def test_two_of_one_key_are_both_found() -> None:
    index = index_of(["a"])
    index.add("a", ("others", "a"))
    assert sorted(index.overlapping("a")) == [("others", "a"), ("tenants", "a")]
    index.remove("a", ("tenants", "a"))
    index.remove("a", ("tenants", "a"))
    assert sorted(index.overlapping("a")) == [("others", "a")]


def test_random_keys_come_and_go() -> None:
    chance = random.Random(37)  # noqa: S311 - a seed
    every = ["".join(each) for size in range(1, 6) for each in itertools.product("ab-", repeat=size)]
    index, held = ClusterKeys(), set[str]()
    for _ in range(2_000):
        key = chance.choice(every)
        if key in held:
            held.discard(key)
            index.remove(key, ("tenants", key))
        else:
            held.add(key)
            index.add(key, ("tenants", key))
        asked = chance.choice(every)
        expected = sorted(each for each in held if names.overlaps(asked, each))
        assert sorted(each for _, each in index.overlapping(asked)) == expected


def test_a_thousand_others_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of([f"tenants-{at:06x}-x" for at in range(1_000)])
    looks: list[str] = []

    def overlaps(_: str, other: str) -> bool:
        looks.append(other)
        return True

    monkeypatch.setattr(names, "overlaps", overlaps)
    assert list(index.overlapping("tenants-0000ff-x")) == [("tenants", "tenants-0000ff-x")]
    assert looks == ["tenants-0000ff-x"]
