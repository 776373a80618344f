# SPDX-License-Identifier: Apache-2.0
"""TLS ClientHellos: the same verdict however they arrive, and bounds that hold for what passes."""

import struct

from daemonkit.admission.client_hello import MAX_BYTES, MAX_EXTENSIONS, HelloError, extensions, may_read
from kata_bridge.channels.agent.tls_hello import HelloVerdict, inspect_hello
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget

_HANDSHAKE_HEADER = 4


def check(data: bytes) -> None:
    found = only(HelloError, extensions, data)
    if may_read(data):
        assert found is not None
        assert len(data) <= MAX_BYTES
        assert len(found) <= MAX_EXTENSIONS
    if found:
        assert all(0 <= at <= at + size <= len(data) for _, at, size in found)
        # The list is the message's end: written again, it is the same.
        written = b"".join(struct.pack(">HH", kind, size) + data[at : at + size] for kind, at, size in found)
        assert data.endswith(written) or len(found) > MAX_EXTENSIONS
    verdict = inspect_hello(data)
    if verdict is not HelloVerdict.INCOMPLETE:
        # More bytes change no verdict.
        assert inspect_hello(data + b"\x16\x03\x01\x00\x01\x00") is verdict
    if len(data) <= 400:
        verdicts = [inspect_hello(data[:at]) for at in range(len(data))]
        final = next((each for each in verdicts if each is not HelloVerdict.INCOMPLETE), verdict)
        assert final is verdict
    message = b"\x01" + len(data).to_bytes(3) + data
    for size in (1 << 14, 40):
        parts = [message[at : at + size] for at in range(0, len(message), size)]
        records = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in parts[:32])
        verdict = inspect_hello(records)
        if len(parts) <= 32:
            assert verdict is not HelloVerdict.INCOMPLETE
            assert (verdict is HelloVerdict.TLS13) <= may_read(message)


def _body(*listed: tuple[int, bytes]) -> bytes:
    content = b"".join(struct.pack(">HH", kind, len(value)) + value for kind, value in listed)
    return (
        b"\x03\x03"
        + bytes(32)
        + b"\x00\x00\x04\x13\x01\x13\x02\x01\x00"
        + struct.pack(">H", len(content))
        + content
    )


_VERSIONS = (43, b"\x04\x03\x04\x03\x03")
_GROUPS = (10, b"\x00\x04\x00\x1d\x00\x17")
_BODY = _body((0, b"\x00\x05\x00\x00\x02ab"), _GROUPS, _VERSIONS, (13, b"\x00\x02\x04\x03"))
_MESSAGE = b"\x01" + len(_BODY).to_bytes(3) + _BODY
TARGET = FuzzTarget(
    check,
    seeds=(
        _BODY,
        _MESSAGE,
        b"\x16\x03\x01" + len(_MESSAGE).to_bytes(2) + _MESSAGE,
        b"\x16\x03\x01\x00\x05"
        + _MESSAGE[:5]
        + b"\x16\x03\x03"
        + (len(_MESSAGE) - 5).to_bytes(2)
        + _MESSAGE[5:],
        _body(*([(0x0A0A, b"")] * 66)),
        _body((47, b"\x01\x00" + bytes(256)), _VERSIONS),
        _body((43, b"\x02\x03\x03")),
        b"\x03\x03" + bytes(32) + b"\x00\x00\x02\x00\x2f\x01\x00",
    ),
    tokens=(
        *(
            b"\x00\x2b\x00\x05\x04\x03\x04\x03\x03",
            b"\x00\x00",
            b"\xff\xff",
            b"\x16\x03\x01\x00\x01",
            b"\x00\x0a\x00\x00",
        ),
        *(
            b"\x16\x03\x03\x40\x00",
            b"\x16\x03\x03\x40\x01",
            b"\x01\x00\x00",
            b"\x00\x05\x01\x01",
            b"\x00\x2b\x00\x01\x00",
        ),
    ),
)
