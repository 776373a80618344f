# SPDX-License-Identifier: Apache-2.0
"""Configuration files: PyYAML reads the same structure, and only the documented errors are raised."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from daemonkit.config import binding
from daemonkit.config.binding import ConfigError
from daemonkit.config.yaml_values import MAX_DEPTH, Value, YamlError, decode
from kata_bridge.sandboxes.file_source import GuestFile
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget
from vnagent.config import KIND, VnAgentConfiguration

_MAX_KEY_CHARACTERS = 1024


def check(data: bytes) -> None:
    for cls, kind in ((GuestFile, "Guest"), (VnAgentConfiguration, KIND)):
        only(ConfigError, binding.parse, data, cls, kind=kind, source="f", directory=Path("/d"))
    text = only(UnicodeDecodeError, data.decode)
    if text is None:
        return
    try:
        value = decode(text)
    except YamlError as error:
        _check_message(str(error))
        return
    _check_value(value, 0)
    try:
        theirs = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - it makes text, lists and dicts alone
    except yaml.YAMLError:
        # PyYAML's scanner in Python refuses some tabs that libyaml takes, which we use.
        pass
    else:
        # libyaml also skips byte order marks within the text.
        assert "\ufeff" in text[1:] or _is_same(value, theirs), f"{value!r} is not {theirs!r}"
    written = json.dumps(value)
    # JSON has no infinity, which the binder of configurations refuses, and two escapes for some characters.
    # YAML 1.2.2, 7.4.2: a key without `?` has at most 1024 characters.
    keys = all(len(json.dumps(key)) <= _MAX_KEY_CHARACTERS for key in _keys(value))
    if keys and "\\ud" not in written and "Infinity" not in written:
        assert decode(written) == value


def _keys(value: Value) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _keys(each)


def _check_message(message: str) -> None:
    """It has a key at most, and never a value."""
    assert len(message) < 300
    assert message.isprintable()


def _check_value(value: Value, depth: int) -> None:
    assert depth <= MAX_DEPTH
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in below:
        _check_value(each, depth + 1)


def _is_same(ours: Value, theirs: Any) -> bool:
    if isinstance(ours, dict):
        return (
            isinstance(theirs, dict)
            and list(ours) == list(theirs)
            and all(_is_same(ours[key], theirs[key]) for key in ours)
        )
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(_is_same, ours, theirs))
    if ours is None:
        return theirs in (None, "", "~") or theirs.lower() == "null"
    if isinstance(ours, bool):
        return bool(theirs.lower() == str(ours).lower())
    if isinstance(ours, int):
        return bool(ours == int(theirs) == yaml.safe_load(theirs))
    if isinstance(ours, float):
        return ours == float(theirs)
    return bool(ours == theirs)


_CONFIG = b"""\
apiVersion: vcnode.io/v1
kind: Guest
namespace: web   # a comment
name: "shop\\n\\u00e9"
networks: [default, 'it''s']
ips:
- 10.0.0.1
- >-
  folded
  text
channels: {}
"""
TARGET = FuzzTarget(
    check,
    seeds=(
        _CONFIG,
        b"a: 1\nb: -0.5\nc: [1e3, .5, 0x10, 010, 1_000, yes, no, ~, null, 10:50, 2001-01-01]\n",
        b"---\n- |\n  text\n   more\n- ? key\n  : value\n...\n",
        b'{"a": {"b": [true, false, null, "x\\ty"]}, "c": "\\u20ac"}',
        b"&a [*a]\n",
        b"a: !!int 5\n<<: {b: 1}\n",
        b"a:\n" + b"".join(b" " * depth + b"a:\n" for depth in range(1, 40)),
    ),
    tokens=(
        *(
            b"\n",
            b"\r",
            b"\t",
            b" ",
            b"- ",
            b": ",
            b"? ",
            b"[",
            b"]",
            b"{",
            b"}",
            b",",
            b"'",
            b'"',
            b"|\n",
            b">\n",
            b"#",
            b"%YAML 1.1\n",
        ),
        *(
            b"&a ",
            b"*a",
            b"!!str ",
            b"! ",
            b"---\n",
            b"...\n",
            b"null",
            b"~",
            b"true",
            b"1e999",
            b"9" * 18,
            b"9" * 19,
            b".",
            b"-.5e-5",
        ),
        *(
            b"\xef\xbb\xbf",
            b"\xc2\x85",
            b"\xe2\x80\xa8",
            b"\\x41",
            b"\\ud83d",
            b"\xf0\x9f\x90\xb3",
            b"\\\n",
            b"\x00",
            b"+1",
            b"<<",
            b"=",
        ),
    ),
    max_bytes=2048,
)
