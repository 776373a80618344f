# SPDX-License-Identifier: Apache-2.0
"""What a healthy kubelet answers: statuses, headers and error texts as one of version 1.34 gives them.

tests/k8s/samples/replies.yaml holds what was recorded from a real one; the fake is held to the
same lines (tests/functional/devkit/kubelet/test_facts.py).
"""

import gzip
import re
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from urllib.parse import unquote

from devkit.kubelet.pods import READ_AT, FakePod, FakePodState, page_for
from devkit.kubelet.replies import Exchange, FakeReply, ReplyEnd, Tunnel, switching, text

Logs = Mapping[tuple[str, str, str], Sequence[str]]

_EXEC_PROTOCOLS = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
_FORWARD_PROTOCOLS = ("portforward.k8s.io",)
_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False, "": False}
_NO_STREAM = "you must specify at least 1 of stdin, stdout, stderr"
# Rights that a node agent has (docs/spec/kubelet-api.md#server): proxy, pods, metrics, stats.
_SHUT = {"logs": "log", "checkpoint": "checkpoint"}
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def default_reply(
    exchange: Exchange,
    pods: Sequence[FakePod],
    logs: Logs,
    node_name: str,
    *,
    previous: Logs | None = None,
    speaks_websocket_v5: bool = True,
) -> FakeReply:
    """The answer of a kubelet that runs `pods`. `logs` are lines behind the one that each container
    begins with, `previous` those of a container's run before; a key in `previous` makes that run.

    Version 5 of the WebSocket protocol came after 1.34 (ExtendWebSocketsToKubelet).
    """
    refused = _unauthorised(exchange)
    if refused is not None:
        return refused
    if exchange.path.startswith("//"):
        return _redirect("/" + exchange.path.lstrip("/"))
    segments = [unquote(segment) for segment in exchange.path.split("/")[1:]]
    match segments:
        case ["containerLogs", namespace, name, container] if container:
            return _logs(exchange, pods, logs, previous or {}, (namespace, name, container))
        case ["exec" | "attach" as verb, namespace, name, *uid, container] if len(uid) < 2:
            return _stream(exchange, _find(pods, namespace, name), container, verb, speaks_websocket_v5)
        case ["portForward", namespace, name, *uid] if len(uid) < 2:
            return _forward(exchange, _find(pods, namespace, name), (namespace, name), uid)
        case ["containerLogs" | "exec" | "attach" | "portForward", *_]:
            return text(404, "404: Page Not Found")
        case ["runningpods"]:
            return _redirect("/runningpods/")
    return _page(exchange, pods, node_name)


def _unauthorised(exchange: Exchange) -> FakeReply | None:
    """The refusal of a request that packaging/rbac/vn-agent.yaml does not allow, such as HEAD of metrics.

    A kubelet of 1.34 maps HEAD to an empty verb, which only a role with all verbs allows.
    """
    first = exchange.path.split("/")[1]
    resource = _SHUT.get(first)
    allowed = ("GET",) if first in ("stats", "metrics") else ("GET", "POST")
    if resource is None and exchange.method in allowed:
        return None
    if resource is None:
        known = {"pods": "pods proxy", "runningpods": "pods proxy", "metrics": "metrics", "stats": "stats"}
        resource = known.get(first, "proxy")
    verb = _VERBS.get(exchange.method, "")
    user = exchange.peer or "unknown"
    message = f"Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{resource}])\n"
    return text(403, message)


def _redirect(path: str) -> FakeReply:
    return FakeReply(307, (("Location", path), ("Content-Type", "text/html; charset=utf-8"), _date()))


def _find(pods: Sequence[FakePod], namespace: str, name: str) -> FakePod | None:
    return next((p for p in pods if (p.namespace, p.name) == (namespace, name)), None)


def _date() -> tuple[str, str]:
    return ("Date", formatdate(usegmt=True))


def _logs(
    exchange: Exchange,
    pods: Sequence[FakePod],
    logs: Logs,
    previous: Logs,
    key: tuple[str, str, str],
) -> FakeReply:
    if exchange.method != "GET":
        return text(405, "405: Method Not Allowed", ("Allow", "GET"))
    options = dict(exchange.query)
    tail = options.get("tailLines", options.get("tail"))
    problem = _bad_options(options, tail)
    if problem is not None:
        return problem
    pod = _find(pods, key[0], key[1])
    if pod is None:
        return text(404, f'pod "{key[1]}" does not exist')
    if key[2] not in pod.every_container:
        return text(404, f'container "{key[2]}" not found in pod "{key[1]}"')
    if pod.state is FakePodState.WAITING:
        return _streamed(
            400, f'container "{key[2]}" in pod "{key[1]}" is waiting to start: ErrImageNeverPull'
        )
    lines: Sequence[str]
    if _BOOLEANS[options.get("previous", "")]:
        if key not in previous:
            return _streamed(400, f'previous terminated container "{key[2]}" in pod "{key[1]}" not found')
        lines = previous[key]
    else:
        begin = [] if pod.is_quiet else [f"{'/'.join(key)} {pod.marker}"]
        lines = [*begin, *logs.get(key, ())]
    if _BOOLEANS[options.get("timestamps", "")]:
        lines = [f"{READ_AT} {line}" for line in lines]
    if tail is not None:
        lines = lines[-int(tail) :] if int(tail) else []
    body = "".join(f"{line}\n" for line in lines).encode()
    if "limitBytes" in options:
        body = body[: int(options["limitBytes"])]
    is_followed = _BOOLEANS[options.get("follow", "")] and pod.state is FakePodState.RUNNING
    return FakeReply(200, (_date(),), body, is_chunked=True, follows=key if is_followed else None)


def _streamed(status: int, body: str) -> FakeReply:
    """An error after the begin of the reply's stream: it has no content type."""
    return FakeReply(status, (_date(),), body.encode(), is_chunked=True)


def _bad_options(options: Mapping[str, str], tail: str | None) -> FakeReply | None:
    """Unparsable: 400. Parsable and not valid: 422 (PodLogOptions validation)."""
    numbers = [tail, options.get("limitBytes"), options.get("sinceSeconds")]
    flags = [options.get(name, "") for name in ("follow", "previous", "timestamps")]
    is_plain = all(number is None or re.fullmatch(r"[+-]?[0-9]+", number) for number in numbers)
    if not is_plain or any(flag.lower() not in _BOOLEANS for flag in flags):
        return text(400, '{"message": "Unable to decode query."}')
    limit, since = options.get("limitBytes"), options.get("sinceSeconds")
    is_invalid = (
        (tail is not None and int(tail) < 0)
        or (limit is not None and int(limit) < 1)
        or (since is not None and int(since) < 1)
        or (since is not None and "sinceTime" in options)
    )
    if is_invalid:
        return text(422, '{"message": "Invalid request."}')
    stream = options.get("stream", "All")
    if stream != "All":
        message = f'unable to return the given log stream: "{stream}".'
        return text(400, f"{message} Please enable PodLogsQuerySplitStreams feature gate in kubelet")
    return None


def _stream(
    exchange: Exchange, pod: FakePod | None, container: str, verb: str, speaks_websocket_v5: bool
) -> FakeReply:
    asked = {key for key, value in exchange.query if _BOOLEANS.get(value.lower(), False)}
    if not asked & {"input", "output", "error"}:
        return text(400, _NO_STREAM)
    if pod is None:
        return text(404, "pod does not exist")
    if container not in pod.running_containers or pod.state is not FakePodState.RUNNING:
        if verb == "attach":
            return text(500, f"container {container} not found in pod {pod.name}_{pod.namespace}")
        return text(500, f'container not found ("{container}")')
    if not exchange.is_upgrade:
        return text(500, "Upgrade request required\n")
    if exchange.values("Upgrade")[0].lower() == "websocket":
        offered = [p.strip() for line in exchange.values("Sec-WebSocket-Protocol") for p in line.split(",")]
        is_known = any(p in _EXEC_PROTOCOLS or p.endswith(f".{_EXEC_PROTOCOLS[-1]}") for p in offered)
        if not is_known or (not speaks_websocket_v5 and "v5.channel.k8s.io" in offered[:1]):
            return FakeReply(
                raw=b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n", ending=ReplyEnd.CLOSE
            )
    else:
        problem = _no_protocol(exchange, _EXEC_PROTOCOLS)
        if problem is not None:
            return problem
    commands = " ".join(value for key, value in exchange.query if key == "command")
    greeting = f"{verb} {pod.namespace}/{pod.name}/{container} {pod.marker} {commands}".rstrip() + "\n"
    return switching(exchange, Tunnel.ECHO, greeting.encode(), known=_known(exchange, _EXEC_PROTOCOLS))


def _forward(exchange: Exchange, pod: FakePod | None, name: tuple[str, str], uid: Sequence[str]) -> FakeReply:
    if pod is None:
        return text(404, "pod does not exist")
    # Only portForward compares the uid (docs/spec/kubelet-api.md#streams).
    if uid and uid[0] != pod.uid:
        return text(404, "pod not found")
    if pod.state is FakePodState.ENDED:
        return text(500, f'pod not found ("{name[1]}_{name[0]}")')
    if not exchange.is_upgrade:
        return text(500, "Upgrade request required\n")
    if exchange.values("Upgrade")[0].lower() != "websocket":
        problem = _no_protocol(exchange, _FORWARD_PROTOCOLS)
        if problem is not None:
            return problem
    return switching(exchange, Tunnel.ECHO, known=_known(exchange, _FORWARD_PROTOCOLS))


def _known(exchange: Exchange, protocols: Sequence[str]) -> tuple[str, ...] | None:
    """For SPDY what is spoken; a WebSocket may offer more names, which `switching` knows."""
    is_websocket = exchange.values("Upgrade")[0].lower() == "websocket"
    return None if is_websocket else tuple(protocols)


def _no_protocol(exchange: Exchange, known: Sequence[str]) -> FakeReply | None:
    """The refusal of a SPDY handshake without a protocol in common."""
    offered = exchange.values("X-Stream-Protocol-Version")
    if not offered:
        message = "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with "
        return text(400, f"{message}headers\n")
    if set(offered) & set(known):
        return None
    message = f"client supports [{' '.join(offered)}], server accepts [{' '.join(known)}]"
    accepted = [("X-Accepted-Stream-Protocol-Versions", protocol) for protocol in known]
    return text(403, f"unable to upgrade: unable to negotiate protocol: {message}\n", *accepted)


def _page(exchange: Exchange, pods: Sequence[FakePod], node_name: str) -> FakeReply:
    page = page_for(exchange.path, pods, node_name)
    if page is None:
        return text(404, "404 page not found\n")
    if exchange.method != "GET" and exchange.path != "/stats/summary":
        return text(405, "405: Method Not Allowed", ("Allow", "GET"))
    content_type, body = page
    headers = [("Content-Type", content_type), _date()]
    is_metrics = exchange.path.startswith("/metrics")
    if is_metrics and "gzip" in ",".join(exchange.values("Accept-Encoding")):
        headers.append(("Content-Encoding", "gzip"))
        body = gzip.compress(body)
    return FakeReply(200, tuple(headers), body, is_chunked=exchange.path != "/healthz")
