# SPDX-License-Identifier: Apache-2.0
"""Splits a Kubernetes list into the bytes of its items as it arrives, so that memory holds one item.

msgspec finds the end of a value: it scans the value without building objects and names the byte
behind it. So an item here is an item for the decoder too. An incomplete value is
scanned again when twice as much of it has arrived: the work is linear in the list.
"""

import contextlib
import enum
import re
from dataclasses import dataclass

import msgspec

from daemonkit.kube import deep_json

# etcd takes 1.5 MiB of an object (--max-request-bytes), and JSON writes some characters in six bytes: 9 MiB.
MAX_ITEM_BYTES = 12 << 20
# kind, apiVersion and metadata of a list have some hundred bytes.
MAX_FRAME_BYTES = 64 << 10

_SPACE = b" \t\r\n"
_COMMA, _COLON, _QUOTE, _BACKSLASH = b',:"\\'
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = b"[]{}"
_OUTSIDE = re.compile(rb'["\[\]{}]')
_INSIDE = re.compile(rb'["\\]')
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_KEY = msgspec.json.Decoder(str)


class SplitError(ValueError):
    """Not one JSON object, cut off, or with too much beside its items. It quotes nothing of the list."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """An item above the limit; `head` is its beginning."""

    head: bytes


Item = bytes | TooLarge


class _At(enum.Enum):
    """The next token."""

    START = enum.auto()
    FIRST_KEY = enum.auto()
    KEY = enum.auto()
    MEMBER_END = enum.auto()
    FIRST_ITEM = enum.auto()
    ITEM = enum.auto()
    SKIPPED = enum.auto()
    ITEM_END = enum.auto()
    DONE = enum.auto()


class ListSplitter:
    """Takes a JSON object in pieces and returns the members of its list `field`."""

    def __init__(
        self,
        field: str | None = "items",
        *,
        max_item_bytes: int = MAX_ITEM_BYTES,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self._field = field
        self._max_item_bytes = max_item_bytes
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._at = 0
        self._next = _At.START
        self._frame = bytearray(b"{")
        self._has_list = False
        self._is_end = False
        # An incomplete value is scanned again when so many bytes of it are here.
        self._needed = 0
        self._skipper = _Skipper()

    def feed(self, data: bytes | memoryview) -> list[Item]:
        """The items that are complete now. Raises SplitError."""
        self._buffer += data
        return self._items()

    def end(self) -> list[Item]:
        """The items that are left at the end of the list. Raises SplitError if it is cut off."""
        self._is_end = True
        found = self._items()
        if self._next is not _At.DONE:
            raise SplitError("it is cut off")
        return found

    def frame(self) -> bytes:
        """The object with an empty list; before its end, the members that are complete so far."""
        return bytes(self._frame) + b"}"

    def _items(self) -> list[Item]:
        found: list[Item] = []
        while self._step(found):
            pass
        del self._buffer[: self._at]
        self._at = 0
        return found

    def _step(self, found: list[Item]) -> bool:
        """Take one token, or one value; False if there is more to come."""
        if self._next is _At.SKIPPED:
            return self._skip()
        char = self._peek()
        if char is None:
            return False
        match self._next:
            case _At.START:
                self._take(char, {_OPEN_OBJECT: _At.FIRST_KEY})
            case _At.FIRST_KEY if char == _CLOSE_OBJECT:
                self._take(char, {_CLOSE_OBJECT: _At.DONE})
            case _At.FIRST_KEY | _At.KEY:
                return self._take_member(char)
            case _At.MEMBER_END:
                self._take(char, {_COMMA: _At.KEY, _CLOSE_OBJECT: _At.DONE})
            case _At.FIRST_ITEM if char == _CLOSE_LIST:
                self._take(char, {_CLOSE_LIST: _At.MEMBER_END})
            case _At.FIRST_ITEM | _At.ITEM:
                return self._take_item(char, found)
            case _At.ITEM_END:
                self._take(char, {_COMMA: _At.ITEM, _CLOSE_LIST: _At.MEMBER_END})
            case _:
                raise SplitError("something follows its end")
        return True

    def _peek(self) -> int | None:
        buffer, at, size = self._buffer, self._at, len(self._buffer)
        while at < size and buffer[at] in _SPACE:
            at += 1
        self._at = at
        return buffer[at] if at < size else None

    def _take(self, char: int, following: dict[int, _At]) -> None:
        if char not in following:
            raise SplitError("not the JSON object of a list")
        self._next = following[char]
        self._at += 1

    def _take_member(self, char: int) -> bool:
        """A key and, unless it is the list's, its value: both or neither."""
        if char != _QUOTE:
            raise SplitError("not the JSON object of a list")
        begin, size = self._at, len(self._buffer)
        key_end = self._value_end(begin, self._max_frame_bytes)
        if key_end is None:
            return False
        if self._buffer[key_end] != _COLON:
            raise SplitError("not the JSON object of a list")
        try:
            key = _KEY.decode(bytes(self._buffer[begin:key_end]))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SplitError("not the JSON object of a list") from error
        self._at = key_end + 1
        char_of_value = self._peek()
        value_at = self._at
        self._at = begin
        if char_of_value is None:
            self._check_frame(size - begin)
            return False
        if key == self._field and char_of_value == _OPEN_LIST:
            if self._has_list:
                raise SplitError("it has two lists of items")
            self._has_list = True
            self._add_to_frame(self._buffer[begin:value_at] + b"[]")
            self._at, self._next = value_at + 1, _At.FIRST_ITEM
            return True
        end = self._value_end(value_at, self._max_frame_bytes)
        if end is None:
            return False
        self._add_to_frame(self._buffer[begin:end])
        self._at, self._next = end, _At.MEMBER_END
        return True

    def _add_to_frame(self, member: bytearray) -> None:
        separator = b"," if len(self._frame) > 1 else b""
        self._check_frame(len(separator) + len(member))
        self._frame += separator + member

    def _check_frame(self, more: int) -> None:
        if len(self._frame) + more > self._max_frame_bytes:
            raise SplitError("it has too much beside its items")

    def _take_item(self, char: int, found: list[Item]) -> bool:
        if char != _OPEN_OBJECT:
            raise SplitError("not a list of objects")
        size = len(self._buffer) - self._at
        if size < self._needed and not self._is_end:
            return False
        end = self._value_end(self._at, None)
        if end is None:
            if size <= self._max_item_bytes:
                self._needed = min(2 * size, self._max_item_bytes + 1)
                return False
            found.append(TooLarge(bytes(self._buffer[self._at : self._at + self._max_item_bytes])))
            self._skipper, self._needed, self._next = _Skipper(), 0, _At.SKIPPED
            return True
        item = bytes(self._buffer[self._at : end])
        found.append(item if len(item) <= self._max_item_bytes else TooLarge(item[: self._max_item_bytes]))
        self._at, self._needed, self._next = end, 0, _At.ITEM_END
        return True

    def _skip(self) -> bool:
        end = self._skipper.feed(self._buffer, self._at)
        self._at = len(self._buffer) if end is None else end
        if end is None:
            return False
        self._next = _At.ITEM_END
        return True

    def _value_end(self, begin: int, max_bytes: int | None) -> int | None:
        """The end of the value that begins at `begin`; None while it is incomplete."""
        size = len(self._buffer)
        with memoryview(self._buffer) as whole, whole[begin:] as value:
            end = _end_of_value(value)
        if end is None and max_bytes is not None:
            self._check_frame(size - begin)
        return None if end is None else begin + end


def _end_of_value(data: memoryview) -> int | None:
    """The offset of the byte behind the JSON value at the begin of `data` and its spaces; None if the value
    is incomplete or the last. Raises SplitError.

    Only the text of the decoder's error has it; a test pins that text.
    """
    try:
        deep_json.decode(_VALUE, data)
    except msgspec.DecodeError as error:
        text = str(error)
        if text == "Input data was truncated":
            return None
        reason, _, place = text.rpartition(" (byte ")
        offset = int(place[:-1]) if place[:-1].isdecimal() else -1
        if reason == "JSON is malformed: trailing characters":
            return offset - 1  # of that byte, it names the one behind
        # A number whose next digit may come.
        if offset == len(data):
            return None
        raise SplitError("not well-formed JSON") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise SplitError("not well-formed JSON") from error
    return None


class _Skipper:
    """Finds the end of an object above the limit, by its brackets outside of strings."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False

    def feed(self, data: bytearray, at: int) -> int | None:
        """The end of the object in `data`, from `at`; None if it does not end there."""
        if self._is_escaped and at < len(data):
            self._is_escaped = False
            at += 1
        while match := (_INSIDE if self._is_in_string else _OUTSIDE).search(data, at):
            at = match.end()
            char = data[at - 1]
            if char == _QUOTE:
                self._is_in_string = not self._is_in_string
            elif char == _BACKSLASH:
                if at == len(data):
                    self._is_escaped = True
                    return None
                at += 1
            else:
                self._depth += 1 if char in b"[{" else -1
                if not self._depth:
                    return at
        return None


def complete_members(head: bytes) -> bytes:
    """A JSON object with the complete members of `head`, the beginning of an object."""
    splitter = ListSplitter(None, max_frame_bytes=2 * len(head) + 2)
    with contextlib.suppress(SplitError):
        splitter.feed(head)
    return splitter.frame()
