# SPDX-License-Identifier: Apache-2.0
"""The answers of vn-agent itself.

Bodies name the failed hop and what to do, in the tenant's names only. A foreign pod, a
missing pod and a missing namespace get the same bytes, without the pod's name.
For stream endpoints the body is a v1 Status, which kubectl decodes; for the rest it is text,
which the apiserver wraps into a Status itself.
"""

import json
import re
from http import HTTPStatus

from vnagent.core.head import ResponseHead
from vnagent.core.kubelet_sentences import known_sentence
from vnagent.core.requests import STREAMS, SUBPROTOCOL, ContainerLogs, Endpoint, Protocol, Stream

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    502: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
TEXTS = {
    "no-such-pod-of-tenant": "no such pod or container on this node; compare with kubectl get pods -o wide",
    "pod-unreadable": "the node agent cannot read this pod's object in the super cluster; "
    "ask the operator of this node",
    "no-such-endpoint": "no such endpoint",
    "endpoint-denied": "this endpoint of the node is not open to tenants",
    "unregistered-identity": "this client certificate is not registered for a tenant; "
    "ask the operator to register the apiserver's kubelet client certificate",
    "role-not-allowed": "this client certificate or token is for metrics pages only",
    "token-with-certificate": "this port takes a client certificate and no Authorization header; "
    "send one of them",
    "too-many-tokens": "too many new tokens from this client's address; try again later",
    "method-not-allowed": "method not allowed",
    "not-synced": "the node agent has not synced the pods of this node yet; try again",
    "pods-stale": "the node agent cannot read the pods of this node now, and its last list lacks this pod or "
    "container; try again, and ask the operator of this node if this persists",
    "draining": "the node agent is shutting down; try again",
    "too-many-tunnels": "too many open streams of this tenant on this node; close some or try again",
    "too-many-log-follows": "too many followed logs of this tenant on this node; end some, or read the logs "
    "without following",
    "too-many-requests": "too many requests of this tenant on this node; try again later",
    "too-many-connections": "too many connections of this tenant on this node; try again later",
    "too-many-lookups": "too many requests of this tenant wait for pods that are unknown on this node; "
    "try again later",
    "too-many-pages": "this tenant requests more pages of this node than its rate allows; try again later",
    "too-much-unread": "this tenant's clients have too many unread answers or incomplete requests; read or "
    "close them, then try again",
    "audit-unavailable": "the node agent cannot record this stream in its audit log and does not open it; "
    "try again later, and ask the operator of this node to check the audit log",
    "head-timeout": "the request did not arrive in time",
    "not-an-upgrade": "unable to upgrade: this endpoint needs an upgrade to SPDY/3.1 or websocket",
    "spdy-needs-post": "unable to upgrade: SPDY/3.1 needs POST",
    "no-stream-asked": "you must specify at least 1 of stdin, stdout, stderr",
    "no-stream-protocol": "unable to upgrade: the client offered no stream protocol of Kubernetes",
    "page-malformed": "the kubelet of this node sent an invalid page",
}
# What tenants read for the server upstream (`UpstreamRequests.hop`), and for its failures: `kubelet-timeout`.
_HOPS = {"kubelet": "the kubelet of this node", "apiserver": "the super cluster's API server"}
_FAILURES = {
    "unreachable": "the node agent cannot reach {hop}",
    "untrusted": "the node agent cannot verify {hop}",
    "timeout": "{hop} did not answer in time",
    "broke-off": "{hop} broke off its answer",
    "malformed": "{hop} sent an invalid answer",
    "too-large": "{hop} sent a page above the node agent's size limit; ask the operator of this node",
    "refused": "{hop} refused the node agent",
    "failed": "{hop} failed to serve the request",
    "refused-upgrade": "unable to upgrade: {hop} did not switch protocols",
}
TEXTS.update(
    {
        f"{hop}-{failure}": text.format(hop=name)
        for hop, name in _HOPS.items()
        for failure, text in _FAILURES.items()
    }
)
# These get one answer: a difference would tell what other tenants run.
_SAME_AS_MISSING = frozenset(
    {"no-such-container-of-tenant", "other-uid", "kubelet-not-found", "apiserver-not-found"}
)

MISSING = "no-such-pod-of-tenant"


def refusal(
    endpoint: Endpoint,
    status: int,
    reason: str,
    request_id: str,
    *,
    is_close: bool,
    is_head: bool = False,
    allow: str | None = None,
    text: str | None = None,
    retry_after_s: int | None = None,
    protocols: str | None = None,
    date: str = "",
) -> bytes:
    """Render a whole refusal. `text` replaces the standard sentence of `reason`."""
    if reason in _SAME_AS_MISSING:
        reason = MISSING
    message = "vcnode: " + (text or TEXTS.get(reason) or f"the request is refused ({reason})")
    if endpoint in STREAMS:
        kind = "application/json"
        body = json.dumps(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": message,
                "reason": _REASONS.get(status, "Unknown"),
                "code": status,
            }
        ).encode()
    else:
        kind = "text/plain; charset=utf-8"
        body = message.encode() + b"\n"
    # RFC 6750, 3. Without an error code: each fault of a token has the same answer.
    extra = 'WWW-Authenticate: Bearer realm="vn-agent"\r\n' if status == 401 else ""
    if allow is not None:
        extra += f"Allow: {allow}\r\n"
    if retry_after_s is not None:
        extra += f"Retry-After: {retry_after_s}\r\n"
    if protocols is not None:
        extra += f"X-Accepted-Stream-Protocol-Versions: {protocols}\r\n"
    return whole_reply(
        status, kind, body, request_id, is_close=is_close, is_head=is_head, extra=extra, date=date
    )


# Of pages, which clients get compressed or not as they ask (RFC 9110, 12.5.5).
VARIES = "Vary: Accept-Encoding\r\n"
GZIP = "Content-Encoding: gzip\r\n"


def whole_reply(
    status: int,
    content_type: str,
    body: bytes,
    request_id: str,
    *,
    is_close: bool,
    is_head: bool = False,
    extra: str = "",
    date: str = "",
    length: int = -1,
) -> bytes:
    """Render a reply; for HEAD with the length and without the body (RFC 9110, 9.3.2).
    `length` is the body's where it is sent separately."""
    if length < 0:
        length = len(body)
    closing = "Connection: close\r\n" if is_close else ""
    stamp = f"Date: {date}\r\n" if date else ""
    head = (
        f"HTTP/1.1 {status} {_phrase(status)}\r\n{stamp}Content-Type: {content_type}\r\n"
        f"Content-Length: {length}\r\nX-Content-Type-Options: nosniff\r\n"
        f"X-Request-Id: {request_id}\r\n{extra}{closing}\r\n"
    ).encode("ascii")
    return head if is_head else head + body


def log_head(head: ResponseHead, request_id: str, *, is_close: bool, date: str = "") -> bytes:
    """The head of a relayed log. A body that the kubelet ends by closing is sent in chunks, so that a
    broken connection does not look like the end of the log."""
    if head.content_length is not None:
        framing = f"Content-Length: {head.content_length}"
    else:
        framing = "Transfer-Encoding: chunked"
    closing = "Connection: close\r\n" if is_close else ""
    stamp = f"Date: {date}\r\n" if date else ""
    return (
        f"HTTP/1.1 200 OK\r\n{stamp}Content-Type: text/plain\r\n{framing}\r\n"
        f"X-Content-Type-Options: nosniff\r\nX-Request-Id: {request_id}\r\n{closing}\r\n"
    ).encode("ascii")


_VALUE = re.compile(rb"[A-Za-z0-9+/=._-]{1,128}")


def switching_head(request: Stream, head: ResponseHead, request_id: str) -> bytes | None:
    """The 101 for the client, or None if the kubelet's 101 does not match the request."""
    fields = head.fields
    protocol = request.upgrade.protocol
    upgraded = fields.get(b"upgrade")
    if (
        upgraded is None
        or upgraded.lower() != protocol.value.lower().encode("ascii")
        or not fields.has_token(b"connection", b"upgrade")
    ):
        return None
    names = (
        (b"x-stream-protocol-version",)
        if protocol is Protocol.SPDY
        else (b"sec-websocket-accept", b"sec-websocket-protocol")
    )
    lines = ""
    for name in names:
        value = fields.get(name)
        if value is not None and _VALUE.fullmatch(value):
            lines += f"{_TITLES[name]}: {value.decode('ascii')}\r\n"
    return (
        f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol.value}\r\n"
        f"{lines}X-Request-Id: {request_id}\r\n\r\n"
    ).encode("ascii")


_TITLES = {
    b"x-stream-protocol-version": "X-Stream-Protocol-Version",
    b"sec-websocket-accept": "Sec-WebSocket-Accept",
    b"sec-websocket-protocol": "Sec-WebSocket-Protocol",
}


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


# ---- The part of a kubelet's refusal that a tenant may read.

_ACCEPTED = b"x-accepted-stream-protocol-versions"
_MAX_ACCEPTED_BYTES = 256


def accepted_protocols(head: ResponseHead) -> str | None:
    """The protocols that a kubelet supports: a 403 with them is a failed handshake,
    not a refusal of our credential, and kubectl needs it to fall back to an older protocol.

    Only names of stream protocols are passed on."""
    value = b",".join(head.fields.all(_ACCEPTED))[:_MAX_ACCEPTED_BYTES].decode("latin-1")
    return ", ".join(filter(SUBPROTOCOL.fullmatch, re.split(r",[ \t]*", value))) or None


# enableDebuggingHandlers: false. It is about the node, whatever the request is.
_DISABLED = ("Debug endpoints are disabled.", "logs endpoint is disabled.")
_DISABLED_TEXT = "logs and streams are switched off at {hop} (enableDebuggingHandlers)"


_NO_SUBPROTOCOL = (
    "unable to upgrade: {hop} speaks none of the WebSocket subprotocols "
    "that were offered; try v4.channel.k8s.io, or SPDY"
)
# An API server's message for the text of a kubelet's 500 (apimachinery, NewInternalError).
_INTERNAL_ERROR = "Internal error occurred: "


def failure_status(reason: str) -> int:
    """The status for a failure of the server upstream."""
    return 504 if reason.endswith("-timeout") else 502


def translate_refusal(
    request: ContainerLogs | Stream, status: int, body: bytes, hop: str = "kubelet"
) -> tuple[int, str, str | None]:
    """Map a refusal of the server upstream, `hop`, to (status, reason, text) for the tenant.

    400, 404, 422 and 429 are about the request and keep their number; a 401 or 403 is about vn-agent's
    credential, and the rest about the node: 502. `body` is at most a few KiB: a kubelet's text, or the v1
    Status of an API server, whose message has the kubelet's text.

    A 403 with an empty body for a WebSocket is about the stream: no subprotocol in common
    (golang.org/x/net/websocket writes only a status line; tests/k8s/samples/replies.yaml,
    "exec by WebSocket version 5"). A 403 about the credential has a text.
    """
    text = body.decode("utf-8", "replace").strip()
    if hop == "apiserver":
        text = _message_of_status(text)
    text = text[:2048]
    if status == 405 and text in _DISABLED:
        return 502, f"{hop}-failed", _DISABLED_TEXT.format(hop=_HOPS[hop])
    sentence = known_sentence(text)
    if status == 404:
        return 404, f"{hop}-not-found", None
    if status in {400, 422, 429}:
        return status, f"{hop}-rejected", sentence or f"{_HOPS[hop]} rejected the request"
    is_websocket = isinstance(request, Stream) and request.upgrade.protocol is Protocol.WEBSOCKET
    if status == 403 and is_websocket and not body:
        return 403, f"{hop}-refused-upgrade", _NO_SUBPROTOCOL.format(hop=_HOPS[hop])
    if status in {401, 403}:
        return 502, f"{hop}-refused", None
    if sentence is not None:
        return 502 if not isinstance(request, Stream) else 500, f"{hop}-failed", sentence
    return 502, f"{hop}-refused-upgrade" if isinstance(request, Stream) else f"{hop}-failed", None


def _message_of_status(text: str) -> str:
    """The kubelet's text in a v1 Status; `text` itself where it is none: a kubelet's answer to an upgrade
    passes an API server unchanged."""
    try:
        status = json.loads(text)
    except (ValueError, RecursionError):
        return text
    message = status.get("message") if isinstance(status, dict) else None
    return message.removeprefix(_INTERNAL_ERROR).strip() if isinstance(message, str) else text
