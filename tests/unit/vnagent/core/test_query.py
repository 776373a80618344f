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
        ("a%62=c", [("ab", "c")]),
        # As Go reads them.
        ("&", []),
        ("a=b&", [("a", "b")]),
        ("&a=b", [("a", "b")]),
        ("a=b&&c=d", [("a", "b"), ("c", "d")]),
        ("a", [("a", "")]),
        ("=b", [("", "b")]),
    ],
)
def test_splitting(query: str, expected: list[tuple[str, str]]) -> None:
    assert split_query(query) == expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
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
        ("follow=1", (("follow", "true"),), True),
        ("follow=false", (("follow", "false"),), False),
        ("follow=0", (("follow", "false"),), False),
        # Python writes the first, and a kubelet reads all of these so.
        ("follow=True", (("follow", "true"),), True),
        ("follow=False", (("follow", "false"),), False),
        ("follow=", (("follow", "true"),), True),
        ("follow", (("follow", "true"),), True),
        ("follow=yes", (("follow", "true"),), True),
        ("foll%6fw=true&", (("follow", "true"),), True),
        # A kubelet ignores what it does not know, and names are case-sensitive there.
        ("Follow=true&container=app&insecureSkipTLSVerifyBackend=true&pretty=true&timeout=5s", (), False),
        ("path=containerLogs%2Fweb&=&_=1764357986&tailLines=5&", (("tailLines", "5"),), False),
        (
            "previous=true&timestamps=1&sinceSeconds=60&tailLines=0&limitBytes=1&stream=Stderr",
            (
                ("previous", "true"),
                ("timestamps", "true"),
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
        ("follow=true&follow=true", 400, "repeated-parameter"),
        ("follow&foll%6fw=false", 400, "repeated-parameter"),
        ("tailLines", 400, "malformed-parameter"),
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
                ("tty", "0"),
            ),
        ),
        (
            "input=true&output=True&error=&tty=t",
            True,
            False,
            (
                ("input", "1"),
                ("output", "1"),
                ("error", "0"),
                ("tty", "0"),
            ),
        ),
        ("command&input=1&", True, False, (("command", ""), ("input", "1"))),
        ("stdin=1&port=80&container=app&timeout=5s&output=1", True, False, (("output", "1"),)),
        ("command=ls&input=1", False, False, (("input", "1"),)),
        ("command=ls&input=1&port=80&timeout=5s", False, True, (("port", "80"),)),
        # kube-apiserver's streamParams, of several ports by WebSocket.
        ("port=80%2C443&port=8080", False, True, (("port", "80"), ("port", "443"), ("port", "8080"))),
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
        ("tty=1&tty=1", True, False, "repeated-parameter"),
        ("tty=1&tty=0", False, False, "repeated-parameter"),
        ("port=0", False, True, "malformed-parameter"),
        ("port=65536", False, True, "malformed-parameter"),
        ("port=http", False, True, "malformed-parameter"),
        ("port=-1", False, True, "malformed-parameter"),
        ("port=", False, True, "malformed-parameter"),
        ("port", False, True, "malformed-parameter"),
        ("port=80,", False, True, "malformed-parameter"),
        ("port=80,0", False, True, "malformed-parameter"),
        ("port=80%2C80%2Ca", False, True, "malformed-parameter"),
        ("port=" + "1," * MAX_PARAMETERS + "1", False, True, "too-many-parameters"),
        ("command=%00", True, False, "malformed-query"),
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
        ("only_cpu_and_memory=True&pretty=true&", True),
        # As a kubelet: all else is the whole page.
        ("only_cpu=true", False),
        ("only_cpu_and_memory=yes", False),
        ("only_cpu_and_memory=true&only_cpu_and_memory=true", False),
        ("only_cpu_and_memory", False),
        ("only_cpu_and_memory=true;a=%zz", False),
    ],
)
def test_page_options(query: str, expected: bool) -> None:
    assert parse_page_options(query) is expected


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
    assert all("\0" not in value for _, value in pairs)


# What clients send beside what they mean: client-go with a timeout (`kubectl --request-timeout`), the Python
# client's `path` and `pretty`, a browser's or a script's cache buster, and a trailing `&`.
CLIENTS = ("timeout=30s", "pretty=true", "path=containerLogs", "_=1764357986", "_preload_content=False", "")


@given(st.lists(st.sampled_from(CLIENTS), max_size=4), st.lists(st.sampled_from(CLIENTS), max_size=4))
def test_every_endpoint_ignores_what_clients_add(before: list[str], after: list[str]) -> None:
    def added(query: str) -> str:
        return "&".join([*before, query, *after])

    assert parse_log_options(added("tailLines=5&follow=true")) == (
        (("tailLines", "5"), ("follow", "true")),
        True,
    )
    assert parse_stream_options(added("command=ls&output=1"), is_exec=True, is_forward=False) == (
        ("command", "ls"),
        ("output", "1"),
    )
    assert parse_stream_options(added("output=1"), is_exec=False, is_forward=False) == (("output", "1"),)
    assert parse_stream_options(added("port=80"), is_exec=False, is_forward=True) == (("port", "80"),)
    assert parse_page_options(added("only_cpu_and_memory=true"))
