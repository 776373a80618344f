# SPDX-License-Identifier: Apache-2.0
"""The reference and the JSON schema of each kind of file, from the dataclass that reads it."""

import dataclasses
import enum
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daemonkit.config.binding import API_VERSION, ConfigKey, Setting, keys
from daemonkit.config.commented import item_type, number_text, plain
from tests.reference.kinds import FileKind

Schema = dict[str, Any]

# `daemonkit.config.yaml_values` takes a number with more digits for a text.
_MAX_INTEGER = 10**18 - 1


def page(kind: FileKind) -> str:
    """The section of one kind: a table with a row for each key, by its path in the file."""
    rows = "\n".join(_row(path, key) for path, key in leaves(kind.cls))
    return (
        f"## {kind.name}\n\n"
        f"Read by {kind.reader}. Example: [`examples/{kind.example}`](../../examples/{kind.example})."
        f" Schema: [`{kind.name}.json`](schema/{kind.name}.json).\n\n"
        "| key | type | default | what it is |\n|---|---|---|---|\n" + rows + "\n"
    )


def leaves(cls: Any, path: str = "") -> Iterator[tuple[str, ConfigKey]]:
    """Each key that holds a value, after those of the mappings that it is in."""
    for name, key in keys(cls).items():
        where = f"{path}.{name}" if path else name
        inner, mark = item_type(key.hint)
        if dataclasses.is_dataclass(inner):
            if key.default is None or mark or key.setting.doc:
                yield f"{where}{mark}", key
            yield from leaves(inner, f"{where}{mark}")
        else:
            yield f"{where}{mark}", key


def schema(kind: FileKind) -> Schema:
    """JSON Schema (draft 2020-12) of the file."""
    body = _object(kind.cls)
    header = {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind.name}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind.name,
        **body,
        "properties": {**header, **body["properties"]},
        "required": ["apiVersion", "kind", *body["required"]],
    }


def _row(path: str, key: ConfigKey) -> str:
    inner, _ = item_type(key.hint)
    cells = (f"`{path}`", _type(inner, key.setting), _default(key), key.setting.doc)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(hint: Any, limits: Setting) -> str:
    if dataclasses.is_dataclass(hint):
        return "mapping"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _choices(str(member.value) for member in hint)
    if limits.choices is not None:
        return _choices(limits.choices)
    if hint in (int, float):
        return number_text(hint, limits)
    return {bool: "boolean", str: "string", Path: "path"}[hint]


def _choices(values: typing.Iterable[str]) -> str:
    return " or ".join(f"`{value}`" for value in values)


def _default(key: ConfigKey) -> str:
    if key.default is dataclasses.MISSING:
        return "**required**"
    if key.default is None:
        return "none"
    if dataclasses.is_dataclass(key.default):
        return ""
    value = plain(key.default)
    return "none" if value in ([], {}) else f"`{_text(value)}`"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_text(each) for each in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return '""' if value == "" else str(value)


def _object(cls: Any) -> Schema:
    found = keys(cls)
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property(key) for name, key in found.items()},
        "required": [name for name, key in found.items() if key.default is dataclasses.MISSING],
    }


def _property(key: ConfigKey) -> Schema:
    made = _schema(key.hint, key.setting)
    if key.setting.doc:
        made["description"] = key.setting.doc
    if key.default not in (dataclasses.MISSING, None) and not dataclasses.is_dataclass(key.default):
        made["default"] = plain(key.default)
    return made


def _schema(hint: Any, limits: Setting) -> Schema:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (one,) = (each for each in arguments if each is not types.NoneType)
        return {"anyOf": [_schema(one, limits), {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], limits)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], limits)}
    if dataclasses.is_dataclass(hint):
        return _object(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if limits.choices is not None:
        return {"enum": list(limits.choices)}
    if hint in (int, float):
        highest = _MAX_INTEGER if limits.maximum is None else limits.maximum
        bounds = {"minimum": limits.minimum, "maximum": highest}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        return {"type": "integer" if hint is int else "number", **given}
    if hint is Path:
        return {"type": "string", "minLength": 1}
    if hint is str and limits.minimum_length:
        return {"type": "string", "minLength": limits.minimum_length}
    return {"type": {bool: "boolean", str: "string"}[hint]}
