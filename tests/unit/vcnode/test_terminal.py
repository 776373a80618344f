# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import io
import json

import pytest

from vcnode.terminal import Terminal, columns, day_left, duration, printable, words

NOW = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)


def test_printable_replaces_control_characters() -> None:
    assert printable("a\x1b[31mb\nc\u202ed é") == "a\ufffd[31mb\ufffdc\ufffdd é"


def test_columns_are_aligned_but_for_the_last() -> None:
    assert columns([("A", "LONGER", "X"), ("aaa", "b", "c d"), ("e", "f")]) == [
        "A    LONGER  X",
        "aaa  b       c d",
        "e    f",
    ]
    assert columns([]) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (86399, "23 h 59 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_day_left_is_the_distance() -> None:
    assert day_left(NOW + dt.timedelta(days=10, hours=1), NOW) == "2027-03-11 (in 10 days)"
    assert day_left(NOW - dt.timedelta(days=2), NOW) == "2027-02-27 (expired 2 days ago)"


def test_terminal_writes_one_line_each() -> None:
    out, err = io.StringIO(), io.StringIO()
    terminal = Terminal(out, err, NOW)
    terminal.line("two\nlines")
    terminal.warn("no\r")
    assert out.getvalue() == "two\ufffdlines\n"
    assert err.getvalue() == "vcnode: no\ufffd\n"
    out.truncate(0)
    out.seek(0)
    terminal.json([{"a": "\x1b"}])
    assert json.loads(out.getvalue()) == [{"a": "\x1b"}]
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize(("state", "text"), [("synced", "synced"), ("notSynced", "not synced"), ("", "")])
def test_words_splits_camel_case(state: str, text: str) -> None:
    assert words(state) == text
