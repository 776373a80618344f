# SPDX-License-Identifier: Apache-2.0
"""What the probes answer."""

import pytest

from vc_signer.probe import MAX_REQUEST_BYTES, Health, response


def health(socket_fault: str = "", fault: str = "", problem: str = "") -> Health:
    return Health(lambda: socket_fault, lambda: fault, lambda: problem)


def page(status: str, text: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
    return f"{head}Connection: close\r\n\r\n{text}".encode()


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 10.0.0.1:6444\r\nUser-Agent: kube-probe/1.34\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("path", "found", "status", "text"),
    [
        ("/livez", health(), "200 OK", "ok\n"),
        ("/readyz?verbose", health(), "200 OK", "ok\n"),
        ("/readyz", health(problem="x.pub: no key"), "200 OK", "ok\nnew keys refused: x.pub: no key\n"),
        ("/readyz", health(fault="no\x00usable keys"), "503 Failed", "no?usable keys\n"),
        ("/livez", health(fault="no usable keys"), "200 OK", "ok\n"),
        ("/livez", health("/run/s: gone"), "503 Failed", "/run/s: gone\n"),
        ("/readyz", health("/run/s: gone", "no usable keys"), "503 Failed", "/run/s: gone\n"),
        ("/metrics", health(), "404 Failed", "GET /livez or /readyz\n"),
    ],
)
def test_probes(path: str, found: Health, status: str, text: str) -> None:
    assert response(get(path), found) == page(status, text)


def test_other_requests_are_refused() -> None:
    assert response(b"POST /readyz HTTP/1.1\r\n\r\n", health()) == page(
        "404 Failed", "GET /livez or /readyz\n"
    )
    assert response(get("/readyz")[:-1], health()) is None
    long = b"GET /" + b"x" * MAX_REQUEST_BYTES
    assert response(long, health()) == page("431 Failed", "the request is too long\n")
