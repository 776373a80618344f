# SPDX-License-Identifier: Apache-2.0
"""Decodes JSON that is nested as deep as an API server takes it. Pure.

msgspec goes no deeper than the interpreter's stack may, 1 000 levels, also in what it skips. A custom
resource with a field of any shape may have more, and nothing of a list or an event could be read then.
"""

import sys
import threading
from typing import TypeVar

import msgspec

T = TypeVar("T")

# API servers refuse JSON that is nested deeper than 10 000 levels (sigs.k8s.io/json, maxNestingDepth). A
# list or an event adds some levels around the object, and the caller's own frames count too. All of it takes
# less than 512 KB of C's stack.
MAX_DEPTH = 10_000 + 2_000
# The limit is the process's: two threads that raise it would leave it raised.
_RAISING = threading.Lock()


def decode(decoder: "msgspec.json.Decoder[T]", data: msgspec.Raw | bytes | memoryview) -> T:
    """Decode it. Raises as `decoder` does, and `RecursionError` beyond MAX_DEPTH."""
    try:
        return decoder.decode(data)
    except RecursionError:
        with _RAISING:
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(MAX_DEPTH)
            try:
                return decoder.decode(data)
            finally:
                sys.setrecursionlimit(limit)


# Of a custom resource as large as etcd takes it, each in 20 bytes, are fewer. A copy of so many as Python's
# objects takes some 15 MB and a tenth of a second.
MAX_VALUES = 200_000
# The characters before each value but the first of a list or a map.
_BEFORE_VALUES = b",[{"


def has_too_many_values(data: msgspec.Raw | bytes | memoryview, most: int = MAX_VALUES) -> bool:
    """Whether JSON has more values than this: 5 MiB of `[],` are 1.7 million lists.

    A server that sends such objects would else take the memory and the time of all that this process serves.
    So it is found out before anything is decoded, in at most 4 ms for each MiB, whatever the strings have.
    """
    if len(data) <= 2 * most:
        return False  # each value has two characters at least, with what separates it
    content = bytes(data)
    if _count(content) <= most:
        return False
    if b"\\" in content:
        # Without escaped quotes each quote begins or ends a string.
        content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Each string is a value or the name of one. This decides about most such objects, and the others have
    # not many strings to leave out.
    if content.count(b'"') > 4 * most:
        return True
    return _count(b"".join(content.split(b'"')[::2])) > most


def has_as_many(content: bytes, character: bytes, times: int) -> bool:
    """Whether bytes have a character so often. `bytes.count`, which looks at each, takes twice the time."""
    return len(content) - len(content.replace(character, b"", times)) >= times


def _count(content: bytes) -> int:
    """The values, or a few more: each but the first of a list or map follows a comma."""
    return len(content) - len(content.translate(None, _BEFORE_VALUES))
