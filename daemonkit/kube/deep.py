# SPDX-License-Identifier: Apache-2.0
"""Decodes JSON that is nested as deep as an API server takes it. Pure.

msgspec goes no deeper than the interpreter's stack may, 1 000 levels, also in what it skips. A custom
resource with a field of any shape may have more, and nothing of a list or an event could be read then.
"""

import sys
from typing import TypeVar

import msgspec

T = TypeVar("T")

# API servers refuse what is deeper (sigs.k8s.io/json, maxNestingDepth). A list and an event have some
# levels around it, and whoever calls some below. Of C's stack it takes less than 512 KB.
MAX_DEPTH = 10_000 + 2_000


def decode(decoder: "msgspec.json.Decoder[T]", data: msgspec.Raw | bytes) -> T:
    """What `decoder` makes of it. Raises as that does, `RecursionError` for what is deeper still."""
    try:
        return decoder.decode(data)
    except RecursionError:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(MAX_DEPTH)
        try:
            return decoder.decode(data)
        finally:
            sys.setrecursionlimit(limit)
