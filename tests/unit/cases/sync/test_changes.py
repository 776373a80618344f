# SPDX-License-Identifier: Apache-2.0
"""Differences of objects, as cases write them."""

from typing import Any

import pytest

from tests.cases.sync.changes import changes, differs
from tests.cases.sync.placeholders import ANY


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [(["a", "b"], 1, 2)]),
        ({"a": {"b": 1}}, {}, [(["a"], {"b": 1}, None)]),
        ({"a": [1, {"b": 1}]}, {"a": [1, {"b": 2}]}, [(["a", 1, "b"], 1, 2)]),
        ({"a": [1]}, {"a": [1, 2]}, [(["a"], [1], [1, 2])]),
        (None, {"a": 1}, [([], None, {"a": 1})]),
    ],
)
def test_changes_have_the_path_of_each_field(was: Any, now: Any, expected: list[Any]) -> None:
    assert [(each["path"], each["was"], each["now"]) for each in changes(was, now)] == expected


@pytest.mark.parametrize(
    ("expected", "actual", "count"),
    [
        ({"a": ANY}, {"a": 30001}, 0),
        ({"a": ANY}, {}, 1),
        ({"a": f"x-{ANY}"}, {"a": "x-7"}, 0),
        ({"a": f"x-{ANY}"}, {"a": "y-7"}, 1),
        ([1, 2], [1], 1),
        ({"a": 1}, {"a": 1, "b": 2}, 1),
    ],
)
def test_any_matches_what_a_server_chose(expected: Any, actual: Any, count: int) -> None:
    assert len(list(differs(expected, actual))) == count
