# SPDX-License-Identifier: Apache-2.0
"""Query strings: urllib.parse reads the same, and what is written for the kubelet reads back equal."""

from urllib.parse import parse_qsl

from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget
from vnagent.core.query import (
    MAX_PARAMETERS,
    QueryError,
    parse_log_options,
    parse_page_options,
    parse_stream_options,
    render_query,
    split_query,
)


def check(data: bytes) -> None:
    query = data.decode("latin-1")
    pairs = only(QueryError, split_query, query)
    if pairs is not None:
        assert len(pairs) <= MAX_PARAMETERS
        # Our keys are not decoded: the known ones have no escapes, and others are ignored.
        theirs = parse_qsl(query, keep_blank_values=True, encoding="latin-1")
        assert [value for _, value in pairs] == [value for _, value in theirs]
        assert all(ours == key for (ours, _), (key, _) in zip(pairs, theirs, strict=True) if _is_plain(ours))
    logs = only(QueryError, parse_log_options, query)
    if logs is not None:
        written = render_query(logs[0])
        assert parse_log_options(written[1:]) == logs
        assert render_query(parse_log_options(written[1:])[0]) == written
    for is_exec, is_forward in ((True, False), (False, False), (False, True)):
        _check_stream(query, is_exec=is_exec, is_forward=is_forward)
    only(QueryError, parse_page_options, query)


def _is_plain(key: str) -> bool:
    return "%" not in key and "+" not in key


def _check_stream(query: str, *, is_exec: bool, is_forward: bool) -> None:
    options = only(QueryError, parse_stream_options, query, is_exec=is_exec, is_forward=is_forward)
    if options is None:
        return
    written = render_query(options)
    assert written.isascii()
    assert written.isprintable()
    assert " " not in written
    assert parse_stream_options(written[1:], is_exec=is_exec, is_forward=is_forward) == options


TARGET = FuzzTarget(
    check,
    seeds=(
        b"follow=true&previous=false&timestamps=1&sinceSeconds=5&tailLines=10&limitBytes=1000&stream=All",
        b"sinceTime=2026-01-02T03:04:05.123%2B01:00&tail=all",
        b"command=sh&command=-c&command=echo+%22a%26b%22&input=1&output=true&error=0&tty=false",
        b"port=80&port=443",
        b"only_cpu_and_memory=true",
        b"command=%00%ff%E2%82%AC%0a=",
    ),
    tokens=(
        *(
            b"&",
            b"=",
            b"+",
            b"%",
            b"%2",
            b"%25",
            b"%0a",
            b"%0D",
            b"%3D",
            b"=3D",
            b"=\n",
            b"=\r\n",
            b";",
            b"\x00",
        ),
        *(
            b"command=",
            b"port=",
            b"tail=",
            b"tailLines=",
            b"follow=",
            b"\xe9",
            b" ",
            b"_",
            b"  \n",
            b"%5f",
            b"#",
        ),
    ),
)
