# SPDX-License-Identifier: Apache-2.0
"""The closed set of requests that a tenant may make of a node's kubelet.

`parse` turns a head into one of four typed requests, or into a Refusal. The path and query are not used
again: the kubelet's request is built from these values. The policy of each
endpoint is the table of docs/spec/kubelet-api.md: proxied (containerLogs, exec, attach, portForward),
rebuilt for the tenant (the pages), answered by vn-agent (healthz), and refused (all others).
"""

import base64
import binascii
import enum
import re
from typing import Final, NamedTuple

from tenancy.names import (
    LABEL_MAX_CHARS,
    LABEL_PATTERN,
    SUBDOMAIN_MAX_CHARS,
    SUBDOMAIN_PATTERN,
    is_dns_label,
    is_pod_name,
    is_uid,
)
from vnagent.core.head import RequestHead
from vnagent.core.query import (
    QUERY_PATTERN,
    QueryError,
    parse_log_options,
    parse_page_options,
    parse_stream_options,
)


class Endpoint(enum.StrEnum):
    """The endpoint's name in audit lines and metrics: a fixed set, whatever the path is."""

    CONTAINER_LOGS = "containerLogs"
    EXEC = "exec"
    ATTACH = "attach"
    PORT_FORWARD = "portForward"
    PODS = "pods"
    RUNNING_PODS = "runningpods"
    STATS_SUMMARY = "stats/summary"
    METRICS_RESOURCE = "metrics/resource"
    METRICS_CADVISOR = "metrics/cadvisor"
    METRICS_PROBES = "metrics/probes"
    HEALTHZ = "healthz"
    DENIED = "denied"
    UNKNOWN = "unknown"
    MALFORMED = "malformed"


_STREAM_FLAGS: Final = frozenset({"input", "output", "error"})
STREAMS: Final = frozenset({Endpoint.EXEC, Endpoint.ATTACH, Endpoint.PORT_FORWARD})


class Protocol(enum.Enum):
    """How a stream endpoint is upgraded; the value is the token of the Upgrade field."""

    SPDY = "SPDY/3.1"
    WEBSOCKET = "websocket"


class Upgrade(NamedTuple):
    """A well-formed handshake. `subprotocols` keep their order: the server picks the first it knows.

    `websocket_key` is the client's nonce; the kubelet computes its answer.
    """

    protocol: Protocol
    subprotocols: tuple[str, ...]
    websocket_key: str | None


class ContainerLogs(NamedTuple):
    namespace: str
    pod: str
    container: str
    options: tuple[tuple[str, str], ...]
    is_follow: bool

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint.CONTAINER_LOGS

    @property
    def uid(self) -> None:
        """None: containerLogs has no form with a UID."""
        return None


class Stream(NamedTuple):
    """exec, attach or portForward; `container` is None for portForward only."""

    endpoint: Endpoint
    namespace: str
    pod: str
    uid: str | None
    container: str | None
    options: tuple[tuple[str, str], ...]
    upgrade: Upgrade

    @property
    def has_streams(self) -> bool:
        """Whether exec or attach requests at least one of the three streams."""
        return self.container is None or any(
            key in _STREAM_FLAGS and value in {"1", "true"} for key, value in self.options
        )


class PageRequest(NamedTuple):
    endpoint: Endpoint
    is_head: bool
    only_cpu_and_memory: bool
    accepts_gzip: bool = False


class Health(NamedTuple):
    is_head: bool

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint.HEALTHZ


class Refusal(NamedTuple):
    """A request that is refused without the index or the kubelet.

    `must_close`: the bytes behind it may be no request.
    """

    endpoint: Endpoint
    status: int
    reason: str
    must_close: bool = False
    allow: str | None = None


Request = ContainerLogs | Stream | PageRequest | Health | Refusal

PAGE_ENDPOINTS: Final = {
    "/pods": Endpoint.PODS,
    "/pods/": Endpoint.PODS,
    "/runningpods": Endpoint.RUNNING_PODS,
    "/runningpods/": Endpoint.RUNNING_PODS,
    "/stats/summary": Endpoint.STATS_SUMMARY,
    "/metrics/resource": Endpoint.METRICS_RESOURCE,
    "/metrics/cadvisor": Endpoint.METRICS_CADVISOR,
    "/metrics/probes": Endpoint.METRICS_PROBES,
}
_HEALTH: Final = frozenset({"/healthz", "/healthz/", "/healthz/ping", "/healthz/log", "/healthz/syncloop"})
# Real kubelet endpoints that show the host or other tenants, or that change the node.
_DENIED: Final = frozenset(
    {
        "logs",
        "run",
        "checkpoint",
        "configz",
        "statusz",
        "flagz",
        "debug",
        "spec",
        "cri",
        "stats",
        "metrics",
    }
)
_POD_ENDPOINTS: Final = {
    "containerLogs": Endpoint.CONTAINER_LOGS,
    "exec": Endpoint.EXEC,
    "attach": Endpoint.ATTACH,
    "portForward": Endpoint.PORT_FORWARD,
}

# Names in Kubernetes paths have no percent, semicolon or backslash; with one, two parsers may read two
# paths.
_QUERY = rf"(?:\?({QUERY_PATTERN}))?"
_TARGET = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,=:@/\-]*+)" + _QUERY)
# Most requests, in one match; others are parsed segment by segment.
_LOGS_TARGET = re.compile(
    rf"/containerLogs/({LABEL_PATTERN})/({SUBDOMAIN_PATTERN})/({LABEL_PATTERN})" + _QUERY
)
# The subprotocols of Kubernetes streams, past and to come. Entries of other forms are not
# passed on: one form carries the caller's bearer token (base64url.bearer.authorization.k8s.io).
SUBPROTOCOL = re.compile(
    r"(?:v[1-9][0-9]?\.)?(?:base64\.)?(?:channel|portforward)\.k8s\.io|SPDY/3\.1\+portforward\.k8s\.io"
)
_MAX_SUBPROTOCOLS = 16
# The names of the longest path have 510 characters together. A longer path is not parsed: patterns and
# segments of 190 KB cost up to 27 ms.
MAX_PATH_CHARS = 1000


def parse(head: RequestHead) -> Request:
    """Turn a request head into a typed request. Total: an unknown request is a Refusal."""
    target = head.target
    if len(target) > MAX_PATH_CHARS and target.find("?", 0, MAX_PATH_CHARS + 1) < 0:
        return Refusal(Endpoint.MALFORMED, 400, "malformed-target", must_close=True)
    if head.method == "GET" and head.has_head_only:
        logs = _LOGS_TARGET.fullmatch(target)
        if logs is not None:
            namespace, pod, container, query = logs.groups("")
            is_short = len(namespace) <= LABEL_MAX_CHARS and len(container) <= LABEL_MAX_CHARS
            if is_short and len(pod) <= SUBDOMAIN_MAX_CHARS:
                return _parse_logs(namespace, pod, container, query)
    parts = _TARGET.fullmatch(target)
    if parts is None:
        return Refusal(Endpoint.MALFORMED, 400, "malformed-target", must_close=True)
    if head.has_transfer_coding or head.content_length:
        # No endpoint takes a body. Content-Length: 0 passes: Go writes it on every POST without one.
        return Refusal(Endpoint.MALFORMED, 400, "body-not-allowed", must_close=True)
    path, query = parts[1], parts[2] or ""
    segments = path[1:].split("/")
    if "." in segments or ".." in segments or "" in segments[:-1]:
        return Refusal(Endpoint.MALFORMED, 400, "malformed-path", must_close=True)
    pod_endpoint = _POD_ENDPOINTS.get(segments[0])
    if pod_endpoint is not None:
        return _parse_pod_request(head, pod_endpoint, segments[1:], query)
    page = PAGE_ENDPOINTS.get(path)
    if page is not None:
        return _parse_page(head, page, query)
    if path in _HEALTH:
        return _refuse_method(head, Endpoint.HEALTHZ, ("GET", "HEAD")) or Health(head.method == "HEAD")
    if segments[0] in _DENIED:
        return Refusal(Endpoint.DENIED, 403, "endpoint-denied", must_close=_is_upgrade(head))
    return Refusal(Endpoint.UNKNOWN, 404, "no-such-endpoint", must_close=_is_upgrade(head))


def _is_upgrade(head: RequestHead) -> bool:
    return head.fields.get(b"upgrade") is not None


def _refuse_method(head: RequestHead, endpoint: Endpoint, allow: tuple[str, ...]) -> Refusal | None:
    if head.method not in allow:
        must_close = _is_upgrade(head)
        return Refusal(endpoint, 405, "method-not-allowed", must_close, allow=", ".join(allow))
    if endpoint not in STREAMS and _is_upgrade(head):
        return Refusal(endpoint, 400, "upgrade-not-offered", must_close=True)
    return None


def _parse_page(head: RequestHead, endpoint: Endpoint, query: str) -> PageRequest | Refusal:
    is_stats = endpoint is Endpoint.STATS_SUMMARY
    refusal = _refuse_method(head, endpoint, ("GET", "HEAD", "POST") if is_stats else ("GET", "HEAD"))
    if refusal is not None:
        return refusal
    # The other pages take no parameter: a scraper's is ignored.
    only_cpu_and_memory = parse_page_options(query) if is_stats else False
    return PageRequest(endpoint, head.method == "HEAD", only_cpu_and_memory, _accepts_gzip(head))


# A member of Accept-Encoding (RFC 9110, 12.5.3). A weight of zero refuses the coding.
_CODING = re.compile(
    rb"[ \t]{0,8}(gzip|x-gzip|\*)[ \t]{0,8}(?:;[ \t]{0,8}[qQ]=([01](?:\.[0-9]{0,3})?))?[ \t]{0,8}"
)
_MAX_MEMBERS = 16


def _accepts_gzip(head: RequestHead) -> bool:
    """Whether the client takes gzip: by its own name, or by `*` where the name is not listed."""
    weights: dict[bytes, bool] = {}
    for line in head.fields.all(b"accept-encoding"):
        for member in line.lower().split(b",", _MAX_MEMBERS)[:_MAX_MEMBERS]:
            found = _CODING.fullmatch(member)
            if found is not None:
                name = found[1].removeprefix(b"x-")
                weights[name] = found[2] is None or float(found[2]) > 0
    return weights.get(b"gzip", weights.get(b"*", False))


def _parse_logs(namespace: str, pod: str, container: str, query: str) -> ContainerLogs | Refusal:
    try:
        options, is_follow = parse_log_options(query)
    except QueryError as error:
        return Refusal(Endpoint.CONTAINER_LOGS, error.status, error.reason, must_close=True)
    return ContainerLogs(namespace, pod, container, options, is_follow)


def _parse_pod_request(
    head: RequestHead, endpoint: Endpoint, names: list[str], query: str
) -> ContainerLogs | Stream | Refusal:
    is_logs = endpoint is Endpoint.CONTAINER_LOGS
    is_forward = endpoint is Endpoint.PORT_FORWARD
    container = None if is_forward or not names else names.pop()
    wanted = (2,) if is_logs else (2, 3)
    if len(names) not in wanted:
        return Refusal(Endpoint.UNKNOWN, 404, "no-such-endpoint", must_close=_is_upgrade(head))
    refusal = _refuse_method(head, endpoint, ("GET",) if is_logs else ("GET", "POST"))
    if refusal is not None:
        return refusal
    namespace, pod = names[0], names[1]
    uid = names[2] if len(names) == 3 else None
    if (
        not is_dns_label(namespace)
        or not is_pod_name(pod)
        or (container is not None and not is_dns_label(container))
        or (uid is not None and not is_uid(uid))
    ):
        return Refusal(endpoint, 400, "malformed-name", must_close=True)
    if is_logs and container is not None:
        return _parse_logs(namespace, pod, container, query)
    try:
        stream_options = parse_stream_options(query, is_exec=endpoint is Endpoint.EXEC, is_forward=is_forward)
    except QueryError as error:
        return Refusal(endpoint, error.status, error.reason, must_close=True)
    upgrade = _parse_upgrade(head)
    if isinstance(upgrade, str):
        return Refusal(endpoint, 400, upgrade, must_close=True)
    return Stream(endpoint, namespace, pod, uid, container, stream_options, upgrade)


def _parse_upgrade(head: RequestHead) -> Upgrade | str:
    """Read the handshake of a stream endpoint; a string is the reason of its refusal.

    The tokens are compared whole. Go looks for the substring `upgrade` in Connection, so
    `Connection: notupgrade` upgrades there; a proxy that agrees by accident is half an attack.
    """
    fields = head.fields
    token = fields.get(b"upgrade")
    if token is None or not fields.has_token(b"connection", b"upgrade"):
        return "not-an-upgrade"
    if token.lower() == b"spdy/3.1":
        # GET + SPDY would make a right to read (`get nodes/proxy`) a right to run commands.
        if head.method != "POST":
            return "spdy-needs-post"
        versions = _subprotocols(fields.all(b"x-stream-protocol-version"))
        return Upgrade(Protocol.SPDY, versions, None) if versions else "no-stream-protocol"
    if token.lower() != b"websocket":
        return "unknown-upgrade"
    if head.method != "GET" or fields.get(b"sec-websocket-version") != b"13":
        return "malformed-websocket-handshake"
    key = fields.get(b"sec-websocket-key") or b""
    try:
        is_nonce = len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        is_nonce = False
    if not is_nonce:
        return "malformed-websocket-handshake"
    offered = fields.all(b"sec-websocket-protocol")
    subprotocols = _subprotocols(offered)
    if offered and not subprotocols:
        return "no-stream-protocol"
    return Upgrade(Protocol.WEBSOCKET, subprotocols, key.decode("ascii"))


def _subprotocols(lines: tuple[bytes, ...]) -> tuple[str, ...]:
    entries = [entry.strip(b" \t").decode("latin-1") for line in lines for entry in line.split(b",")]
    return tuple(entry for entry in entries if SUBPROTOCOL.fullmatch(entry))[:_MAX_SUBPROTOCOLS]
