# SPDX-License-Identifier: Apache-2.0
"""Messages of the bridge, guests, NRI, ttrpc, CRI and Kata: google.protobuf reads the same.

The first byte of an input picks the class of the message. google.protobuf gets its declarations from our
dataclasses: unit tests compare those with the .proto files.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from bridge_api import messages as bridge
from daemonkit.protobuf import INT32, INT64, UINT32, UINT64, BadMessage, decode, encode
from guest_agent.api import messages as guest
from kata_bridge.channels.stock import kata_messages as kata
from kata_bridge.cri import messages as cri
from kata_bridge.nri import messages as nri
from kata_bridge.ttrpc import messages as ttrpc
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget

# These have no types.
descriptor_pb2: Any = import_module("google.protobuf.descriptor_pb2")
descriptor_pool: Any = import_module("google.protobuf.descriptor_pool")
message_factory: Any = import_module("google.protobuf.message_factory")
DecodeError: type[Exception] = import_module("google.protobuf.message").DecodeError

_MODULES: tuple[ModuleType, ...] = (bridge, guest, kata, cri, nri, ttrpc)
_KEY = "daemonkit.protobuf"
_TYPE: Any = descriptor_pb2.FieldDescriptorProto
_INTEGERS = {
    INT32.read: _TYPE.TYPE_INT32,
    INT64.read: _TYPE.TYPE_INT64,
    UINT32.read: _TYPE.TYPE_UINT32,
    UINT64.read: _TYPE.TYPE_UINT64,
}
_OTHERS = {str: _TYPE.TYPE_STRING, bytes: _TYPE.TYPE_BYTES, bool: _TYPE.TYPE_BOOL}


@dataclasses.dataclass(frozen=True, slots=True)
class ProtoField:
    """A field as google.protobuf declares it; `below` is the class of a message."""

    name: str
    number: int
    kind: int
    below: type | None
    is_repeated: bool
    is_map: bool


def _is_message(value: object) -> bool:
    return dataclasses.is_dataclass(value) and all(
        _KEY in each.metadata for each in dataclasses.fields(value)
    )


def _fields(cls: type) -> list[ProtoField]:
    hints = typing.get_type_hints(cls)
    found = []
    for each in dataclasses.fields(cls):
        number, kind = each.metadata[_KEY]
        hint = hints[each.name]
        origin, given = typing.get_origin(hint), typing.get_args(hint)
        is_repeated, is_map = origin is tuple, origin is Mapping
        one = given[0] if is_repeated or origin is types.UnionType else hint
        if is_map:
            assert given == (str, str)
            found.append(ProtoField(each.name, number, _TYPE.TYPE_MESSAGE, None, True, True))
        elif _is_message(one):
            found.append(ProtoField(each.name, number, _TYPE.TYPE_MESSAGE, one, is_repeated, False))
        else:
            is_enum = issubclass(one, enum.Enum)
            scalar = _TYPE.TYPE_INT32 if is_enum else _OTHERS.get(one) or _INTEGERS[kind.read]
            found.append(ProtoField(each.name, number, scalar, None, is_repeated, False))
    return found


def _name(cls: type) -> str:
    return f"{cls.__module__.replace('.', '_')}_{cls.__name__}"


_CLASSES = sorted(
    (
        value
        for module in _MODULES
        for value in vars(module).values()
        if isinstance(value, type) and _is_message(value) and value.__module__ == module.__name__
    ),
    key=_name,
)
_FIELDS = {cls: _fields(cls) for cls in _CLASSES}


def _declared() -> Mapping[type, Any]:
    """google.protobuf's class of each of ours."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="p", syntax="proto3")
    for cls, fields in _FIELDS.items():
        message = file.message_type.add(name=_name(cls))
        for each in fields:
            label = _TYPE.LABEL_REPEATED if each.is_repeated else _TYPE.LABEL_OPTIONAL
            made = message.field.add(name=each.name, number=each.number, type=each.kind, label=label)
            if each.below is not None:
                made.type_name = f".p.{_name(each.below)}"
            elif each.is_map:
                entry = message.nested_type.add(name=f"{each.name.title().replace('_', '')}Entry")
                entry.options.map_entry = True
                for number, part in ((1, "key"), (2, "value")):
                    entry.field.add(
                        name=part, number=number, type=_TYPE.TYPE_STRING, label=_TYPE.LABEL_OPTIONAL
                    )
                made.type_name = f".p.{_name(cls)}.{entry.name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        cls: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p.{_name(cls)}"))
        for cls in _CLASSES
    }


_THEIRS = _declared()


def _as_ours(theirs: Any, cls: Any) -> Any:
    values: dict[str, Any] = {}
    for each in _FIELDS[cls]:
        value = getattr(theirs, each.name)
        if each.is_map:
            values[each.name] = dict(value)
        elif each.is_repeated:
            values[each.name] = tuple(_as_ours(one, each.below) if each.below else one for one in value)
        elif each.below is not None:
            values[each.name] = _as_ours(value, each.below) if theirs.HasField(each.name) else None
        else:
            values[each.name] = value
    return cls(**values)


class _DiffersError(Exception):
    """The message has what we read in another way than the specification, on purpose."""


def _look_for_differences(data: bytes, fields: list[ProtoField], *, is_entry: bool = False) -> None:
    """Raise for a message field that comes twice, which google.protobuf merges, and for an unknown field in
    an entry of a map, which it drops."""
    known = {each.number: each for each in fields}
    seen: set[int] = set()
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire, number = tag & 7, tag >> 3
        if is_entry and number not in (1, 2):
            raise _DiffersError
        if wire == 0:
            _, at = _varint(data, at)
        elif wire == 2:
            size, at = _varint(data, at)
            each = known.get(number)
            if each is not None and each.is_map:
                _look_for_differences(data[at : at + size], [], is_entry=True)
            elif each is not None and each.below is not None:
                if number in seen and not each.is_repeated:
                    raise _DiffersError
                seen.add(number)
                _look_for_differences(data[at : at + size], _FIELDS[each.below])
            at += size
        else:
            at += {1: 8, 5: 4}[wire]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return number | data[at] << shift, at + 1


def _decoded(cls: type, wire: bytes) -> tuple[Any, str]:
    """Our message, or why it is refused."""
    try:
        return decode(cls, wire), ""
    except BadMessage as error:
        return None, str(error)


def check(data: bytes) -> None:
    if not data:
        return
    cls, wire = _CLASSES[data[0] % len(_CLASSES)], data[1:]
    ours, reason = _decoded(cls, wire)
    if reason:
        # A known field of another wire type, groups and field number 0 are refused on purpose.
        is_stricter = "wire type" in reason or "0: not a field number" in reason
        assert is_stricter or only(DecodeError, _THEIRS[cls].FromString, wire) is None, reason
        return
    written = encode(ours)
    assert decode(cls, written) == ours
    assert encode(decode(cls, written)) == written
    assert _as_ours(_THEIRS[cls].FromString(written), cls) == ours
    theirs = _THEIRS[cls].FromString(wire)
    try:
        _look_for_differences(wire, _FIELDS[cls])
    except _DiffersError:
        return
    assert _as_ours(theirs, cls) == ours


def _filled(cls: Any) -> Any:
    """A message with something in each field."""
    values: dict[str, Any] = {}
    samples = {_TYPE.TYPE_STRING: "text", _TYPE.TYPE_BYTES: b"\0\xff", _TYPE.TYPE_BOOL: True}
    hints = typing.get_type_hints(cls)
    for each in _FIELDS[cls]:
        one: Any = _filled(each.below) if each.below else samples.get(each.kind, 3)
        if isinstance(hints[each.name], type) and issubclass(hints[each.name], enum.Enum):
            one = hints[each.name](1)
        values[each.name] = {"a": "b", "": "c"} if each.is_map else (one, one) if each.is_repeated else one
    return cls(**values)


TARGET = FuzzTarget(
    check,
    seeds=tuple(bytes((number,)) + encode(_filled(cls)) for number, cls in enumerate(_CLASSES)),
    tokens=(
        *(
            b"\x0a\x00",
            b"\x0a\x02\x0a\x00",
            b"\x12\x01a",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0b",
            b"\x0c",
        ),
        *(
            b"\x80\x00",
            b"\x8a\x00\x00",
            b"\x8a\x80\x80\x80\x80\x00\x00",
            b"\xff\xff\xff\xff\x0f",
            b"\x09" + bytes(8),
        ),
        *(
            b"\x0d" + bytes(4),
            b"\xc3\x28",
            b"\xed\xa0\x80",
            b"\x50\x80\x80\x80\x80\x10",
            b"\x78\x02",
            b"\x1a\xff\xff\xff\x07",
        ),
    ),
    max_bytes=2048,
)
