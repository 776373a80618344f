# SPDX-License-Identifier: Apache-2.0
"""Probes by HTTP on a port of the pod: `/livez` and `/readyz`, one request a connection.

A kubelet's exec probe starts a process in the container each period: 25 ms of processor time for Python
alone, and the runtime's own beside it. A request here takes 0.6 ms, with a signature made and verified.
"""

from collections.abc import Callable

MAX_REQUEST_BYTES = 4 << 10
_END = b"\r\n\r\n"


class Health:
    """What the probes report. Each gives a reason, or nothing where all is well."""

    __slots__ = ("fault", "problem", "socket_fault")

    def __init__(
        self, socket_fault: Callable[[], str], fault: Callable[[], str], problem: Callable[[], str]
    ) -> None:
        self.socket_fault = socket_fault
        """Why the API server's endpoint does not lead to this process: only a restart repairs it."""
        self.fault = fault
        """Why no token can be signed."""
        self.problem = problem
        """Why the newest keys are refused. It fails no probe, as the former ones sign on."""


def response(received: bytes, health: Health) -> bytes | None:
    """The response to a request; None while its head is incomplete."""
    if _END not in received:
        return _page(431, "the request is too long") if len(received) > MAX_REQUEST_BYTES else None
    method, _, rest = received.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method != b"GET" or path not in (b"/livez", b"/readyz"):
        return _page(404, "GET /livez or /readyz")
    is_ready = path == b"/readyz"
    fault = health.socket_fault() or (health.fault() if is_ready else "")
    problem = health.problem() if is_ready else ""
    if fault:
        return _page(503, fault)
    return _page(200, f"ok\nnew keys refused: {problem}" if problem else "ok")


def _page(status: int, text: str) -> bytes:
    body = "".join(each if each == "\n" or each.isprintable() else "?" for each in text) + "\n"
    data = body.encode(errors="replace")
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Failed'}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data
