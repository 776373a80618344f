# SPDX-License-Identifier: Apache-2.0
import enum
import io
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit import logs

# 2026-11-20T16:10:29.123Z
NOW = 1795191029.1234


class Role(enum.Enum):
    METRICS = "metrics"


class Size(enum.IntEnum):
    BIG = 3


class _FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Broken(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


def written(*, is_json: bool, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.setup(is_json=is_json, level=level, stream=stream, clock=lambda: NOW)
    return stream


def test_a_text_line_has_time_level_logger_message() -> None:
    stream = written(is_json=False)
    logs.get("vnagent.server").info(
        "request decided", tenant="ten-a", pod="web-0", status=200, path=Path("/a b"), reason=None
    )
    assert stream.getvalue() == (
        '2026-11-20T16:10:29.123Z INFO vnagent.server "request decided"'
        ' tenant=ten-a pod=web-0 status=200 path="/a b" reason=null\n'
    )


def test_a_json_line_is_one_object() -> None:
    stream = written(is_json=True)
    logs.get("vnagent.server").warning(
        "request decided", tenant="ten-a", status=200, ratio=0.5, is_new=True, reason=None, role=Role.METRICS
    )
    assert stream.getvalue() == (
        '{"time":"2026-11-20T16:10:29.123Z","level":"warning","logger":"vnagent.server",'
        '"message":"request decided","tenant":"ten-a","status":200,"ratio":0.5,"is_new":true,'
        '"reason":null,"role":"metrics"}\n'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain-word_1.2/3:4", "plain-word_1.2/3:4"),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('say "hi"\\', '"say \\"hi\\"\\\\"'),
        ("two\nlines\r", '"two\\nlines\\r"'),
        ("\x1b[31mred\x7f", '"\\u001b[31mred\\u007f"'),
        ("\x85\u2028\u202e", '"\\u0085\\u2028\\u202e"'),
        ("\udcff", '"\\udcff"'),
        ("größe", '"gr\\u00f6\\u00dfe"'),
        (b"GET \xff\x00", '"GET \\\\xff\\u0000"'),
        (("a", 1, None), "a,1,null"),
        ({"b", "a"}, "a,b"),
        (True, "true"),
        (Role.METRICS, "metrics"),
        (Size.BIG, "3"),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        (ValueError("bad\n"), '"ValueError: bad\\n"'),
        ("x" * 1_003, "x" * 1_000 + "...(+3)"),
    ],
)
def test_values_are_quoted_where_needed(value: object, text: str) -> None:
    stream = written(is_json=False)
    logs.get("x").info("m", v=value)
    assert stream.getvalue() == f'2026-11-20T16:10:29.123Z INFO x "m" v={text}\n'


@given(st.text(), st.binary(max_size=20), st.sampled_from([True, False]))
def test_no_value_breaks_the_line_or_leaves_ascii(text: str, data: bytes, is_json: bool) -> None:
    stream = written(is_json=is_json)
    logs.get(text).error(text, **{"a b\n": text, "data": data, "error": OSError(text), "items": [text]})
    line = stream.getvalue()
    assert line.endswith("\n")
    assert line.isascii()
    assert line[:-1].isprintable()
    if is_json:
        decoded = json.loads(line)
        assert decoded["message"] == text
        assert list(decoded) == ["time", "level", "logger", "message", "a b\n", "data", "error", "items"]


def test_reserved_field_names_are_renamed() -> None:
    stream = written(is_json=True)
    fields: dict[str, Any] = {"level": "error", "time": "never", "message": "other", "logger": "y"}
    logs.get("x").info("m", **fields)
    decoded = json.loads(stream.getvalue())
    assert (decoded["level"], decoded["logger"], decoded["message"]) == ("info", "x", "m")
    assert (decoded["level_"], decoded["logger_"], decoded["message_"]) == ("error", "y", "other")


def test_infinity_and_nan_are_strings_in_json() -> None:
    stream = written(is_json=True)
    logs.get("x").info("m", a=float("nan"), b=float("-inf"), c=Size.BIG)
    decoded = json.loads(stream.getvalue())
    assert (decoded["a"], decoded["b"], decoded["c"]) == ("nan", "-inf", "3")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_lines_below_the_level_are_dropped(level: str, expected: list[str]) -> None:
    stream = written(is_json=True, level=level)
    log = logs.get("x")
    log.debug("m")
    log.info("m")
    log.warning("m")
    log.error("m")
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == expected


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="level must be one of debug, info, warning, error, got 'loud'"):
        logs.setup(level="loud")


def test_text_on_a_terminal_and_json_elsewhere() -> None:
    for stream, start in ((_FakeTerminal(), "2026-"), (io.StringIO(), "{")):
        logs.setup(stream=stream, clock=lambda: NOW)
        logs.get("x").info("m")
        assert stream.getvalue().startswith(start)


def test_the_log_goes_to_stderr_and_nothing_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup(is_json=False, clock=lambda: NOW)
    logs.get("x").info("m")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == '2026-11-20T16:10:29.123Z INFO x "m"\n'


def test_a_write_error_does_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.setup(is_json=False, stream=_Broken())
    logs.get("x").error("m")
    closed = io.StringIO()
    closed.close()
    logs.setup(is_json=False)
    monkeypatch.setattr(sys, "stderr", closed)
    logs.get("x").error("m")
    assert sys.stderr is closed


def test_lines_that_would_block_are_dropped_and_counted() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb") as reader:
        logs.setup(is_json=True, stream=stream, clock=lambda: NOW)
        log = logs.get("x")
        for number in range(2_000):  # far more than the 64 KiB of a pipe
            log.info("m", number=number, text="y" * 900)
        os.set_blocking(reading, False)
        kept = [json.loads(line)["number"] for line in reader.read().splitlines()]
        assert kept == list(range(len(kept)))
        assert 0 < len(kept) < 2_000
        log.info("again")
        lines = [json.loads(line) for line in reader.read().splitlines()]
    assert [(line["message"], line.get("count")) for line in lines] == [
        ("log lines were dropped", 2_000 - len(kept)),
        ("again", None),
    ]
    logs.setup(stream=io.StringIO())


def test_lines_of_libraries_have_the_same_form() -> None:
    stream = written(is_json=True)
    library = logging.getLogger("aiohttp.client")
    library.info("below the level")
    library.warning("lost %s\n", "it")
    library.warning("%d", "not a number")
    try:
        raise ValueError("bad")
    except ValueError:
        library.exception("failed")
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert (first["logger"], first["level"], first["message"]) == ("aiohttp.client", "warning", "lost it\n")
    assert second["message"] == "%d"
    assert (third["level"], third["error"]) == ("error", "ValueError: bad")
    assert third["traceback"].startswith("Traceback (most recent call last):\n")
    assert third["traceback"].endswith("ValueError: bad\n")


def test_the_level_changes_and_returns_to_the_configured_one() -> None:
    stream = written(is_json=True, level="warning")
    library = logging.getLogger("aiohttp.client")
    logs.set_level("debug")
    logs.get("x").debug("ours")
    library.debug("theirs")
    assert (logs.level_name(), logs.configured_level()) == ("debug", "warning")
    assert logs.restore_level()
    assert not logs.restore_level()
    logs.get("x").info("ours")
    library.info("theirs")
    assert (logs.level_name(), logs.configured_level()) == ("warning", "warning")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["ours", "theirs"]


def test_an_unknown_level_changes_nothing() -> None:
    written(is_json=True)
    with pytest.raises(ValueError, match="got 'loud'"):
        logs.set_level("loud")
    assert logs.level_name() == "info"


def test_a_new_form_keeps_the_stream() -> None:
    stream = written(is_json=True)
    logs.configure(level="error", is_json=False)
    logs.get("x").error("m")
    assert stream.getvalue() == '2026-11-20T16:10:29.123Z ERROR x "m"\n'
