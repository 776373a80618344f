# SPDX-License-Identifier: Apache-2.0
"""What runs in a guest of the demo: a very small shell that makes HTTP requests, and a very small web server.

It is started by itself, with Python alone and nothing of ours, as the first process of a network
namespace, and holds it: when its input ends, be it because the demo was killed, it ends, and the
namespace and all links in it go with it. Questions and answers are one line of JSON each:

    {"up": []}                                   {}
    {"serve": [port, text]}                      {}
    {"get": [address, port, seconds]}            {"body": ..., "s": ...} or {"error": ..., "s": ...}
    {"until": [address, port, word, seconds]}    the same of the first answer with the word in it, with "at"
    {"leave": [address, port, word, seconds]}    {"last": ..., "answers": ..., "errors": ...}

`s` is how long it took, `at` and `last` are times of the system's monotonic clock, in seconds.
"""

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

TIMEOUT_S = 3.0
# One try of many: a packet that is dropped must not hold up the next, which may get through.
TRY_S = 0.05
# So many answers in a row by others: with two endpoints, chance alone does it once in 33 million.
IN_A_ROW = 25


def main() -> None:
    """Answer questions until there are no more.

    As in dns_program: each is a file by itself, which can import nothing of the other.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the demo's, which ends us
    for line in sys.stdin:
        ((verb, given),) = json.loads(line).items()
        sys.stdout.write(json.dumps(_VERBS[verb](*given)) + "\n")
        sys.stdout.flush()


def up() -> dict[str, object]:
    return {}


def serve(port: int, text: str) -> dict[str, object]:
    """Answer whatever comes to the port with the text, from now on."""
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
                pass  # whoever asked has gone


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
    """Ask again and again until an answer has the word in it."""
    end = time.monotonic() + within_s
    while True:
        answer = get(address, port, TRY_S)
        now = time.monotonic()
        if word in str(answer.get("body", "")) or now > end:
            return {**answer, "at": now}
        time.sleep(0.0005)


def leave(address: str, port: int, word: str, within_s: float) -> dict[str, object]:
    """Ask again and again until the word is in no answer any more; `last` is when it last was."""
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
