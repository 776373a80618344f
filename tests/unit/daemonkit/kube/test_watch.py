# SPDX-License-Identifier: Apache-2.0
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.object_limits import MAX_OBJECT_BYTES, limits_of
from daemonkit.kube.resources import SERVICES, NameOnly, ObjectMeta, Status
from daemonkit.kube.watch import (
    MAX_BLANK_LINES,
    Bookmark,
    Event,
    EventDecoder,
    Failed,
    GarbageError,
    LineSplitter,
    Put,
    Removed,
    Undecodable,
)


class Thing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    size: int = 0


_DECODER = EventDecoder(Thing)
_META = ObjectMeta(name="a", resource_version="7")
_NAME = NameOnly(name="a", resource_version="7")
_RAW_META = b'"metadata": {"name": "a", "resourceVersion": "7"}'


@given(
    st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    st.lists(st.integers(0, 100), max_size=20),
)
def test_lines_do_not_depend_on_chunks(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    splitter = LineSplitter()
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = [line for start, end in itertools.pairwise(bounds) for line in splitter.feed(stream[start:end])]
    assert found == [line for line in lines if line.strip()]
    assert splitter.feed(b"\n") == [b"rest"]


def test_the_length_of_a_line_has_a_bound() -> None:
    splitter = LineSplitter(max_line_bytes=10)
    assert splitter.feed(b"0123456789\n01234") == [b"0123456789"]
    with pytest.raises(GarbageError, match="more than 10 bytes"):
        splitter.feed(b"567890")
    with pytest.raises(GarbageError):
        LineSplitter(max_line_bytes=3).feed(b"ab\nabcd\n")


@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n"])
@pytest.mark.parametrize("at_once", [1, 1_000, 16_384])
def test_blank_lines_are_bounded_in_number(blank: bytes, at_once: int) -> None:
    """A stream of them took all of the time of whoever read it."""
    splitter = LineSplitter()
    with pytest.raises(GarbageError, match="blank lines"):
        list(map(splitter.feed, [blank * at_once] * (2 * MAX_BLANK_LINES // at_once + 1)))


def test_some_blank_lines_are_left_out() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"\n" * MAX_BLANK_LINES + b"x\n") == [b"x"]
    assert splitter.pending_bytes == 0


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"type": "ADDED", "object": {%s, "size": 3}}' % _RAW_META, Put(Thing(_META, 3))),
        (b'{"object": {%s}, "type": "MODIFIED"}' % _RAW_META, Put(Thing(_META))),
        (b'{"type": "DELETED", "object": {%s, "size": "odd"}}' % _RAW_META, Removed(_NAME)),
        (b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}', Bookmark("9")),
        (
            b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}',
            Failed(Status(code=410, reason="Expired")),
        ),
        (
            b'{"type": "ADDED", "object": {%s, "size": "three"}}' % _RAW_META,
            Undecodable(_NAME, "Expected `int`, got `str` - at `$.size`"),
        ),
    ],
)
def test_events_are_decoded(line: bytes, event: Event[Thing]) -> None:
    assert _DECODER.line(line) == event


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\x00\xff\xfe",
        b"null",
        b"[]",
        b"<html>bad gateway</html>",
        b'{"type": "ADDED"}',
        b'{"type": "ADDED", "object": null}',
        b'{"type": "SHRUNK", "object": {%s}}' % _RAW_META,
        b'{"type": "ADDED", "object": {%s' % _RAW_META,
        b'{"type": "ADDED", "object": {"metadata": {"name": "a"}}}',
        b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "7"}}}',
        b'{"type": "ADDED", "object": {"metadata": {"name": 1, "resourceVersion": "7"}}}',
        b'{"type": "DELETED", "object": {"size": 1}}',
        b'{"type": "BOOKMARK", "object": {"metadata": {}}}',
        b'{"type": "ERROR", "object": []}',
        b'{"type": "ADDED", "object": {%s, "size": %s}}' % (_RAW_META, b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_other_lines_are_garbage(line: bytes) -> None:
    with pytest.raises(GarbageError):
        _DECODER.line(line)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_garbage_error_only(line: bytes) -> None:
    try:
        event = _DECODER.line(line)
    except GarbageError:
        return
    assert isinstance(event, Put | Removed | Undecodable | Bookmark | Failed)


def test_reasons_hold_no_value() -> None:
    secret = (
        b'{"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "1"}, "size": "hunter2"}}'
    )
    event = _DECODER.line(secret)
    assert isinstance(event, Undecodable)
    assert "hunter2" not in event.reason


def test_an_oversized_object_keeps_its_name() -> None:
    decoder = EventDecoder(Thing, limits=limits_of(SERVICES))
    ips = ",".join(['"192.0.2.1"'] * 10_000).encode()
    raw = b'{%s, "spec": {"externalIPs": [%s]}, "size": "odd"}' % (_RAW_META, ips)
    too_large = Undecodable(_NAME, "too large: spec.externalIPs has more than 65536 bytes", is_too_large=True)
    assert decoder.line(b'{"type": "ADDED", "object": %s}' % raw) == too_large
    assert decoder.item(raw) == too_large
    assert decoder.line(b'{"type": "DELETED", "object": %s}' % raw) == Removed(_NAME)


class OwnerAnnotation(msgspec.Struct, frozen=True):
    owner: str | None = None


class AnnotatedMetadata(msgspec.Struct, frozen=True):
    annotations: OwnerAnnotation


class AnnotatedThing(msgspec.Struct, frozen=True):
    metadata: AnnotatedMetadata


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (b'{"owner": "a", "other": "x"}', OwnerAnnotation("a")),
        (b'{"other": "x"}', OwnerAnnotation()),
        (b'{"owner": 1}', None),
        (b"null", None),
    ],
)
def test_fields_of_undecodable_objects_are_kept(annotations: bytes, expected: OwnerAnnotation | None) -> None:
    decoder = EventDecoder(Thing, kept=AnnotatedThing)
    raw = b'{"metadata": {"name": "a", "resourceVersion": "1", "annotations": %s}, "size": "odd"}'
    item = decoder.item(raw % annotations)
    assert isinstance(item, Undecodable)
    assert item.kept == (None if expected is None else AnnotatedThing(AnnotatedMetadata(expected)))


class RawThing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    json: bytes


def parsed(raw: msgspec.Raw) -> RawThing:
    """Keeps the JSON of an object whose size is even."""
    thing = msgspec.json.decode(raw, type=Thing)
    if thing.size % 2:
        raise msgspec.ValidationError("an odd size")
    return RawThing(thing.metadata, bytes(raw))


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            b'{"type": "ADDED", "object": {%s, "size": 2, "x": {}}}' % _RAW_META,
            Put(RawThing(_META, b'{%s, "size": 2, "x": {}}' % _RAW_META)),
        ),
        (b'{"type": "MODIFIED", "object": {%s, "size": 3}}' % _RAW_META, Undecodable(_NAME, "an odd size")),
        (b'{"type": "DELETED", "object": {%s, "size": 3}}' % _RAW_META, Removed(_NAME)),
    ],
)
def test_a_function_parses_the_json_of_an_object(line: bytes, event: Event[RawThing]) -> None:
    assert EventDecoder(parsed).line(line) == event


def test_what_a_function_cannot_read_is_garbage() -> None:
    def fails(raw: msgspec.Raw) -> RawThing:
        raise RecursionError

    with pytest.raises(GarbageError):
        EventDecoder(fails).item(b"{%s}" % _RAW_META)
    with pytest.raises(GarbageError):
        EventDecoder(parsed).item(b'{"metadata": {"name": "a"}}')


def test_an_object_of_any_kind_is_bounded() -> None:
    """One of 15 MiB took a second to be looked at."""
    item = b'{%s, "data": "%s"}' % (_RAW_META, b"," * MAX_OBJECT_BYTES)
    assert _DECODER.item(item) == Undecodable(
        _NAME, f"too large: it has more than {MAX_OBJECT_BYTES} bytes", is_too_large=True
    )
