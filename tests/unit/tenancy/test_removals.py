# SPDX-License-Identifier: Apache-2.0
"""Which removals of tenants are trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.removals import Distrust, Removals, evaluate, is_distrusted

NOTHING: frozenset[str] = frozenset()
SOURCES = st.frozensets(st.sampled_from("abcdefgh"))
DISTRUST = st.none() | st.builds(Distrust, st.just(5.0), SOURCES)


def sources(names: str) -> frozenset[str]:
    return frozenset(names)


@pytest.mark.parametrize(
    ("known", "missing", "expected"),
    [
        (0, 0, False),
        (1, 0, False),
        (1, 1, True),  # the only one, which looks the same as a failed source
        (2, 1, False),
        (2, 2, True),
        (3, 1, False),
        (3, 2, True),
        (4, 2, False),  # exactly half
        (4, 3, True),
        (5_000, 2_500, False),
        (5_000, 2_501, True),
        (5_000, 5_000, True),
    ],
)
def test_readings_without_most_tenants_are_distrusted(known: int, missing: int, expected: bool) -> None:
    assert is_distrusted(known, missing) is expected


@pytest.mark.parametrize(
    ("served", "present", "deleted", "before", "expected"),
    [
        # One of several is removed at once.
        ("abc", "ab", "", None, Removals()),
        # An empty reading retains all.
        ("abc", "", "", None, Removals(sources("abc"), Distrust(9.0, sources("abc")))),
        ("a", "", "", None, Removals(sources("a"), Distrust(9.0, sources("a")))),
        # Confirmed deletions apply, and the rest is decided on its own.
        ("a", "", "a", None, Removals()),
        ("abc", "", "abc", None, Removals()),
        ("abc", "", "a", None, Removals(sources("bc"), Distrust(9.0, sources("bc")))),
        ("abc", "a", "bc", None, Removals()),
        # It continues from its begin.
        (
            "abc",
            "",
            "",
            Distrust(5.0, sources("abc")),
            Removals(sources("abc"), Distrust(5.0, sources("abc"))),
        ),
        # Tenants that were added meanwhile do not make it plausible, and are retained with the others.
        (
            "abcdefg",
            "cdefg",
            "",
            Distrust(5.0, sources("abc")),
            Removals(sources("ab"), Distrust(5.0, sources("abc"))),
        ),
        (
            "abcd",
            "c",
            "",
            Distrust(5.0, sources("abc")),
            Removals(sources("abd"), Distrust(5.0, sources("abc"))),
        ),
        # Enough are back, so the other removals are trusted.
        ("abc", "ab", "", Distrust(5.0, sources("abc")), Removals()),
        ("abc", "abc", "", Distrust(5.0, sources("abc")), Removals()),
        # The old ones are back and all the new ones are lost: distrusted anew.
        (
            "abcdef",
            "a",
            "",
            Distrust(5.0, sources("a")),
            Removals(sources("bcdef"), Distrust(9.0, sources("abcdef"))),
        ),
        ("", "", "", None, Removals()),
        ("", "ab", "", None, Removals()),
        ("", "", "", Distrust(5.0, sources("abc")), Removals()),
    ],
)
def test_each_reading_retains_or_removes(
    served: str, present: str, deleted: str, before: Distrust | None, expected: Removals
) -> None:
    assert evaluate(sources(served), sources(present), sources(deleted), before, 9.0) == expected


@given(SOURCES, SOURCES, SOURCES, DISTRUST)
def test_only_missing_unconfirmed_tenants_are_retained(
    served: frozenset[str], present: frozenset[str], deleted: frozenset[str], before: Distrust | None
) -> None:
    found = evaluate(served, present, deleted, before, 9.0)
    assert found.retained in (NOTHING, served - present - deleted)
    assert (found.distrust is None) is not bool(found.retained)


@given(SOURCES, SOURCES, SOURCES, DISTRUST)
def test_the_same_reading_again_changes_nothing(
    served: frozenset[str], present: frozenset[str], deleted: frozenset[str], before: Distrust | None
) -> None:
    first = evaluate(served, present, deleted, before, 9.0)
    after = (served & present) | first.retained
    assert evaluate(after, present, deleted, first.distrust, 10.0) == first


@given(SOURCES, SOURCES, DISTRUST)
def test_an_empty_reading_removes_confirmed_tenants_only(
    served: frozenset[str], deleted: frozenset[str], before: Distrust | None
) -> None:
    assert evaluate(served, NOTHING, deleted, before, 9.0).retained == served - deleted


@given(SOURCES, SOURCES, SOURCES)
def test_added_tenants_release_none(
    served: frozenset[str], present: frozenset[str], added: frozenset[str]
) -> None:
    first = evaluate(served, present, NOTHING, None, 9.0)
    new = added - served
    later = (served & present) | first.retained | new
    assert evaluate(later, present | new, NOTHING, first.distrust, 10.0).retained == first.retained
