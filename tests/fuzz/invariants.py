# SPDX-License-Identifier: Apache-2.0
"""Invariants that several targets share."""

import zlib
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Longer messages are not fed a byte at a time.
_MAX_BYTEWISE = 600


def divisions(data: bytes) -> Iterator[list[bytes]]:
    """The data in one piece, in single bytes, and in two and three pieces at places that the data decides."""
    yield [data]
    if len(data) <= _MAX_BYTEWISE:
        yield [data[at : at + 1] for at in range(len(data))]
    number = zlib.crc32(data)
    for places in ((number,), (number >> 3, number >> 13)):
        cuts = sorted({place % (len(data) + 1) for place in places})
        yield [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def same_however_divided(data: bytes, read: Callable[[list[bytes]], T]) -> T:
    """What `read` makes of the data, which must not depend on how the data is divided."""
    first, *others = (read(pieces) for pieces in divisions(data))
    for other in others:
        assert other == first, f"divided: {other!r}\nin one piece: {first!r}"
    return first


def only(
    error: type[Exception] | tuple[type[Exception], ...],
    read: Callable[P, T],
    *given: P.args,
    **options: P.kwargs,
) -> T | None:
    """What `read` returns, or None after one of its documented errors. Any other exception passes."""
    try:
        return read(*given, **options)
    except error:
        return None
