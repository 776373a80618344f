# SPDX-License-Identifier: Apache-2.0
"""What runs in the DNS scenario: a very small DNS server, and a program that resolves names as any does.

It is started by itself, with Python alone and nothing of ours, and ends when its input does, be it
because the demo was killed. Questions and answers are one line of JSON each:

    {"up": []}                               {}
    {"names": [address, {name: ip}, ip]}     {}   serve these at UDP port 53; the last ip is for all other
                                                  names, which do not exist if it is empty
    {"asked": []}                            {"names": [...]}
    {"lookup": [name]}                       {"addresses": [...], "error": ..., "s": ...}
    {"follow": [name, address, seconds]}     the same of the first lookup that finds this, with "at"
    {"read": [path]}                         {"text": ...}

Names are resolved by the C library, which reads /etc/resolv.conf as it stands where this runs. `s` is
how long it took, `at` a time of the system's monotonic clock, in seconds.
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

# The last names that were asked for.
_asked: deque[str] = deque(maxlen=1000)


def main() -> None:
    """Answer questions until there are no more.

    As in guest_program: each is a file by itself, which can import nothing of the other.
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
    """Answer questions at the address from now on."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, port))
    threading.Thread(target=_serve, args=(server, known, others), daemon=True).start()
    return {}


def asked() -> dict[str, object]:
    """Which names were asked for, the last thousand of them."""
    return {"names": list(_asked)}


def _serve(server: socket.socket, known: Mapping[str, str], others: str) -> None:
    while True:
        data, peer = server.recvfrom(512)
        found = answer(data, known, others)
        if found is None:
            continue
        name, reply = found
        _asked.append(name)
        with contextlib.suppress(OSError):  # whoever asked has gone
            server.sendto(reply, peer)


def answer(data: bytes, known: Mapping[str, str], others: str = "") -> tuple[str, bytes] | None:
    """The name that is asked for, and the reply; None for what is no question (RFC 1035, 4.1)."""
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


# ---- whoever asks


def lookup(name: str) -> dict[str, object]:
    """What the C library finds."""
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
