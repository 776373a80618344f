# SPDX-License-Identifier: Apache-2.0
"""The request that the kubelet gets: built from typed values, never copied from the tenant's bytes.

So no header of the client's can travel (Authorization, Impersonate-*, X-Remote-*, X-Forwarded-*,
Forwarded, anything that Connection lists), and there is exactly one Host, ours.
"""

from tenancy.ownership import Owned
from vnagent.core.query import render_query
from vnagent.core.requests import ContainerLogs, Endpoint, PageRequest, Protocol, Stream

_AGENT = "User-Agent: vn-agent\r\n"


def build_logs(request: ContainerLogs, pod: Owned, host: str) -> bytes:
    """The kubelet's `GET /containerLogs/{namespace}/{pod}/{container}`."""
    return (
        f"GET /containerLogs/{pod.super_namespace}/{pod.super_name}/{request.container}"
        f"{render_query(request.options)} HTTP/1.1\r\nHost: {host}\r\n{_AGENT}\r\n"
    ).encode("ascii")


def build_stream(request: Stream, pod: Owned, host: str) -> bytes:
    """The kubelet's exec, attach or portForward, with the handshake written anew.

    A UID goes up as the super pod's: the kubelet compares it for portForward.
    """
    path = f"/{request.endpoint}/{pod.super_namespace}/{pod.super_name}"
    if request.uid is not None:
        path += f"/{pod.super_uid}"
    if request.container is not None:
        path += f"/{request.container}"
    upgrade = request.upgrade
    lines = [f"Host: {host}", "Connection: Upgrade", f"Upgrade: {upgrade.protocol.value}"]
    if upgrade.protocol is Protocol.SPDY:
        method = "POST"
        # One line for each protocol, in order, as Go's client writes them; Content-Length as Go does.
        lines += [f"X-Stream-Protocol-Version: {name}" for name in upgrade.subprotocols]
        lines.append("Content-Length: 0")
    else:
        method = "GET"
        lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {upgrade.websocket_key}"]
        if upgrade.subprotocols:
            lines.append(f"Sec-WebSocket-Protocol: {', '.join(upgrade.subprotocols)}")
    head = "\r\n".join(lines)
    return (f"{method} {path}{render_query(request.options)} HTTP/1.1\r\n{head}\r\n{_AGENT}\r\n").encode(
        "ascii"
    )


PAGE_PATHS = {
    Endpoint.PODS: "/pods",
    Endpoint.RUNNING_PODS: "/runningpods/",
    Endpoint.STATS_SUMMARY: "/stats/summary",
    Endpoint.METRICS_RESOURCE: "/metrics/resource",
    Endpoint.METRICS_CADVISOR: "/metrics/cadvisor",
    Endpoint.METRICS_PROBES: "/metrics/probes",
}


def page_path(page: PageRequest) -> str:
    """The kubelet's path and query of a page; also the key of a cached page."""
    return PAGE_PATHS[page.endpoint] + ("?only_cpu_and_memory=true" if page.only_cpu_and_memory else "")


def build_page(path: str, host: str) -> bytes:
    """A GET for a page, uncompressed: an encoded page cannot be filtered."""
    return (f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{_AGENT}Accept-Encoding: identity\r\n\r\n").encode(
        "ascii"
    )
