# SPDX-License-Identifier: Apache-2.0
"""Objects with arbitrary JSON in the place of any one of their fields."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.refusal_list import MAX_REFUSALS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Of every value below."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, below in pairs:
        yield (*at, name)
        yield from paths(below, (*at, name))


def changed(*objects: Object) -> st.SearchStrategy[Object]:
    """One of the objects, with one value replaced."""
    places = [(each, path) for each in objects for path in paths(each)]
    return st.builds(_replace, st.sampled_from(places), JSON)


def _replace(place: tuple[Object, tuple[str | int, ...]], value: Any) -> Object:
    found = copy.deepcopy(place[0])
    target: Any = found
    for name in place[1][:-1]:
        target = target[name]
    target[place[1][-1]] = value
    return found


def are_refusals(found: tuple[Refusal, ...]) -> bool:
    """Whether they can be shown: bounded, printable, each with a path and a message."""
    return len(found) <= MAX_REFUSALS and all(
        each.path and each.message and (each.path + each.message).isprintable() and len(each.message) < 400
        for each in found
    )
