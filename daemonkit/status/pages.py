# SPDX-License-Identifier: Apache-2.0
"""The responses of the status server, without a socket.

One request without a body in, one whole response out. Everything but a plain GET or HEAD of a known
page, and the PUT of `log_level`, is refused (RFC 9112, 2.2: a recipient SHOULD respond with 400 and close).
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from daemonkit import logs, metrics
from daemonkit.status import log_level

T = TypeVar("T")

_TARGET = re.compile(rb"(/[!->@-~]*)(\?[!-~]*)?")
# Bare line feeds and folded fields, which h11 reads.
_LENIENT = re.compile(rb"(?<!\r)\n|\n[ \t]")
_WEIGHT = re.compile(r"[01](?:\.[0-9]{0,3})?")
# A body would have to be read, and the others ask for another protocol.
_REFUSED_HEADERS = frozenset({b"content-length", b"transfer-encoding", b"upgrade", b"expect"})

_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
# The query of a page of a daemon's own: a few names and addresses.
_MAX_FIELDS = 16

_log = logs.get(__name__)


class Readiness(msgspec.Struct, frozen=True):
    """Whether the daemon does its work, and one line for each part, such as `pods: ok, age 3 s`.

    `reason` is why it is not ready, on one line without ages: it changes only if the cause does.
    """

    is_ready: bool
    lines: tuple[str, ...]
    reason: str = ""

    def summary(self) -> str:
        """`ready`, or `not ready` and why."""
        if self.is_ready:
            return "ready"
        return f"not ready: {self.reason}" if self.reason else "not ready"


class Reply(msgspec.Struct, frozen=True):
    """The answer of one page; `status` is one of those that have a reason here."""

    status: int
    body: bytes
    content_type: str = TEXT

    @classmethod
    def json(cls, value: object, status: int = 200) -> "Reply":
        """A page of values that msgspec encodes, and paths."""
        return cls(status, msgspec.json.encode(value, enc_hook=_encode) + b"\n", JSON)


Query = Mapping[str, str]
"""The fields of a request's query, decoded; of a name that is repeated, the last."""

RenderPage = Callable[[Query], Reply]

PageResponse = bytes | Callable[[], bytes]
"""A response, or what makes it: a call for a thread, as the metrics of 1 000 tenants take 30 ms."""


class Pages:
    """The pages of a daemon: `/healthz`, `/readyz`, `/metrics`, `/status`, `/log-level`, and its own.

    `readiness` and `status` are asked at each request and must not block; what `status` returns
    must be made of values that msgspec encodes, and paths. `own` are further pages by their path;
    they too are called on the loop. With `only` other paths are refused. `gather` has the daemon's other
    processes report what they count, within a bounded time.
    """

    def __init__(
        self,
        registry: metrics.Registry,
        *,
        readiness: Callable[[], Readiness],
        status: Callable[[], dict[str, object]],
        own: Mapping[str, RenderPage] | None = None,
        only: frozenset[str] | None = None,
        gather: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._registry = registry
        self._gather = gather
        self._readiness = readiness
        self._status = status
        self._only = None if only is None else frozenset(path.encode("ascii") for path in only)
        self._own = {path.encode("ascii"): page for path, page in (own or {}).items()}

    async def respond(self, head: bytes, *, can_change: bool = False) -> PageResponse:
        """As `answer`, with what the daemon's other processes count by now."""
        if self._gather is not None:
            await self._gather()
        return self.answer(head, can_change=can_change)

    def answer(self, head: bytes, *, can_change: bool = False) -> PageResponse:
        """Return the response to a request, given its head with the empty line at the end.

        `can_change` is whether the peer may change the log level.
        A page that fails is logged and answered with 500: a page's bug must not look like a dead
        daemon.
        """
        request = _read(head)
        if request is None:
            return _response(Reply(400, b"malformed request\n"))
        path, query = request.path, request.query
        is_head = request.method == b"HEAD"
        if not _REFUSED_HEADERS.isdisjoint(name for name, _ in request.fields):
            return _response(Reply(400, b"requests with a body or an upgrade are not served\n"), is_head)
        if self._only is not None and path not in self._only:
            return _response(Reply(404, b"no such page: " + b" ".join(sorted(self._only)) + b"\n"), is_head)
        if (request.method, path) == (b"PUT", log_level.PATH):
            return _response(_change_level(query) if can_change else Reply(403, log_level.DENIED))
        if not is_head and request.method != b"GET":
            return _response(Reply(405, b"only GET and HEAD\n"))
        if path == b"/metrics":
            accept = b",".join(value for name, value in request.fields if name == b"accept")
            return self._metrics(prefers_openmetrics(accept.decode("latin-1")), is_head)
        return _response(_result_or_500(path, lambda: self._page(path, query)), is_head)

    def _metrics(self, is_openmetrics: bool, is_head: bool) -> PageResponse:
        """Read the metrics now, and render them where the server likes."""
        snapshots = _result_or_500(b"/metrics", self._registry.snapshot)
        if isinstance(snapshots, Reply):
            return _response(snapshots, is_head)
        return lambda: _response(
            _result_or_500(b"/metrics", lambda: _exposition(snapshots, is_openmetrics)), is_head
        )

    def _page(self, path: bytes, query: bytes) -> Reply:
        if path == b"/healthz":
            return Reply(200, b"ok\n")
        if path == b"/readyz":
            readiness = self._readiness()
            body = "".join(f"{line}\n" for line in readiness.lines).encode()
            return Reply(200 if readiness.is_ready else 503, body)
        if path == b"/status":
            return Reply.json(self._status())
        if path == log_level.PATH:
            return Reply.json(log_level.document())
        page = self._own.get(path)
        if page is None:
            known = b" ".join([b"/healthz /readyz /metrics /status", log_level.PATH, *self._own])
            return Reply(404, b"no such page: " + known + b"\n")
        fields = _fields(query[1:])
        return Reply(400, b"malformed query\n") if fields is None else page(fields)


class _PageRequest(msgspec.Struct, frozen=True):
    """`query` begins with its question mark; names of fields are in lower case."""

    method: bytes
    path: bytes
    query: bytes
    fields: tuple[tuple[bytes, bytes], ...]


def _read(head: bytes) -> _PageRequest | None:
    """The request of a head; None for a malformed one."""
    # Loaded at the first request: it would take 7 ms of each start.
    import h11

    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=len(head))
    try:
        connection.receive_data(head)
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    is_known = isinstance(event, h11.Request) and event.http_version in (b"1.0", b"1.1")
    if not isinstance(event, h11.Request) or not is_known or _LENIENT.search(head):
        return None
    target = _TARGET.fullmatch(event.target)
    if target is None or not event.method.isupper():
        return None
    return _PageRequest(event.method, target[1], target[2] or b"", tuple(event.headers))


def _change_level(query: bytes) -> Reply:
    fields = _fields(query[1:])
    problem = "malformed query" if fields is None else log_level.change(fields)
    return Reply(400, f"{problem}\n".encode()) if problem else Reply.json(log_level.document())


def _result_or_500(path: bytes, make: Callable[[], T]) -> T | Reply:
    # A page asks every part of the daemon for its state, and any of them may have a bug. A probe takes
    # an answer without a status line for a dead daemon.
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - a probe would restart the daemon for one faulty page
        _log.error("status page failed", path=path, error=error, traceback=logs.trace(error))
        return Reply(500, b"this page failed; the log has the error\n")


def _exposition(snapshots: tuple[metrics.Snapshot, ...], is_openmetrics: bool) -> Reply:
    # At the first scrape: it takes 3 MB (docs/decisions/0031).
    from daemonkit.status import exposition

    body = exposition.page(snapshots, is_openmetrics=is_openmetrics)
    return Reply(200, body, exposition.OPENMETRICS_TYPE if is_openmetrics else exposition.TEXT_TYPE)


def prefers_openmetrics(accept: str) -> bool:
    """Whether a request's Accept header asks for OpenMetrics 1.0, at least as much as for the older text.

    Media ranges such as `*/*` mean the older text. RFC 9110, 12.5.1: a `q` of 0 is "not acceptable".
    """
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for each in accept.split(","):
        media, *given = (part.strip() for part in each.lower().split(";"))
        parameters = dict(part.partition("=")[::2] for part in given)
        if media in weights and (media == "text/plain" or parameters.get("version", "1.0.0") == "1.0.0"):
            weights[media] = max(weights[media], _weight(parameters.get("q", "1")))
    openmetrics, text = weights.values()
    return openmetrics > 0 and openmetrics >= text


def _weight(text: str) -> float:
    """Of a media range; a malformed one counts for nothing."""
    return float(text) if _WEIGHT.fullmatch(text) else 0.0


def _fields(query: bytes) -> Query | None:
    try:
        return dict(
            parse_qsl(
                query.decode("ascii"),
                keep_blank_values=True,
                strict_parsing=bool(query),
                errors="strict",
                max_num_fields=_MAX_FIELDS,
            )
        )
    except ValueError:  # UnicodeDecodeError among them
        return None


def too_large() -> bytes:
    """Return the response to a head that is larger than the server reads."""
    return _response(Reply(431, b"the request is too large\n"))


def forbidden() -> bytes:
    """Return the response to a client whose certificate has no name that may scrape."""
    return _response(Reply(403, b"no name of the client's certificate is in metrics.clientNames\n"))


def _response(reply: Reply, is_head: bool = False) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(reply.body)}",
        *(["Allow: GET, HEAD"] if reply.status == 405 else []),
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
    return head if is_head else head + reply.body


def _encode(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} in a status")
