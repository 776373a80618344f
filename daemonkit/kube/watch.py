# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a watch to events. Pure.

The stream is one JSON object a line. aiohttp's own line reader has an upper length that real
objects exceed (a Secret may be 1 MiB, base64 a third more), hence a splitter of ours; but a line
has to end somewhere, hence its bound.
"""

import contextlib
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

import msgspec

from daemonkit.kube import deep_json
from daemonkit.kube.object_limits import MAX_OBJECT_BYTES, TOO_LARGE, ObjectLimits
from daemonkit.kube.resources import Identity, KubeObject, Named, NameOnly, Status

# etcd takes requests of 1.5 MiB and the API server bodies of 3 MiB; an event carries one object,
# and JSON escapes may blow it up by some factor.
MAX_EVENT_BYTES = 16 * 1024 * 1024
# Of a watch, which lasts ten minutes: a proxy that keeps a connection alive with one each second.
MAX_BLANK_LINES = 1_000

T = TypeVar("T", bound=KubeObject)

Parser = Callable[[msgspec.Raw], T]

# A larger object is counted and parsed in two steps: of 5 MiB each of them takes up to 20 ms.
LARGE_BYTES = 256 << 10


class GarbageError(ValueError):
    """The stream has something other than an event: what follows cannot be trusted."""


class LineSplitter:
    """Cuts a byte stream at its newlines, however it is divided into chunks.

    Each byte is looked at once. Blank lines are left out, and are counted: no API server sends one.
    """

    def __init__(self, max_line_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._pending = bytearray()
        self._blank_lines = 0

    @property
    def pending_bytes(self) -> int:
        """What is held of a line whose end has not come."""
        return len(self._pending)

    def forget(self) -> None:
        """Hold nothing: what ended the stream may keep this alive until a collection of garbage."""
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes.

        Raises GarbageError when a line exceeds the bound, or for a stream of blank ones.
        """
        *lines, rest = chunk.split(b"\n")
        if lines and self._pending:
            self._pending += lines[0]
            lines[0] = bytes(self._pending)
            self._pending = bytearray()
        self._pending += rest
        if max(map(len, (*lines, self._pending))) > self._max_line_bytes:
            raise GarbageError(f"an event of more than {self._max_line_bytes} bytes")
        found = [line for line in lines if line and not line.isspace()]
        self._blank_lines += len(lines) - len(found)
        if self._blank_lines > MAX_BLANK_LINES:
            raise GarbageError(f"more than {MAX_BLANK_LINES} blank lines")
        return found


class Put(msgspec.Struct, Generic[T], frozen=True):
    """An object was added or changed."""

    value: T


class Removed(msgspec.Struct, frozen=True):
    """An object was deleted, or does not match the selectors any more."""

    metadata: Identity


class Undecodable(msgspec.Struct, frozen=True):
    """An object whose name decodes. The rest does not, or is too large to be decoded."""

    metadata: Identity
    reason: str
    is_too_large: bool = False
    kept: object = None
    """The fields that the decoder was asked to keep of such an object; None where they do not decode."""
    size_bytes: int = 0
    """At least its bytes, and less than twice as many; 0 where no fields were asked for."""


class Bookmark(msgspec.Struct, frozen=True):
    """All events up to this version have been sent."""

    version: str


class Failed(msgspec.Struct, frozen=True):
    """The server ends the watch with a Status."""

    status: Status


Event = Put[T] | Removed | Undecodable | Bookmark | Failed


def metadata_of(item: Put[T] | Undecodable | Removed) -> Identity:
    """Name, namespace and UID of the object that an event, or an item of a list, is about."""
    return item.value.metadata if isinstance(item, Put) else item.metadata


class BoundedParser(msgspec.Struct, Generic[T], frozen=True):
    """Parses objects of at most `most_values` values. It raises msgspec.ValidationError for others."""

    parse: Callable[[msgspec.Raw | bytes], T]
    """Once they are known to be no more."""
    most_values: int = deep_json.MAX_VALUES

    def __call__(self, raw: msgspec.Raw | bytes) -> T:
        if (excess := self.excess(raw)) is not None:
            raise msgspec.ValidationError(excess)
        return self.parse(raw)

    def excess(self, raw: msgspec.Raw | bytes) -> str | None:
        """Why it is not parsed; None if it may be."""
        if deep_json.has_too_many_values(raw, self.most_values):
            return f"an object of more than {self.most_values} values"
        return None


class _Envelope(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class EventDecoder(Generic[T]):
    """Decodes the lines of a watch, and the items of a list, into one type.

    `kind` is a Struct, or a function that parses the JSON of one object. The function raises
    ValidationError where it cannot; its argument is a view of a whole page, to be copied if kept.
    `transform` is applied to each decoded object. Objects that exceed `limits` are not decoded.
    `kept` is a Struct of the fields that are kept of an object that does not decode.
    """

    def __init__(
        self,
        kind: type[T] | Parser[T],
        transform: Callable[[T], T] | None = None,
        limits: ObjectLimits | None = None,
        kept: type[msgspec.Struct] | None = None,
    ) -> None:
        self._transform = transform
        self._limits = limits
        self._envelope = msgspec.json.Decoder(_Envelope)
        self._excess: Callable[[msgspec.Raw | bytes], str | None] = lambda _: None
        self._parse: Parser[T]
        if isinstance(kind, BoundedParser):
            self._parse, self._excess = kind.parse, kind.excess
        else:
            self._parse = _parser(kind) if isinstance(kind, type) else kind
        self._name = msgspec.json.Decoder(Named)
        self._kept = None if kept is None else msgspec.json.Decoder(kept)
        self._status = msgspec.json.Decoder(Status)

    def line(self, line: bytes) -> Event[T]:
        """The event of one line. Raises GarbageError for anything else."""
        event = self._event(line)
        return self.item(event) if isinstance(event, msgspec.Raw) else event

    def steps_of_line(self, line: bytes) -> Generator[None, None, Event[T]]:
        """As `line`, for a large one; yields between two pieces of the work."""
        event = self._event(line)
        return (yield from self.steps_of_item(event)) if isinstance(event, msgspec.Raw) else event

    def item(self, raw: msgspec.Raw | bytes) -> Put[T] | Undecodable:
        """One object, of an event or a list. Raises GarbageError if even its name is missing."""
        return self._too_much(raw) or self._parsed(raw)

    def steps_of_item(self, raw: msgspec.Raw | bytes) -> Generator[None, None, Put[T] | Undecodable]:
        """As `item`, for a large one; yields between two pieces of the work."""
        yield
        found = self._too_much(raw)
        if found is not None:
            return found
        yield
        return self._parsed(raw)

    def _event(self, line: bytes) -> Removed | Bookmark | Failed | msgspec.Raw:
        """The event of one line; of one with an object, the object."""
        try:
            envelope = deep_json.decode(self._envelope, line)
            match envelope.type:
                case "ADDED" | "MODIFIED":
                    return envelope.object
                case "DELETED":
                    return Removed(self._named(envelope.object))
                case "BOOKMARK":
                    version = deep_json.decode(self._name, envelope.object).metadata.resource_version
                    if not version:
                        raise GarbageError("a bookmark without a resource version")
                    return Bookmark(version)
                case "ERROR":
                    return Failed(self._status.decode(envelope.object))
                case _:
                    raise GarbageError("an event of an unknown type")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # The text of the error names a place and a type, never a value of the object.
            raise GarbageError(f"a line that is not an event: {error}") from None

    def _too_much(self, raw: msgspec.Raw | bytes) -> Undecodable | None:
        """What stands in the place of an object that is not parsed, as it has too much; else None."""
        excess = None if self._limits is None else self._limits.excess(raw)
        if excess is None and len(raw) > MAX_OBJECT_BYTES:
            # Of any kind: what looks at each of its values takes too long, and etcd takes no such object.
            excess = f"{TOO_LARGE}it has more than {MAX_OBJECT_BYTES} bytes"
        if excess is not None:
            return self._undecodable(raw, excess, is_too_large=True)
        excess = self._excess(raw)
        return None if excess is None else self._undecodable(raw, excess, is_too_large=False)

    def _parsed(self, raw: msgspec.Raw | bytes) -> Put[T] | Undecodable:
        try:
            value = self._parse(raw if isinstance(raw, msgspec.Raw) else msgspec.Raw(raw))
        except (msgspec.ValidationError, UnicodeDecodeError) as error:
            return self._undecodable(raw, str(error), is_too_large=False)
        except (msgspec.DecodeError, RecursionError) as error:
            raise GarbageError(f"an object that is not JSON: {error}") from None
        _check(value.metadata)
        return Put(value if self._transform is None else self._transform(value))

    def _undecodable(self, raw: msgspec.Raw | bytes, reason: str, *, is_too_large: bool) -> Undecodable:
        kept, size_bytes = None, 0
        if self._kept is not None:
            # Roughly: who writes such an object again and again causes no work by a few bytes.
            size_bytes = 1 << (len(raw) - 1).bit_length()
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                kept = deep_json.decode(self._kept, raw)
        return Undecodable(self._named(raw), reason, is_too_large, kept, size_bytes)

    def _named(self, raw: msgspec.Raw | bytes) -> NameOnly:
        try:
            metadata = deep_json.decode(self._name, raw).metadata
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise GarbageError(f"an object without usable metadata: {error}") from None
        _check(metadata)
        return metadata


def _parser(kind: type[T]) -> Parser[T]:
    decoder = msgspec.json.Decoder(kind)
    return lambda raw: deep_json.decode(decoder, raw)


def _check(metadata: Identity) -> None:
    if not metadata.name or not metadata.resource_version:
        raise GarbageError("an object without a name or a resource version")
