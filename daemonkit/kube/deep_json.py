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
