# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import io
import json
from collections.abc import Callable

import pytest
import yaml

from vcnode.output import Output
from vcnode.terminal import (
    Style,
    Styled,
    Terminal,
    ToolError,
    columns,
    day_left,
    duration,
    indented,
    printable,
    styled,
    table,
    words,
    wrapped,
)

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


# ---- a terminal


def test_last_column_folds_at_the_width() -> None:
    rows = [("source pods", "age 0 s"), ("PROBLEM", "the kubelet refuses vn-agent's certificate: renew it")]
    assert columns(rows, 44) == [
        "source pods  age 0 s",
        "PROBLEM      the kubelet refuses vn-agent's",
        "             certificate: renew it",
    ]
    assert columns(rows, 30) == columns(rows), "less than is worth it"


def test_text_folds_with_an_indent() -> None:
    assert wrapped("vn-agent: NOT READY: kubelet (/run/vcnode/x.sock)", 40, "    ") == [
        "vn-agent: NOT READY: kubelet",
        "    (/run/vcnode/x.sock)",
    ]
    assert wrapped(" " * 99, 40) == [""]


MESSAGE = "the guest is well, and so on for long"


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (None, ["POD                    STATE    WHY", f"shop/web-7d4f9c-abcde  current  {MESSAGE}"]),
        (
            60,
            [
                "POD                    STATE    WHY",
                "shop/web-7d4f9c-abcde  current  the guest is well, and so o…",
            ],
        ),
        (50, ["POD              STATE    WHY", "shop/we…c-abcde  current  the guest is well, and…"]),
        (1, ["POD         STATE    WHY", "shop/…bcde  current  the guest is well, and…"]),
    ],
)
def test_table_cuts_the_widest_cells(width: int | None, expected: list[str]) -> None:
    rows = [("POD", "STATE", "WHY"), ("shop/web-7d4f9c-abcde", "current", MESSAGE)]
    assert table(rows, width) == expected


def test_states_are_coloured_where_they_end_up() -> None:
    bad, good = styled("BAD", Style.BAD, ": no key"), styled("ok", Style.GOOD)
    lines = [indented(line) for line in table([("a", good, "x"), ("b", bad, "x")])]
    assert lines == ["  a  ok           x", "  b  BAD: no key  x"]
    assert coloured(*lines) == "  a  \x1b[32mok\x1b[m           x\n  b  \x1b[31mBAD\x1b[m: no key  x\n"


def test_folded_and_cut_states_keep_their_colour() -> None:
    state = styled("notInjectable", Style.BAD, " and so on, for more than a line")
    assert coloured(*wrapped(state, 30)).startswith("\x1b[31mnotInjectable\x1b[m and so")
    cut = table([("a" * 30, "b", styled("unreachable", Style.BAD))], 15)
    assert coloured(*cut).count("\x1b[31m") == coloured(*cut).count("\x1b[m") == 1


def test_colours_need_a_terminal_that_has_them() -> None:
    out = io.StringIO()
    Terminal(out, io.StringIO(), NOW).line(styled("BAD", Style.BAD))
    assert out.getvalue() == "BAD\n"


def test_no_text_from_outside_colours_a_line() -> None:
    text = styled("a\x1b[31mb", Style.BAD)
    assert coloured(*columns([(text, "c")])) == "\x1b[31ma\ufffd[31mb\x1b[m  c\n"
    assert coloured(Styled("a\x1b[31mb")) == "a\ufffd[31mb\n"


def coloured(*lines: str) -> str:
    out = io.StringIO()
    Terminal(out, io.StringIO(), NOW, has_colors=True).lines(lines)
    return out.getvalue()
