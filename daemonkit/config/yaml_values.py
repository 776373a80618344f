# SPDX-License-Identifier: Apache-2.0
"""YAML text to plain values, by the strict and small part of YAML that configuration needs.

This module decides the values of a YAML file; `config` decides whether they are valid. PyYAML's own loader
takes the last of two equal keys, and reads `no` as false and `10:50` as 650. An alias can grow a small file
into a huge value, and the file decides the depth of its recursion. So this module uses PyYAML's parser alone,
and builds the values from its events with a stack. Plain scalars follow the core schema of YAML 1.2 (section
10.3.2), without octal and hexadecimal numbers. Aliases, tags and a second document are errors.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

Value = bool | int | float | str | list["Value"] | dict[str, "Value"] | None

# Far above any file of ours (deepest: about 6), far below what could hurt a reader that recurses.
MAX_DEPTH = 32

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONSTANTS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
# Eighteen digits fit 64 bits and stay clear of int()'s own limit on digits.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
# With a point or an exponent. Other text that is not an integer above stays text. Writers that round
# trip put up to 17 digits behind up to five zeros.
_FLOAT = re.compile(
    r"[-+]?([0-9]{1,18}\.[0-9]{0,24}|\.[0-9]{1,24}|[0-9]{1,18}(?=[eE]))([eE][-+]?[0-9]{1,3})?"
)


class YamlError(Exception):
    """The text is not YAML that we read. The message has place and problem, never a value."""


class _Open:
    """A collection that the parser is inside of; `key` is the mapping key that waits for a value."""

    __slots__ = ("key", "value")

    def __init__(self, value: dict[str, Value] | list[Value]) -> None:
        self.value = value
        self.key: str | None = None


def decode(text: bytes | str) -> Value:
    """Read one YAML document.

    Raises `YamlError`, with line and column counted from 1, on anything but one document of
    mappings with distinct string keys, lists and scalars. An empty document is None.
    """
    stack: list[_Open] = []
    root: list[Value] = []
    for event in _events(text):
        if isinstance(event, yaml.ScalarEvent):
            _refuse_extras(event)
            is_plain = event.implicit[0] and not event.style
            if stack and isinstance(stack[-1].value, dict) and stack[-1].key is None:
                _open_key(stack[-1], event)
            else:
                _place(stack, root, _scalar(event.value) if is_plain else event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            _refuse_extras(event)
            top = stack[-1] if stack else None
            if top is not None and isinstance(top.value, dict) and top.key is None:
                raise YamlError(f"{_where(event)}: a key must be a string")
            if len(stack) >= MAX_DEPTH:
                raise YamlError(f"{_where(event)}: nested deeper than {MAX_DEPTH} levels")
            value: dict[str, Value] | list[Value] = {} if isinstance(event, yaml.MappingStartEvent) else []
            _place(stack, root, value)
            stack.append(_Open(value))
        elif isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise YamlError(f"{_where(event)}: anchors and aliases are not read; write it out")
        elif isinstance(event, yaml.DocumentStartEvent) and root:
            raise YamlError(f"{_where(event)}: a second document; keep one to a file")
    return root[0] if root else None


def _events(text: bytes | str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=_PARSER)
    except yaml.MarkedYAMLError as error:
        # `problem` names the syntax; the exception's own text would quote the file's lines.
        raise YamlError(f"{_at(error.problem_mark)}: not YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise YamlError("not YAML: characters that YAML does not allow") from None


def _refuse_extras(event: Any) -> None:
    if event.anchor is not None:
        raise YamlError(f"{_where(event)}: anchors and aliases are not read; write it out")
    if event.tag is not None:
        raise YamlError(f"{_where(event)}: tags are not read; remove it")


def _open_key(mapping: _Open, event: Any) -> None:
    key: str = event.value
    if key in mapping.value:
        raise YamlError(f"{_where(event)}: the key {key[:60]!r} is there twice")
    mapping.key = key


def _place(stack: list[_Open], root: list[Value], value: Value) -> None:
    if not stack:
        root.append(value)
        return
    top = stack[-1]
    if isinstance(top.value, list):
        top.value.append(value)
    elif top.key is not None:
        top.value[top.key] = value
        top.key = None


def _scalar(text: str) -> Value:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _where(event: Any) -> str:
    return _at(event.start_mark)


def _at(mark: Any) -> str:
    return "line ?" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
