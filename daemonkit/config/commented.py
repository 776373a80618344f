# SPDX-License-Identifier: Apache-2.0
"""Writes a configuration file with every key: those that are set, and the others as comments with their
default. Each has its purpose and range from the dataclass that reads the file (`config.binding`).

Text is a comment with a blank after `#`. A key without a blank after `#` is not set: without that `#` its
line is valid in its place.
"""

import dataclasses
import enum
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from daemonkit.config.binding import API_VERSION, ConfigKey, Setting, keys

Values = Mapping[str, Any]

_COLUMNS = 100
_INDENT = "  "
# What every YAML reader takes for a text, also within [] and {}.
_PLAIN_TEXT = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*+(:[A-Za-z0-9/._-]++)*+")
_WORDS_OF_YAML = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def render(cls: Any, kind: str, values: Values) -> str:
    """The text of a file of `kind`, which binds to `cls`, with `values` set by the file's keys.

    An optional mapping that is set to {} gets its defaults as values. Raises KeyError if `values` lacks a
    required key.
    """
    lines = [f"apiVersion: {API_VERSION}", f"kind: {kind}"]
    for part in _parts(cls, values):
        lines += ["", *part]
    return "\n".join(lines) + "\n"


def _parts(cls: Any, values: Values | None) -> Iterator[list[str]]:
    """The lines of each key. Without `values` a sample: all that has a default, or is required, is set."""
    for name, key in keys(cls).items():
        inner, mark = item_type(key.hint)
        comment = list(_comment(key, inner, is_list=bool(mark)))
        if dataclasses.is_dataclass(inner) and not mark:
            yield [*comment, *_mapping(name, key, inner, values)]
        else:
            yield [*comment, _leaf(name, key, values)]


def _mapping(name: str, key: ConfigKey, inner: Any, values: Values | None) -> list[str]:
    if values is not None and name in values:
        chosen = values[name] or _defaults(inner)
        if not chosen:
            return [*_item_comment(inner), f"{name}: {{}}"]
        return [f"{name}:", *_indented(_parts(inner, chosen))]
    if values is not None and key.default is dataclasses.MISSING:
        raise KeyError(name)
    lines = [f"{name}:", *_indented(_parts(inner, None))]
    is_set = values is None and key.default is not None and any(not _is_comment(line) for line in lines[1:])
    return lines if is_set else [f"#{line}" for line in lines]


def _leaf(name: str, key: ConfigKey, values: Values | None) -> str:
    if values is not None and name in values:
        return f"{name}: {flow(plain(values[name]))}"
    if key.default is dataclasses.MISSING:
        if values is not None:
            raise KeyError(name)
        return f"{name}: {_placeholder(key)}"
    if key.default is None:
        return f"#{name}: {_placeholder(key)}"
    line = f"{name}: {flow(plain(key.default))}"
    return line if values is None else f"#{line}"


def _comment(key: ConfigKey, inner: Any, *, is_list: bool) -> Iterator[str]:
    notes = [note for note in (key.setting.doc, _range(inner, key.setting)) if note]
    yield from textwrap.wrap(
        "; ".join(notes), _COLUMNS, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
    if is_list and dataclasses.is_dataclass(inner):
        yield from _item_comment(inner)


def _item_comment(cls: Any) -> Iterator[str]:
    """Its keys, as text."""
    for name, key in keys(cls).items():
        yield f"#   {name}: {key.setting.doc}".rstrip(" :")


def _indented(parts: Iterator[list[str]]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for part in parts for line in part)


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _defaults(cls: Any) -> Values:
    found = {}
    for name, key in keys(cls).items():
        if key.default is not None and not dataclasses.is_dataclass(key.default):
            found[name] = key.default
    return found


def _range(hint: Any, limits: Setting) -> str:
    """What values it may have, where the type does not say it."""
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " or ".join(str(member.value) for member in hint)
    if limits.choices is not None:
        return " or ".join(limits.choices)
    return number_text(hint, limits) if hint in (int, float) else ""


def number_text(hint: Any, limits: Setting) -> str:
    """The type and range of a number: `integer, 1 to 65535`."""
    noun = "integer" if hint is int else "number"
    low, high = (
        None if each is None else f"{each:g}" if abs(each) < 1e6 else str(int(each))
        for each in (limits.minimum, limits.maximum)
    )
    if low is not None and high is not None:
        return f"{noun}, {low} to {high}"
    return noun if low is None else f"{noun}, {low} or more"


def _placeholder(key: ConfigKey) -> str:
    """A value of the right type for a key without a default."""
    inner, mark = item_type(key.hint)
    if mark:
        return "{}" if mark == ".*" else "[]"
    if inner is bool:
        return "false"
    if inner in (int, float):
        least = key.setting.minimum
        return flow(inner(1 if least is None else least))
    if inner is Path:
        return "/PATH"
    if isinstance(inner, type) and issubclass(inner, enum.Enum):
        return flow(next(iter(inner)).value)
    return flow(key.setting.choices[0]) if key.setting.choices else "TEXT"


def flow(value: Any) -> str:
    """A plain value as YAML on one line."""
    if isinstance(value, list):
        return "[" + ", ".join(flow(each) for each in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {flow(each)}" for name, each in value.items()) + "}"
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:g}"
    is_plain = _PLAIN_TEXT.fullmatch(value) and value.lower() not in _WORDS_OF_YAML
    return value if is_plain else json.dumps(value)


def plain(value: Any) -> Any:
    """A field's value as it would stand in the file."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if dataclasses.is_dataclass(value):
        found = keys(typing.cast("typing.Hashable", type(value)))
        return {name: plain(getattr(value, key.field)) for name, key in found.items()}
    return value


def item_type(hint: Any) -> tuple[Any, str]:
    """The type of one value, and `[]` for a list or `.*` for a mapping of any keys."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (one,) = (each for each in arguments if each is not types.NoneType)
        return item_type(one)
    if origin is tuple:
        return arguments[0], "[]"
    if origin is dict:
        return arguments[1], ".*"
    return hint, ""
