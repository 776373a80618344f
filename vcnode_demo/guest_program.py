# SPDX-License-Identifier: Apache-2.0
"""The program of a guest in the demo: a minimal HTTP client and web server.

It imports the standard library alone. As the first process of a network namespace it holds that namespace.
It ends with its input, also when the demo is killed; the namespace and its links end with it. Requests and
replies are one line of JSON each:

    {"up": []}                                   {}
    {"serve": [port, text]}                      {}
    {"get": [address, port, seconds]}            {"body": ..., "s": ...} or {"error": ..., "s": ...}
    {"until": [address, port, word, seconds]}    the same of the first answer with the word in it, with "at"
    {"leave": [address, port, word, seconds]}    {"last": ..., "answers": ..., "errors": ...}

`s` is the duration; `at` and `last` are times of the system's monotonic clock, in seconds.
"""

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

TIMEOUT_S = 3.0
# One attempt of many: a dropped packet must not delay the next attempt.
TRY_S = 0.05
# Answers in a row by other endpoints: with two endpoints, chance yields it once in 33 million.
IN_A_ROW = 25


def main() -> None:
    """Answer requests until the input ends.

    As in dns_program: neither file can import the other.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the demo's, which ends us
    for line in sys.stdin:
        ((verb, given),) = json.loads(line).items()
        sys.stdout.write(json.dumps(_VERBS[verb](*given)) + "\n")
        sys.stdout.flush()


def up() -> dict[str, object]:
    return {}


def serve(port: int, text: str) -> dict[str, object]:
    """Answer each connection to the port with the text, from now on."""
    listener = socket.create_server(("", port), backlog=64)
    threading.Thread(target=_accept, args=(listener, text.encode()), daemon=True).start()
    return {}


def _accept(listener: socket.socket, text: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(text)
    while True:
        connection = listener.accept()[0]
        with connection:
            connection.settimeout(TIMEOUT_S)
            try:
                connection.recv(4096)
                connection.sendall(head + text)
            except OSError:
                pass  # the client has gone


def get(address: str, port: int, within_s: float) -> dict[str, object]:
    """One request on a connection of its own."""
    began = time.monotonic()
    try:
        with socket.create_connection((address, port), within_s) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
            data = b""
            while more := connection.recv(4096):
                data += more
    except OSError as error:
        return {"error": error.strerror or "timed out", "s": time.monotonic() - began}
    return {"body": data.partition(b"\r\n\r\n")[2].decode(), "s": time.monotonic() - began}


def until(address: str, port: int, word: str, within_s: float) -> dict[str, object]:
    """Send requests until an answer has the word."""
    end = time.monotonic() + within_s
    while True:
        answer = get(address, port, TRY_S)
        now = time.monotonic()
        if word in str(answer.get("body", "")) or now > end:
            return {**answer, "at": now}
        time.sleep(0.0005)


def leave(address: str, port: int, word: str, within_s: float) -> dict[str, object]:
    """Send requests until answers stop to have the word; `last` is the time of the last one that had it."""
    last, answers, errors, in_a_row = 0.0, 0, 0, 0
    end = time.monotonic() + within_s
    while in_a_row < IN_A_ROW and time.monotonic() < end:
        answer = get(address, port, TIMEOUT_S)
        answers += 1
        errors += "error" in answer
        if word in str(answer.get("body", "")):
            last, in_a_row = time.monotonic(), 0
        else:
            in_a_row += 1
    return {"last": last, "answers": answers, "errors": errors, "left": in_a_row >= IN_A_ROW}


_VERBS: dict[str, Callable[..., dict[str, object]]] = {
    "up": up,
    "serve": serve,
    "get": get,
    "until": until,
    "leave": leave,
}

if __name__ == "__main__":
    main()
