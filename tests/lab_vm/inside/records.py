# SPDX-License-Identifier: Apache-2.0
"""Queries the guest's first DNS server for a name without a search list, and prints the response.

Arguments: name, and type (A, PTR or SRV). Prints `{"code": "NXDOMAIN", "records": []}`; a record is
an address, a name, or port and name. Messages are as in RFC 1035 4.1 and RFC 2782.
"""

import json
import secrets
import socket
import struct
import sys
from pathlib import Path

_TYPES = {"A": 1, "PTR": 12, "SRV": 33}
_CODES = {0: "NOERROR", 2: "SERVFAIL", 3: "NXDOMAIN", 5: "REFUSED"}
_WAIT_S = 3.0
_TRIES = 3
# A name has 255 bytes at most, so a valid chain of pointers is shorter.
_MAX_LABELS = 128


def main(name: str, kind: str) -> None:
    number = secrets.randbelow(1 << 16)
    labels = [label.encode() for label in name.rstrip(".").split(".")]
    name_bytes = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    message = (
        struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + name_bytes + struct.pack("!2H", _TYPES[kind], 1)
    )
    response = _query(message, _server())
    sys.stdout.write(json.dumps(_read(response, kind)))


def _server() -> str:
    lines = Path("/etc/resolv.conf").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("nameserver "))


def _query(message: bytes, server: str) -> bytes:
    for _ in range(_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(_WAIT_S)
            client.connect((server, 53))
            try:
                client.send(message)
                response = client.recv(4096)
            except (TimeoutError, ConnectionRefusedError):
                continue
        if response[:2] == message[:2]:
            return response
    raise SystemExit(f"{server} does not respond")


def _read(response: bytes, kind: str) -> dict[str, object]:
    _, flags, questions, count = struct.unpack_from("!4H", response)
    offset, records = 12, []
    for _ in range(questions):
        offset = _name(response, offset)[1] + 4
    for _ in range(count):
        offset = _name(response, offset)[1]
        of, _, _, size = struct.unpack_from("!2HIH", response, offset)
        offset += 10
        if of == _TYPES[kind]:
            records.append(_record(response, offset, kind))
        offset += size
    return {"code": _CODES.get(flags & 15, str(flags & 15)), "records": sorted(records)}


def _record(response: bytes, offset: int, kind: str) -> str:
    if kind == "A":
        return socket.inet_ntoa(response[offset : offset + 4])
    if kind == "PTR":
        return _name(response, offset)[0]
    (port,) = struct.unpack_from("!H", response, offset + 4)
    return f"{port} {_name(response, offset + 6)[0]}"


def _name(response: bytes, offset: int) -> tuple[str, int]:
    """The name at `offset`, and the offset after it."""
    labels: list[str] = []
    end = 0
    for _ in range(_MAX_LABELS):
        size = response[offset]
        if size >= 0xC0:
            end = end or offset + 2
            offset = struct.unpack_from("!H", response, offset)[0] & 0x3FFF
        elif size:
            labels.append(response[offset + 1 : offset + 1 + size].decode())
            offset += 1 + size
        else:
            return ".".join(labels), end or offset + 1
    raise SystemExit("a name without end")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
