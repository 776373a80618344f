# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import io
import json
from collections.abc import Callable

import pytest
import yaml

from vcnode.output import Output
from vcnode.terminal import Terminal, ToolError, columns, day_left, duration, printable, words

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


@pytest.mark.parametrize(("output", "load"), [(Output.JSON, json.loads), (Output.YAML, yaml.safe_load)])
def test_documents_hold_no_control_characters(output: Output, load: Callable[[str], object]) -> None:
    out = io.StringIO()
    terminal = Terminal(out, io.StringIO(), NOW, output)
    assert terminal.is_document
    terminal.document("GuestList", {"items": [{"a": "\x1b\u202e"}]})
    assert load(out.getvalue()) == {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "GuestList",
        "items": [{"a": "\x1b\u202e"}],
    }
    assert not {"\x1b", "\u202e"} & set(out.getvalue())


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML])
def test_deep_documents_are_an_error(output: Output) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ToolError, match="GuestList: the daemon's answer is nested too deeply"):
        Terminal(io.StringIO(), io.StringIO(), NOW, output).document("GuestList", {"items": deep})


@pytest.mark.parametrize(("state", "text"), [("synced", "synced"), ("notSynced", "not synced"), ("", "")])
def test_words_splits_camel_case(state: str, text: str) -> None:
    assert words(state) == text
