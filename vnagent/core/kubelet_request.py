# SPDX-License-Identifier: Apache-2.0
"""The request that the kubelet gets: built from typed values, never copied from the tenant's bytes.

So no header of the client's can travel (Authorization, Impersonate-*, X-Remote-*, X-Forwarded-*,
Forwarded, anything that Connection lists), and there is exactly one Host, ours.
"""

from tenancy.ownership import Owned
from vnagent.core.query import render_query
from vnagent.core.requests import ContainerLogs, Endpoint, PageRequest, Stream
from vnagent.core.upstream_request import AGENT, upgrade_head


class KubeletRequests:
    """The requests of the kubelet whose Host field is `host`."""

    def __init__(self, host: str) -> None:
        self.hop = "kubelet"
        self.authority = host

    def logs(self, request: ContainerLogs, pod: Owned) -> bytes:
        """The kubelet's `GET /containerLogs/{namespace}/{pod}/{container}`."""
        return (
            f"GET /containerLogs/{pod.super_namespace}/{pod.super_name}/{request.container}"
            f"{render_query(request.options)} HTTP/1.1\r\nHost: {self.authority}\r\n{AGENT}\r\n"
        ).encode("ascii")

    def stream(self, request: Stream, pod: Owned) -> bytes:
        """The kubelet's exec, attach or portForward, with the handshake written anew.

        A UID goes up as the super pod's: the kubelet compares it for portForward.
        """
        path = f"/{request.endpoint}/{pod.super_namespace}/{pod.super_name}"
        if request.uid is not None:
            path += f"/{pod.super_uid}"
        if request.container is not None:
            path += f"/{request.container}"
        method, lines = upgrade_head(request)
        head = "\r\n".join([f"Host: {self.authority}", *lines])
        return (f"{method} {path}{render_query(request.options)} HTTP/1.1\r\n{head}\r\n{AGENT}\r\n").encode(
            "ascii"
        )

    def page(self, path: str) -> bytes:
        """A GET for a page, uncompressed."""
        return (
            f"GET {path} HTTP/1.1\r\nHost: {self.authority}\r\n{AGENT}Accept-Encoding: identity\r\n\r\n"
        ).encode("ascii")


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
