# SPDX-License-Identifier: Apache-2.0
"""An object that is nested deeper than the interpreter's stack does not hide the others of its kind."""

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.deep_json import has_too_many_values
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.resources import VIRTUAL_CLUSTERS, MetadataOnly
from daemonkit.kube.watch import EventDecoder, GarbageError, Put
from daemonkit.tasks import Tasks

# As deep as sigs.k8s.io/json takes it, the levels around it among them.
DEEP = b'{"metadata":{"name":"deep","resourceVersion":"5"},"spec":{"x":%s}}' % (b"[" * 9_990 + b"]" * 9_990)
PLAIN = b'{"metadata":{"name":"plain","resourceVersion":"4"},"spec":{}}'
ENDLESS = b'{"metadata":{"name":"a","resourceVersion":"5"},"spec":%s' % (b"[" * 1_000_000)


class DeepServer:
    """One list, and a watch without events."""

    async def request(
        self, method: str, path: str, params: Mapping[str, str], *, limit_bytes: int = 0
    ) -> bytes:
        return b'{"metadata":{"resourceVersion":"6"},"items":[%s,%s]}' % (DEEP, PLAIN)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async def nothing() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        yield nothing()


@pytest.mark.asyncio
async def test_a_list_with_a_deep_object_is_read() -> None:
    limit = sys.getrecursionlimit()
    reflector = Reflector(DeepServer(), VIRTUAL_CLUSTERS, MetadataOnly)
    tasks = Tasks("test")
    tasks.spawn(reflector.run(), "reflector")
    await asyncio.wait({tasks.spawn(reflector.synced.wait(), "synced")}, timeout=1)
    assert sorted(name for _, name in reflector.objects) == ["deep", "plain"]
    assert await tasks.close(1) == ()
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("kind", [b"ADDED", b"DELETED"])
def test_an_event_with_a_deep_object_is_read(kind: bytes) -> None:
    event = EventDecoder(MetadataOnly).line(b'{"type":"%s","object":%s}' % (kind, DEEP))
    metadata = event.value.metadata if isinstance(event, Put) else getattr(event, "metadata", None)
    assert metadata is not None
    assert metadata.name == "deep"


def test_json_deeper_than_any_api_server_takes_is_garbage() -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(GarbageError):
        EventDecoder(MetadataOnly).line(b'{"type":"ADDED","object":%s}' % ENDLESS)
    assert sys.getrecursionlimit() == limit


_TEXTS = st.text(st.sampled_from('",[{}]:\\\n\u0001é'), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda below: st.lists(below, max_size=6) | st.dictionaries(_TEXTS, below, max_size=6),
    max_leaves=20,
)


def _values(value: object) -> int:
    match value:
        case dict():
            return 1 + sum(map(_values, value.values()))
        case list():
            return 1 + sum(map(_values, value))
        case _:
            return 1


def _count(value: object) -> int:
    """The least limit that this value meets."""
    content = json.dumps(value, separators=(",", ":")).encode()
    return next(most for most in itertools.count(1) if not has_too_many_values(content, most))


@given(_JSON)
def test_values_are_counted_whatever_the_strings_have(value: object) -> None:
    # An empty list or map after a comma counts twice.
    assert _values(value) // 2 <= _count(value) <= 2 * _values(value)


@pytest.mark.parametrize("text", [",", '"', "\\", '\\"', '",', "[{", "é,"])
def test_one_long_text_is_one_value(text: str) -> None:
    content = json.dumps({"data": {"a": text * 1_000}}).encode()
    assert not has_too_many_values(content, 10)
    assert has_too_many_values(content[:-1] + b"," + b'"b":[%s]}' % b",".join([b"1"] * 10), 10)


def test_a_text_without_an_end_has_no_values() -> None:
    assert not has_too_many_values(b'{"a":"' + b"," * 100, 10)
    assert not has_too_many_values(b'{"a":"' + b"," * 100 + b"\\", 10)
