# SPDX-License-Identifier: Apache-2.0
"""Asks the guest's first DNS server for a name exactly as it is given, and prints what it says.

Arguments: name, and type (A, PTR or SRV). Prints `{"code": "NXDOMAIN", "records": []}`; a record is
an address, a name, or port and name. What RFC 1035 4.1 and RFC 2782 say of messages is all it knows.
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
# A name has 255 bytes at most, so no honest chain of pointers is longer.
_MAX_LABELS = 128


def main(name: str, kind: str) -> None:
    number = secrets.randbelow(1 << 16)
    labels = [label.encode() for label in name.rstrip(".").split(".")]
    question = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    message = struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + question + struct.pack("!2H", _TYPES[kind], 1)
    answer = _asked(message, _server())
    sys.stdout.write(json.dumps(_read(answer, kind)))


def _server() -> str:
    lines = Path("/etc/resolv.conf").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("nameserver "))


def _asked(message: bytes, server: str) -> bytes:
    for _ in range(_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(_WAIT_S)
            client.connect((server, 53))
            try:
                client.send(message)
                answer = client.recv(4096)
            except (TimeoutError, ConnectionRefusedError):
                continue
        if answer[:2] == message[:2]:
            return answer
    raise SystemExit(f"{server} does not answer")


def _read(answer: bytes, kind: str) -> dict[str, object]:
    _, flags, questions, count = struct.unpack_from("!4H", answer)
    place, records = 12, []
    for _ in range(questions):
        place = _name(answer, place)[1] + 4
    for _ in range(count):
        place = _name(answer, place)[1]
        of, _, _, size = struct.unpack_from("!2HIH", answer, place)
        place += 10
        if of == _TYPES[kind]:
            records.append(_record(answer, place, kind))
        place += size
    return {"code": _CODES.get(flags & 15, str(flags & 15)), "records": sorted(records)}


def _record(answer: bytes, place: int, kind: str) -> str:
    if kind == "A":
        return socket.inet_ntoa(answer[place : place + 4])
    if kind == "PTR":
        return _name(answer, place)[0]
    (port,) = struct.unpack_from("!H", answer, place + 4)
    return f"{port} {_name(answer, place + 6)[0]}"


def _name(answer: bytes, place: int) -> tuple[str, int]:
    """The name at `place`, and the place behind it."""
    labels: list[str] = []
    end = 0
    for _ in range(_MAX_LABELS):
        size = answer[place]
        if size >= 0xC0:
            end = end or place + 2
            place = struct.unpack_from("!H", answer, place)[0] & 0x3FFF
        elif size:
            labels.append(answer[place + 1 : place + 1 + size].decode())
            place += 1 + size
        else:
            return ".".join(labels), end or place + 1
    raise SystemExit("a name without end")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
