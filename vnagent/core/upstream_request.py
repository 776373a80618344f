# SPDX-License-Identifier: Apache-2.0
"""The requests that go upstream, for whichever server is asked: the kubelet, or the super API server."""

import typing

from tenancy.ownership import Owned
from vnagent.core.requests import ContainerLogs, Protocol, Stream

AGENT = "User-Agent: vn-agent\r\n"


class UpstreamRequests(typing.Protocol):
    """Builds requests from typed values. Nothing of a client's head is an argument.

    `hop` begins the reason of each failure upstream, as in `kubelet-timeout` (`core.replies.TEXTS`).
    `authority` is the value of the Host field.
    """

    hop: str
    authority: str

    def logs(self, request: ContainerLogs, pod: Owned) -> bytes:
        """The log of a container, under the super cluster's names of `pod`."""

    def stream(self, request: Stream, pod: Owned) -> bytes:
        """The upgrade of an exec, attach or portForward."""

    def page(self, path: str) -> bytes:
        """A GET for the kubelet's page at `path`, uncompressed: an encoded page cannot be filtered."""


def upgrade_head(request: Stream) -> tuple[str, list[str]]:
    """The method of an upgrade and its header fields, written anew."""
    upgrade = request.upgrade
    lines = ["Connection: Upgrade", f"Upgrade: {upgrade.protocol.value}"]
    if upgrade.protocol is Protocol.SPDY:
        # One line for each protocol, in order, as Go's client writes them; Content-Length as Go does.
        lines += [f"X-Stream-Protocol-Version: {name}" for name in upgrade.subprotocols]
        lines.append("Content-Length: 0")
        return "POST", lines
    lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {upgrade.websocket_key}"]
    if upgrade.subprotocols:
        lines.append(f"Sec-WebSocket-Protocol: {', '.join(upgrade.subprotocols)}")
    return "GET", lines
