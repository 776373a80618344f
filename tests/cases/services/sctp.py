# SPDX-License-Identifier: Apache-2.0
"""The first packet of an SCTP association, made by hand: a kernel can translate SCTP, and often
cannot speak it. RFC 9260 sections 3.1 and 3.3.2."""

import struct

PROTOCOL = 132
_INIT = 1
_CRC32C = 0x82F63B78  # reversed polynomial
_TABLE = []
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = (_crc >> 1) ^ (_CRC32C if _crc & 1 else 0)
    _TABLE.append(_crc)


def init(source_port: int, port: int) -> bytes:
    """An INIT chunk in a packet, with a verification tag of 0 as it must be."""
    chunk = struct.pack("!BBHIIHHI", _INIT, 0, 20, 0x1234ABCD, 65536, 1, 1, 0x1234ABCD)
    before = struct.pack("!HHI", source_port, port, 0)
    checksum = struct.pack("<I", crc32c(before + bytes(4) + chunk))
    return before + checksum + chunk


def ports(packet: bytes) -> tuple[int, int] | None:
    """The source and destination ports of an INIT; None for another packet."""
    if len(packet) < 13 or packet[12] != _INIT:
        return None
    source, destination = struct.unpack("!HH", packet[:4])
    return source, destination


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
