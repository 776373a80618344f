# SPDX-License-Identifier: Apache-2.0
"""The program of the DNS scenario: a minimal DNS server, and a resolver of names by the C library.

It imports the standard library alone, and ends with its input, also when the demo is killed. Requests and
replies are one line of JSON each:

    {"up": []}                               {}
    {"names": [address, {name: ip}, ip]}     {}   serve these at UDP port 53; other names get the last ip,
                                                  or NXDOMAIN if it is empty
    {"asked": []}                            {"names": [...]}
    {"lookup": [name]}                       {"addresses": [...], "error": ..., "s": ...}
    {"follow": [name, address, seconds]}     the same of the first lookup that finds this, with "at"
    {"read": [path]}                         {"text": ...}

The C library resolves names by the /etc/resolv.conf of this mount namespace. `s` is the duration and `at` a
time of the system's monotonic clock, in seconds.
"""

import contextlib
import json
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

PORT = 53
TTL_S = 5
_HEADER = struct.Struct("!6H")
_RESPONSE, _AUTHORITATIVE, _RECURSION_DESIRED = 0x8000, 0x0400, 0x0100
_NXDOMAIN = 3
_A, _INTERNET = 1, 1
# A pointer to the name in the question, right behind the header (RFC 1035, 4.1.4).
_SAME_NAME = 0xC000 | _HEADER.size

# The names of the last queries.
_asked: deque[str] = deque(maxlen=1000)


def main() -> None:
    """Answer requests until the input ends.

    As in guest_program: neither file can import the other.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the demo's, which ends us
    for line in sys.stdin:
        ((verb, given),) = json.loads(line).items()
        sys.stdout.write(json.dumps(_VERBS[verb](*given)) + "\n")
        sys.stdout.flush()


def up() -> dict[str, object]:
    return {}


# ---- the server


def names(address: str, known: Mapping[str, str], others: str, port: int = PORT) -> dict[str, object]:
    """Answer queries at the address from now on."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, port))
    threading.Thread(target=_serve, args=(server, known, others), daemon=True).start()
    return {}


def asked() -> dict[str, object]:
    """The names of the last thousand queries."""
    return {"names": list(_asked)}


def _serve(server: socket.socket, known: Mapping[str, str], others: str) -> None:
    while True:
        data, peer = server.recvfrom(512)
        found = answer(data, known, others)
        if found is None:
            continue
        name, reply = found
        _asked.append(name)
        with contextlib.suppress(OSError):  # the client has gone
            server.sendto(reply, peer)


def answer(data: bytes, known: Mapping[str, str], others: str = "") -> tuple[str, bytes] | None:
    """The queried name and the reply; None for a malformed query (RFC 1035, 4.1)."""
    try:
        number, flags, questions, *_ = _HEADER.unpack_from(data)
        name, end = _name(data)
        type_, class_ = struct.unpack_from("!2H", data, end)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if flags & _RESPONSE or questions != 1:
        return None
    ip = known.get(name, others)
    is_found = bool(ip) and (type_, class_) == (_A, _INTERNET)
    flags = _RESPONSE | _AUTHORITATIVE | (flags & _RECURSION_DESIRED) | (0 if ip else _NXDOMAIN)
    reply = _HEADER.pack(number, flags, 1, is_found, 0, 0) + data[_HEADER.size : end + 4]
    if is_found:
        reply += struct.pack("!3HIH", _SAME_NAME, _A, _INTERNET, TTL_S, 4) + socket.inet_aton(ip)
    return name, reply


def _name(data: bytes) -> tuple[str, int]:
    """The name in the question, in lower case, and where it ends."""
    labels, at = [], _HEADER.size
    while size := data[at]:
        labels.append(data[at + 1 : at + 1 + size].decode("ascii").lower())
        at += 1 + size
    return ".".join(labels), at + 1


# ---- the client


def lookup(name: str) -> dict[str, object]:
    """Look a name up with the C library."""
    began = time.monotonic()
    addresses: list[str] = []
    error = ""
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
        addresses = [str(each[4][0]) for each in found]
    except socket.gaierror as problem:
        error = problem.strerror or "not found"
    except UnicodeError as problem:
        error = str(problem)
    return {"addresses": addresses, "error": error, "s": time.monotonic() - began}


def follow(name: str, address: str, within_s: float) -> dict[str, object]:
    """Look up again and again until the name has this address."""
    end = time.monotonic() + within_s
    while True:
        found = lookup(name)
        now = time.monotonic()
        if found["addresses"] == [address] or now > end:
            return {**found, "at": now}
        time.sleep(0.001)


def read(path: str) -> dict[str, object]:
    return {"text": Path(path).read_text("utf-8")}


_VERBS: dict[str, Callable[..., dict[str, object]]] = {
    "up": up,
    "names": names,
    "asked": asked,
    "lookup": lookup,
    "follow": follow,
    "read": read,
}

if __name__ == "__main__":
    main()
