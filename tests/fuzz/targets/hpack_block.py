# SPDX-License-Identifier: Apache-2.0
"""Header blocks of gRPC's server, against the library hpack: what both read is the same."""

import hpack

from daemonkit.http2 import Http2Error, literal
from guest_agent.http2.hpack import read_headers
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget

_CODED = "(coded)"
_REPLACED = "\N{REPLACEMENT CHARACTER}"


def check(block: bytes) -> None:
    """Ours keeps of each literal name the last value, and of names in the static table only `:status`."""
    ours = only(Http2Error, read_headers, block)
    theirs = _read_by_hpack(block)
    if theirs is None:
        # Theirs checks more of what we do not use. Ours reads no more fields than there are bytes.
        assert ours is None or len(ours) <= len(block)
        return
    assert ours is not None, f"refused, and hpack reads {theirs!r}"
    assert (":status" in ours) >= any(name == ":status" for name, _ in theirs)
    last = dict(theirs)
    for name, value in ours.items():
        if _CODED in (name, value) or _REPLACED in name + value:
            continue
        assert last.get(name) == value, f"{name!r}: {value!r} is not {last.get(name)!r}"
    plain = [pair for pair in ours.items() if max(len(part.encode()) for part in pair) < 0x7F]
    assert read_headers(b"".join(literal(*pair) for pair in plain)) == dict(plain)


def _read_by_hpack(block: bytes) -> list[tuple[str, str]] | None:
    decoder = hpack.Decoder(max_header_list_size=1 << 20)
    decoder.header_table_size = 0
    decoder.max_allowed_table_size = 0
    try:
        found = decoder.decode(block, raw=True)
    except (hpack.HPACKError, IndexError):
        return None
    return [
        (bytes(name).decode("utf-8", "replace"), bytes(value).decode("utf-8", "replace"))
        for name, value in found
    ]


_TRAILERS = literal("grpc-status", "12") + literal("grpc-message", "no%20such")
TARGET = FuzzTarget(
    check,
    seeds=(
        b"\x88\x0f\x10\x10application/grpc",
        b"\x20" + _TRAILERS,
        b"\x88\x40\x0agrpc-trace\x81\xff" + _TRAILERS,
        b"\x48\x03200\x10\x07private\x02ab\x8d\x84",
        hpack.Encoder().encode([(":status", "200"), ("content-type", "application/grpc"), ("a", "b" * 200)]),
    ),
    tokens=(
        *(
            b"\x20",
            b"\x3f",
            b"\x3f\xe1\x1f",
            b"\x80",
            b"\x88",
            b"\xff",
            b"\xff\x00",
            b"\xff\x80\x80\x80\x80\x01",
        ),
        *(
            b"\x7f\x00",
            b"\x40",
            b"\x10",
            b"\x0f",
            b"\x00",
            b"\x08\x03404",
            b"\xbd",
            b"\xbe",
            b"\x7f\x81\x01",
            b"\x9f",
        ),
    ),
    max_bytes=1024,
)
