# SPDX-License-Identifier: Apache-2.0
"""The parameters of each endpoint, and that written queries parse to the same values."""

from urllib.parse import parse_qsl, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnagent.core.query import (
    MAX_PARAMETERS,
    Options,
    QueryError,
    parse_log_options,
    parse_page_options,
    parse_stream_options,
    render_query,
    split_query,
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", []),
        ("a=b", [("a", "b")]),
        ("a=", [("a", "")]),
        ("a=b&a=c", [("a", "b"), ("a", "c")]),
        ("a=b=c", [("a", "b=c")]),
        ("a=x+y%20z", [("a", "x y z")]),
        ("a=%2B%26%3D%25", [("a", "+&=%")]),
        ("a=%c3%a9%FF", [("a", "\xc3\xa9\xff")]),
        ("a%62=c", [("a%62", "c")]),  # names are not decoded: none that is known needs it
    ],
)
def test_splitting(query: str, expected: list[tuple[str, str]]) -> None:
    assert split_query(query) == expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("&", "malformed-query"),
        ("a=b&", "malformed-query"),
        ("&a=b", "malformed-query"),
        ("a=b&&c=d", "malformed-query"),
        ("a", "malformed-query"),
        ("=b", "malformed-query"),
        ("a=b;c=d", "malformed-query"),
        ("a=%", "malformed-query"),
        ("a=%4", "malformed-query"),
        ("a=%zz", "malformed-query"),
        ("a=+\x80", "malformed-query"),
        ("a=\u20ac", "malformed-query"),
        ("a=%00", "malformed-query"),
        ("a=\0", "malformed-query"),
        ("&".join(["a=b"] * (MAX_PARAMETERS + 1)), "too-many-parameters"),
    ],
)
def test_refused_queries(query: str, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        split_query(query)
    assert (caught.value.status, caught.value.reason) == (400, reason)


_ESCAPES = [f"%{byte:02x}" for byte in range(1, 256)] + [f"%{byte:02X}" for byte in range(1, 256)]


@given(st.lists(st.sampled_from([*_ESCAPES, *"aZ09._~!$'()*,=:@/?%-".replace("%", ""), "+"])))
def test_values_decode_as_in_the_standard_library(pieces: list[str]) -> None:
    """Quoted-printable is what decodes them, which has soft line ends and blanks that are dropped."""
    value = "".join(pieces)
    expected = unquote_to_bytes(value.replace("+", " ")).decode("latin-1")
    assert split_query(f"command={value}") == [("command", expected)]


def test_as_many_parameters_as_are_allowed() -> None:
    assert len(split_query("&".join(["a=b"] * MAX_PARAMETERS))) == MAX_PARAMETERS


# ---- containerLogs


@pytest.mark.parametrize(
    ("query", "options", "is_follow"),
    [
        ("", (), False),
        ("follow=true", (("follow", "true"),), True),
        ("follow=1", (("follow", "1"),), True),
        ("follow=false", (("follow", "false"),), False),
        ("follow=0", (("follow", "0"),), False),
        (
            "previous=true&timestamps=1&sinceSeconds=60&tailLines=0&limitBytes=1&stream=Stderr",
            (
                ("previous", "true"),
                ("timestamps", "1"),
                ("sinceSeconds", "60"),
                ("tailLines", "0"),
                ("limitBytes", "1"),
                ("stream", "Stderr"),
            ),
            False,
        ),
        ("sinceTime=2026-11-20T16%3A00%3A00Z", (("sinceTime", "2026-11-20T16:00:00Z"),), False),
        (
            "sinceTime=2026-11-20T16:00:00.123456789%2B05:30",
            (("sinceTime", "2026-11-20T16:00:00.123456789+05:30"),),
            False,
        ),
        ("tail=all", (), False),
        ("tail=7", (("tailLines", "7"),), False),
        ("stream=All", (("stream", "All"),), False),
        ("stream=Stdout", (("stream", "Stdout"),), False),
    ],
)
def test_log_options(query: str, options: Options, is_follow: bool) -> None:
    assert parse_log_options(query) == (options, is_follow)


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("Follow=true", 400, "unknown-parameter"),
        ("container=app", 400, "unknown-parameter"),
        ("insecureSkipTLSVerifyBackend=true", 400, "unknown-parameter"),
        ("foll%6fw=true", 400, "unknown-parameter"),
        ("follow=true&follow=true", 400, "repeated-parameter"),
        ("follow=", 400, "malformed-parameter"),
        ("follow=yes", 400, "malformed-parameter"),
        ("follow=True", 400, "malformed-parameter"),
        ("follow=TRUE", 400, "malformed-parameter"),
        ("tailLines=-1", 400, "malformed-parameter"),
        ("tailLines=+1", 400, "malformed-parameter"),
        ("tailLines=%2B1", 400, "malformed-parameter"),
        ("tailLines=1.0", 400, "malformed-parameter"),
        ("tailLines=1_0", 400, "malformed-parameter"),
        ("tailLines=%D9%A3", 400, "malformed-parameter"),  # a digit to str.isdigit
        ("tailLines=9999999999999999999", 400, "malformed-parameter"),
        ("tail=some", 400, "malformed-parameter"),
        ("sinceSeconds=0", 400, "malformed-parameter"),
        ("limitBytes=0", 400, "malformed-parameter"),
        ("stream=stdout", 400, "malformed-parameter"),
        ("sinceTime=yesterday", 400, "malformed-parameter"),
        ("sinceTime=2026-11-20", 400, "malformed-parameter"),
        ("sinceTime=2026-13-20T16:00:00Z", 400, "malformed-parameter"),
        ("sinceTime=2026-11-20T24:00:00Z", 400, "malformed-parameter"),
        ("sinceTime=2026-11-20T16:00:00", 400, "malformed-parameter"),
        ("sinceTime=2026-11-20T16:00:00z", 400, "malformed-parameter"),
        ("sinceSeconds=1&sinceTime=2026-11-20T16:00:00Z", 422, "conflicting-parameters"),
        ("tail=1&tailLines=1", 422, "conflicting-parameters"),
    ],
)
def test_refused_log_options(query: str, status: int, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_log_options(query)
    assert (caught.value.status, caught.value.reason) == (status, reason)


# ---- exec, attach, portForward


@pytest.mark.parametrize(
    ("query", "is_exec", "is_forward", "expected"),
    [
        ("", True, False, ()),
        (
            "command=sh&command=-c&command=echo+%24HOME&input=1&output=1&error=0&tty=false",
            True,
            False,
            (
                ("command", "sh"),
                ("command", "-c"),
                ("command", "echo $HOME"),
                ("input", "1"),
                ("output", "1"),
                ("error", "0"),
                ("tty", "false"),
            ),
        ),
        ("command=", True, False, (("command", ""),)),
        ("input=1&tty=1", False, False, (("input", "1"), ("tty", "1"))),
        ("", False, True, ()),
        ("port=80&port=80&port=65535", False, True, (("port", "80"), ("port", "80"), ("port", "65535"))),
    ],
)
def test_stream_options(query: str, is_exec: bool, is_forward: bool, expected: Options) -> None:
    assert parse_stream_options(query, is_exec=is_exec, is_forward=is_forward) == expected


@pytest.mark.parametrize(
    ("query", "is_exec", "is_forward", "reason"),
    [
        ("stdin=1", True, False, "unknown-parameter"),
        ("port=80", True, False, "unknown-parameter"),
        ("command=ls", False, False, "unknown-parameter"),
        ("command=ls", False, True, "unknown-parameter"),
        ("input=1", False, True, "unknown-parameter"),
        ("tty=1&tty=1", True, False, "repeated-parameter"),
        ("tty=1&tty=0", False, False, "repeated-parameter"),
        ("tty=t", True, False, "malformed-parameter"),
        ("port=0", False, True, "malformed-parameter"),
        ("port=65536", False, True, "malformed-parameter"),
        ("port=http", False, True, "malformed-parameter"),
        ("port=-1", False, True, "malformed-parameter"),
        ("command=%00", True, False, "malformed-query"),
        ("command", True, False, "malformed-query"),
    ],
)
def test_refused_stream_options(query: str, is_exec: bool, is_forward: bool, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_stream_options(query, is_exec=is_exec, is_forward=is_forward)
    assert (caught.value.status, caught.value.reason) == (400, reason)


# ---- stats/summary


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", False),
        ("only_cpu_and_memory=true", True),
        ("only_cpu_and_memory=1", True),
        ("only_cpu_and_memory=false", False),
        ("only_cpu_and_memory=0", False),
    ],
)
def test_page_options(query: str, expected: bool) -> None:
    assert parse_page_options(query) is expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("only_cpu=true", "unknown-parameter"),
        ("only_cpu_and_memory=yes", "malformed-parameter"),
        ("only_cpu_and_memory=true&only_cpu_and_memory=false", "repeated-parameter"),
        ("only_cpu_and_memory", "malformed-query"),
    ],
)
def test_refused_page_options(query: str, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_page_options(query)
    assert (caught.value.status, caught.value.reason) == (400, reason)


# ---- there and back


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ""),
        ((("follow", "true"),), "?follow=true"),
        ((("command", "a b"), ("command", "&=+%#?/")), "?command=a+b&command=%26%3D%2B%25%23%3F%2F"),
        ((("command", "\xe9\xff\n-_.~"),), "?command=%E9%FF%0A-_.~"),
        ((("command", ""),), "?command="),
    ],
)
def test_rendering(options: Options, expected: str) -> None:
    assert render_query(options) == expected


_WORDS = st.text(st.characters(min_codepoint=1, max_codepoint=255))


@given(st.lists(_WORDS, max_size=10))
def test_command_lines_round_trip(words: list[str]) -> None:
    options = tuple(("command", word) for word in words)
    rendered = render_query(options).removeprefix("?")
    assert parse_stream_options(rendered, is_exec=True, is_forward=False) == options
    # And a reader that is none of ours takes it the same way.
    theirs = parse_qsl(rendered, keep_blank_values=True, encoding="latin-1")
    assert tuple(theirs) == options


@given(st.text() | st.from_regex(r"([a-z]{1,9}=[a-z%0-9+;&]{0,9}&?){0,6}", fullmatch=True))
def test_any_query_is_parsed_or_refused(query: str) -> None:
    try:
        pairs = split_query(query)
    except QueryError:
        return
    assert all(key and "\0" not in value for key, value in pairs)
