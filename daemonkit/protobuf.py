# SPDX-License-Identifier: Apache-2.0
"""Protocol buffers (proto3) of frozen dataclasses: a small codec without generated code.

Everything that turns messages into bytes and back lives here, for gRPC, ttrpc and NRI alike. A
message is a frozen, slotted dataclass whose fields are made by `field(number, kind)`; one declares
the fields one uses, and all others of the peer's message are skipped unread.

    @dataclass(frozen=True, slots=True)
    class Pod:
        name: str = field(1, STRING)
        labels: Mapping[str, str] = field(5, map_of(STRING))

Differences from the specification, all towards the strict side: a known field in another wire type is refused
and not skipped, and groups are refused. Of a message field that comes twice the last one counts whole (the
specification merges them; no known writer splits one). Unknown fields are lost.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Generic, Self, TypeVar, cast

# An empty item costs two bytes on the wire and a hundred in memory: a few MiB must not become
# hundreds. The longest lists here are the containers of a node, some thousands.
MAX_ITEMS = 100_000

_METADATA_KEY = "daemonkit.protobuf"
_VARINT, _I64, _RANGE, _I32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_FIXED_BYTES = {_I64: 8, _I32: 4}
_U64 = (1 << 64) - 1
# Field number 2^29 - 1 and three bits of wire type.
_MAX_TAG = (1 << 32) - 1
# Of a tag or a length, also where more of them add zeros alone: google.protobuf refuses such a message.
_MAX_SHORT_BYTES = 5

T = TypeVar("T")
E = TypeVar("E", bound="OpenEnum")

_Append = Callable[[bytes], None]


class BadMessage(Exception):  # noqa: N818 - an outcome that readers of a peer's bytes expect
    """Bytes that are not a message of the expected class. The text names the field, never its value."""


class OpenEnum(enum.IntEnum):
    """An enumeration as proto3 has them: a number without a name is kept, as `UNKNOWN_<number>`."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return member


class _Shape(enum.Enum):
    SINGLE = enum.auto()
    REPEATED = enum.auto()
    MAPPING = enum.auto()


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How the values of one type stand on the wire.

    `read` makes a value: of an unsigned 64-bit number where `wire` is varint, else of a range of
    bytes (data, start, end). `write` appends what follows the tag. An empty value (0, "", False)
    is left out unless `writes_empty`; None always is.
    """

    wire: int
    read: Callable[..., Any]
    write: Callable[[Any, _Append], None]
    default: Callable[[], T]
    writes_empty: bool = False
    shape: _Shape = _Shape.SINGLE


def field(number: int, kind: Kind[T]) -> T:
    """Declare a dataclass field as proto field `number`; its default is that of proto3."""
    if not 0 < number < 1 << 29:
        raise ValueError(f"{number} is not a field number")
    made: Any = dataclasses.field(default_factory=kind.default, metadata={_METADATA_KEY: (number, kind)})
    return cast("T", made)


def encode(message: object) -> bytes:
    """Write `message`: fields in the order of their numbers, maps by key, defaults left out.

    Raises `ValueError` for a number that does not fit its field or text that is not Unicode.
    """
    return _codec(type(message)).encode(message)


def decode(cls: type[T], data: bytes) -> T:
    """Read `data` as one `cls`. Raises `BadMessage`."""
    return cast("T", _codec(cls).decode(data, 0, len(data)))


def decoder(cls: type[T]) -> Callable[[bytes], T]:
    """`decode` for one class, as grpc wants it."""
    return functools.partial(decode, cls)


# Numbers.

_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def _varint(number: int) -> bytes:
    if number < 0x80:  # nearly always
        return _ONE_BYTE[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _integer(bits: int, *, is_signed: bool) -> Kind[int]:
    mask, low, high = (1 << bits) - 1, -(1 << bits - 1) if is_signed else 0, 1 << bits - is_signed

    def read(number: int) -> int:
        number &= mask  # "parsed as if it had been cast": what is too long for its type is cut
        return number if number < high else number - mask - 1

    def write(value: int, append: _Append) -> None:
        if not low <= value < high:
            raise ValueError(f"{value} does not fit {bits} bits")
        append(_varint(value & _U64))  # a negative one is sign-extended: always ten bytes

    return Kind(_VARINT, read, write, int)


INT32 = _integer(32, is_signed=True)
INT64 = _integer(64, is_signed=True)
UINT32 = _integer(32, is_signed=False)
UINT64 = _integer(64, is_signed=False)
BOOL: Kind[bool] = Kind(_VARINT, bool, lambda value, append: append(_ONE_BYTE[bool(value)]), bool)


def enumeration(cls: type[E]) -> Kind[E]:
    """An enum; `cls` has a member 0."""
    zero = cls(0)
    return Kind(_VARINT, lambda number: cls(INT32.read(number)), INT32.write, lambda: zero)


# What has a length.


def _write_range(value: bytes, append: _Append) -> None:
    append(_varint(len(value)))
    append(value)


def _read_text(data: bytes, start: int, end: int) -> str:
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        raise BadMessage("not UTF-8") from None


STRING: Kind[str] = Kind(_RANGE, _read_text, lambda value, append: _write_range(value.encode(), append), str)
BYTES: Kind[bytes] = Kind(_RANGE, lambda data, start, end: data[start:end], _write_range, bytes)


def _present(cls: type[T]) -> Kind[T]:
    codec = _codec(cls)
    return Kind(
        _RANGE, codec.decode, lambda value, append: _write_range(codec.encode(value), append), cls, True
    )


def message_of(cls: type[T]) -> Kind[T | None]:
    """Another message or none; an empty message is not none."""
    present = _present(cls)
    return Kind(_RANGE, present.read, present.write, lambda: None, True)


def repeated(kind: Kind[T]) -> Kind[tuple[T, ...]]:
    """A list of text, bytes or numbers; numbers are written packed and read in both ways."""
    return Kind(kind.wire, kind.read, kind.write, tuple, shape=_Shape.REPEATED)


def messages_of(cls: type[T]) -> Kind[tuple[T, ...]]:
    return repeated(_present(cls))


def map_of(kind: Kind[T]) -> Kind[Mapping[str, T]]:
    """A map from strings to text, bytes or numbers."""
    # An entry names both its parts, also where they are defaults: so all writers have it.
    key, value = (dataclasses.replace(each, writes_empty=True) for each in (STRING, kind))
    entry = _Codec(
        "map entry",
        (_Slot(1, "key", key, itemgetter(0)), _Slot(2, "value", value, itemgetter(1))),
        lambda key="", value=None: (key, kind.default() if value is None else value),
    )
    return Kind(
        *(_RANGE, entry.decode, lambda item, append: _write_range(entry.encode(item), append)),
        default=cast("Callable[[], Mapping[str, T]]", dict),
        shape=_Shape.MAPPING,
    )


# Messages.


@dataclass(frozen=True, slots=True)
class _Slot:
    number: int
    name: str
    kind: Kind[Any]
    get: Callable[[Any], Any]


class _Codec:
    """Reads and writes the messages that `make` builds of the fields that are there."""

    def __init__(self, name: str, slots: Iterable[_Slot], make: Callable[..., Any]) -> None:
        self._name = name
        self._make = make
        self._slots = {slot.number: slot for slot in sorted(slots, key=lambda slot: slot.number)}
        self._writers = [(s.get, s.kind.writes_empty, _writer(s)) for s in self._slots.values()]
        # By tag, that is number and wire type together: a tag that is not here is unknown or wrong.
        self._readers = {n << 3 | s.kind.wire: _reader(s) for n, s in self._slots.items()}
        for number, slot in self._slots.items():
            if slot.kind.wire == _VARINT and slot.kind.shape is _Shape.REPEATED:
                self._readers[number << 3 | _RANGE] = _packed_reader(slot)

    def encode(self, value: Any) -> bytes:
        out: list[bytes] = []
        for get, writes_empty, write in self._writers:
            part = get(value)
            if part or (writes_empty and part is not None):
                write(part, out.append)
        return b"".join(out)

    def decode(self, data: bytes, position: int, end: int) -> Any:
        values: dict[str, Any] = {}
        tag = 0
        try:
            while position < end:
                begin = position
                tag, position = _read_varint(data, position, end)
                if position - begin > _MAX_SHORT_BYTES:
                    raise BadMessage("not a field number")
                keep = self._readers.get(tag)
                if keep is None:
                    self._check_unknown(tag)
                wire = tag & 7
                if wire == _RANGE:
                    length, start = _read_varint(data, position, end)
                    if start + length > end:
                        raise BadMessage("cut short")
                    if start - position > _MAX_SHORT_BYTES:
                        raise BadMessage("length too long")
                    position = start + length
                    if keep is not None:
                        keep(values, data, start, position)
                elif wire == _VARINT:
                    number, position = _read_varint(data, position, end)
                    if keep is not None:
                        keep(values, number)
                else:
                    position += _FIXED_BYTES[wire]
            if position > end:
                raise BadMessage("cut short")
        except BadMessage as error:
            slot = self._slots.get(tag >> 3)
            raise BadMessage(f"{self._name}.{slot.name if slot else tag >> 3}: {error}") from None
        for name, value in values.items():
            if type(value) is list:
                values[name] = tuple(value)
        return self._make(**values)

    def _check_unknown(self, tag: int) -> None:
        if tag >> 3 in self._slots or tag & 7 not in (_VARINT, _RANGE, *_FIXED_BYTES):
            raise BadMessage(f"wire type {tag & 7}")
        if not 7 < tag <= _MAX_TAG:
            raise BadMessage("not a field number")


def _read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the number at `position` and where the next byte is."""
    if position < end and data[position] < 0x80:  # nearly always
        return data[position], position + 1
    number = shift = 0
    for at in range(position, min(end, position + _MAX_VARINT_BYTES)):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _U64, at + 1
        shift += 7
    raise BadMessage("cut short" if end < position + _MAX_VARINT_BYTES else "number too long")


def _reader(slot: _Slot) -> Callable[..., None]:
    """What puts a value, given as `Kind.read` takes it, among the values of a message."""
    name, read = slot.name, slot.kind.read

    def keep(values: dict[str, Any], *given: Any) -> None:
        values[name] = read(*given)

    def gather(values: dict[str, Any], *given: Any) -> None:
        items = values.setdefault(name, [])
        if len(items) >= MAX_ITEMS:
            raise BadMessage(f"more than {MAX_ITEMS} items")
        items.append(read(*given))

    def enter(values: dict[str, Any], *given: Any) -> None:
        items = values.setdefault(name, {})
        key, value = read(*given)
        items[key] = value
        if len(items) > MAX_ITEMS:
            raise BadMessage(f"more than {MAX_ITEMS} items")

    return {_Shape.SINGLE: keep, _Shape.REPEATED: gather, _Shape.MAPPING: enter}[slot.kind.shape]


def _packed_reader(slot: _Slot) -> Callable[..., None]:
    gather = _reader(slot)

    def unpack(values: dict[str, Any], data: bytes, position: int, end: int) -> None:
        while position < end:
            number, position = _read_varint(data, position, end)
            gather(values, number)

    return unpack


def _writer(slot: _Slot) -> Callable[[Any, _Append], None]:
    """What writes a field's value with its tags."""
    kind, write, tag = slot.kind, slot.kind.write, _varint(slot.number << 3 | slot.kind.wire)

    def write_one(value: Any, append: _Append) -> None:
        append(tag)
        write(value, append)

    def write_each(items: Iterable[Any], append: _Append) -> None:
        for item in items:
            append(tag)
            write(item, append)

    def write_packed(items: Iterable[Any], append: _Append) -> None:
        packed: list[bytes] = []
        for item in items:
            write(item, packed.append)
        append(_varint(slot.number << 3 | _RANGE))
        _write_range(b"".join(packed), append)

    def write_entries(items: Mapping[str, Any], append: _Append) -> None:
        write_each(sorted(items.items(), key=itemgetter(0)), append)

    if kind.shape is _Shape.SINGLE:
        return write_one
    if kind.shape is _Shape.MAPPING:
        return write_entries
    return write_packed if kind.wire == _VARINT else write_each


def _codec(cls: type) -> _Codec:
    made = _codecs.get(cls)
    if made is not None:
        return made
    slots = []
    for each in dataclasses.fields(cls):
        number, kind = each.metadata[_METADATA_KEY]
        slots.append(_Slot(number, each.name, kind, attrgetter(each.name)))
    if len({slot.number for slot in slots}) < len(slots):
        raise ValueError(f"{cls.__name__} has a field number twice")
    made = _codecs[cls] = _Codec(cls.__name__, slots, cls)
    return made


_codecs: dict[type, _Codec] = {}
