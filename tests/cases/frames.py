# SPDX-License-Identifier: Apache-2.0
"""Builds the SPDY/3.1 or WebSocket frame that a step describes. The agent relays frames unparsed."""

import re
import struct

_SPDY_TYPES = {
    "syn_stream": 1,
    "syn_reply": 2,
    "rst_stream": 3,
    "settings": 4,
    "ping": 6,
    "goaway": 7,
    "headers": 8,
    "header": 8,
    "window_update": 9,
}
_WEBSOCKET_OPCODES = {"continuation": 0, "text": 1, "binary": 2, "close": 8, "ping": 9, "pong": 10}
_UNITS = {"b": 1, "k": 1024, "m": 1024 * 1024, "g": 1024 * 1024 * 1024}
_SIZE = re.compile(r"(\d+)[ -]?(bytes?|B|KiB|MiB|GiB|KB|MB|GB)\b", re.IGNORECASE)
_MASK = b"\x11\x22\x33\x44"
_MOST_SENT_BYTES = 64 * 1024 * 1024


class FrameError(Exception):
    """The harness does not know this description."""


def make_frame(words: str) -> bytes:
    """The bytes of the frame that `words` describe. Raises FrameError."""
    folded = words.casefold().replace("-", "_").replace("syn stream", "syn_stream")
    match = _SIZE.search(words)
    size = int(match[1]) * _UNITS[match[2][0].lower()] if match else None
    is_claimed = bool(re.search(r"claim|announc|promis|declar|length field", folded))
    if "websocket" in folded or re.search(r"\bws\b", folded):
        return _websocket(words, folded, size, is_claimed)
    if "spdy" in folded or any(name in folded for name in ("syn_stream", "header block", "goaway")):
        return _spdy(words, folded, size, is_claimed)
    if re.search(r"random|garbage|opaque|binary", folded):
        return bytes((i * 131 + i // 251) % 256 for i in range(size or 1024))
    raise FrameError(f"harness does not know the frame {words!r}")


def _spdy(words: str, folded: str, size: int | None, is_claimed: bool) -> bytes:
    """SPDY/3.1, 2.2: control bit, version 3, type, flags, 24-bit length."""
    if re.search(r"\bdata\b", folded):
        return _sized(struct.pack(">I", 1), size or 64, is_claimed)
    for name, number in _SPDY_TYPES.items():
        if name in folded or name.replace("_", " ") in folded:
            default = 4 if name == "ping" else 64
            return _sized(struct.pack(">HH", 0x8003, number), size or default, is_claimed)
    if size is not None or "frame" in folded:
        return _sized(struct.pack(">HH", 0x8003, 1), size or 64, is_claimed)
    raise FrameError(f"harness does not know the frame {words!r}")


def _sized(start: bytes, size: int, is_claimed: bool) -> bytes:
    length = min(size, 0xFFFFFF)
    payload = b"" if is_claimed else b"h" * min(size, _MOST_SENT_BYTES)
    return start + struct.pack(">I", length) + payload  # flags 0 and the 24-bit length


def _websocket(words: str, folded: str, size: int | None, is_claimed: bool) -> bytes:
    """RFC 6455, 5.2: FIN, opcode, masked payload with its channel byte."""
    opcode = next((n for name, n in _WEBSOCKET_OPCODES.items() if name in folded), 2)
    channel = re.search(r"channel (\d+)", folded)
    payload = b"" if channel is None else bytes([int(channel[1]) & 255])
    if "channel" in folded and channel is None:
        raise FrameError(f"harness does not know the frame {words!r}")
    payload += b"w" * ((size or 0) if not is_claimed else 0)
    length = size if is_claimed and size is not None else len(payload)
    if length < 126:
        head = struct.pack(">BB", 0x80 | opcode, 0x80 | length)
    elif length < 65536:
        head = struct.pack(">BBH", 0x80 | opcode, 0x80 | 126, length)
    else:
        head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, length)
    key = int.from_bytes((_MASK * (len(payload) // 4 + 1))[: len(payload)], "big")
    masked = (int.from_bytes(payload, "big") ^ key).to_bytes(len(payload), "big")
    return head + _MASK + masked
