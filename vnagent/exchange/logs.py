# SPDX-License-Identifier: Apache-2.0
"""The two exchanges that reach the kubelet for a tenant: a log, and a stream to be upgraded.

Both stand between a client connection and a kubelet connection. Whatever goes wrong before the first
byte of an answer becomes a reply of ours; after it, the connection is cut, so that the client sees
a broken body and not a short one.
"""

from tenancy.ownership import Owned
from vnagent.core import replies
from vnagent.core.audit import OWNED
from vnagent.core.head import ResponseHead
from vnagent.core.kubelet_request import build_logs, build_stream
from vnagent.core.requests import ContainerLogs, Stream
from vnagent.downstream.client_connection import ClientConnection
from vnagent.transport.tunnel import Tunnel
from vnagent.upstream.kubelet import KubeletConnection

# A kubelet that reads a large log backwards for tailLines may take its time; a followed log that
# is quiet sends not even a head, so it has no deadline at all.
LOG_HEAD_S = 60.0
# The container runtime's stream server gives up after 30 s (its StreamCreationTimeout).
UPGRADE_S = 30.0
REFUSAL_S = 5.0
# A kubelet's refusal is a sentence.
MAX_REFUSAL_BYTES = 4096
# Parts of a reply below this size are sent as one TLS record.
_COALESCE_BYTES = 8192


class Refusal:
    """Collects the body of a kubelet's refusal, then answers in our own words."""

    __slots__ = ("body", "head")

    def __init__(self, head: ResponseHead) -> None:
        self.head = head
        self.body = b""

    def is_full(self, data: memoryview) -> bool:
        self.body += bytes(data[: MAX_REFUSAL_BYTES - len(self.body)])
        return len(self.body) >= MAX_REFUSAL_BYTES

    def text(self) -> bytes:
        """What the kubelet said, without the framing: it sends the 400 of a log in chunks."""
        if not self.head.is_chunked:
            return self.body
        parts: list[bytes] = []
        line, _, rest = self.body.partition(b"\r\n")
        # A chunk whose end was not kept any more ends with what is there.
        while rest and (size := int(line.partition(b";")[0], 16)):
            parts.append(rest[:size])
            line, _, rest = rest[size + 2 :].partition(b"\r\n")
        return b"".join(parts)


class LogRelay:
    """containerLogs: the kubelet's body to the client as it comes, in the kubelet's own chunks."""

    __slots__ = (
        "_client",
        "_held",
        "_is_chunked",
        "_is_sent",
        "_is_started",
        "_is_wrapped",
        "_kubelet",
        "_pod",
        "_refused",
        "_request",
        "_request_id",
    )
    is_bounded = False

    def __init__(self, client: ClientConnection, request: ContainerLogs, pod: Owned) -> None:
        self._client = client
        self._request = request
        self._pod = pod
        self._request_id = client.agent.next_request_id()
        self._kubelet: KubeletConnection | None = None
        self._held = b""
        self._is_started = False
        self._is_sent = False
        self._is_chunked = False
        self._is_wrapped = False
        self._refused: Refusal | None = None

    def start(self) -> None:
        self._client.exchange = self
        pool = self._client.agent.kubelet
        self._kubelet = pool.acquire(
            self,
            build_logs(self._request, self._pod, pool.address.authority),
            timeout_s=None if self._request.is_follow else LOG_HEAD_S,
            is_upgrade=False,
            group=self._client.channel.group,
        )

    # ---- the kubelet's side

    def on_response(self, head: ResponseHead) -> None:
        kubelet, agent = self._kubelet, self._client.agent
        if kubelet is None:
            return
        if head.status >= 400:
            self._refused = Refusal(head)
            kubelet.set_deadline(REFUSAL_S)
            return
        if head.status != 200 or head.fields.get(b"content-encoding") not in {None, b"identity"}:
            kubelet.abort()
            self.on_failure("kubelet-malformed")
            return
        if not self._request.is_follow:
            kubelet.set_deadline(None)  # the client may read as slowly as it likes
        self._is_started = True
        self._is_chunked = head.is_chunked
        self._is_wrapped = not head.is_chunked and head.content_length is None
        self._held = replies.log_head(head, self._request_id, is_close=agent.is_draining, date=agent.date)

    def on_body(self, data: memoryview) -> None:
        if self._refused is not None:
            if self._refused.is_full(data) and self._kubelet is not None:
                self._kubelet.abort()
                self._answer_refusal(self._refused)
            return
        if self._is_wrapped:
            self._held += b"%x\r\n" % len(data) + bytes(data) + b"\r\n"
        elif len(self._held) + len(data) < _COALESCE_BYTES:
            self._held += bytes(data)
        else:
            self._write_held()
            self._client.channel.write(data)

    def on_batch_end(self) -> None:
        if self._is_started:
            self._write_held()
            channel = self._client.channel
            channel.flush()
            if channel.is_congested() and self._kubelet is not None:
                self._kubelet.pause()

    def on_response_end(self) -> None:
        self._kubelet = None
        if self._refused is not None:
            self._answer_refusal(self._refused)
            return
        if self._is_wrapped:
            self._held += b"0\r\n\r\n"
        elif self._is_chunked:
            self._held += b"\r\n"
        self._write_held()
        self._client.channel.flush()
        self._client.finish(is_close=False)

    def on_failure(self, reason: str) -> None:
        self._kubelet = None
        if self._is_sent:
            self._client.channel.flush()
            self._client.abort()
            return
        status = 504 if reason == "kubelet-timeout" else 502
        self._answer(status, reason, None)

    def _write_held(self) -> None:
        if not self._is_sent:
            self._is_sent = True
            agent = self._client.agent
            agent.audit(self._client.caller, self._request, OWNED, 200, self._request_id)
        if self._held:
            self._client.channel.write(self._held)
            self._held = b""

    def _answer_refusal(self, refused: Refusal) -> None:
        self._answer(*replies.translate_refusal(self._request, refused.head.status, refused.text()))

    def _answer(self, status: int, reason: str, text: str | None) -> None:
        # Where the kubelet's side went wrong nothing is taken for granted about what follows.
        self._client.refuse(
            self._request, self._request_id, status, reason, is_close=status >= 500, text=text
        )

    # ---- the client's side

    def on_client_writable(self) -> None:
        if self._kubelet is not None:
            self._kubelet.resume()

    def cancel(self) -> None:
        kubelet, self._kubelet = self._kubelet, None
        if kubelet is not None:
            kubelet.abort()
        if not self._is_sent:
            agent = self._client.agent
            agent.audit(self._client.caller, self._request, "client-left", 499, self._request_id)


class StreamSetup:
    """exec, attach, portForward until the kubelet has said 101; then a Tunnel takes over.

    Bytes that the client sends before the 101 wait in the client's bounded buffer (RFC 9931), and
    are never sent if the upgrade fails: they would be the next request on a privileged connection
    (CVE-2018-1002105).
    """

    __slots__ = ("_client", "_is_reserved", "_kubelet", "_pod", "_refused", "_request", "_request_id")
    is_bounded = True

    def __init__(self, client: ClientConnection, request: Stream, pod: Owned, *, is_reserved: bool) -> None:
        """`is_reserved`: there is room for the audit line, which each outcome writes once."""
        self._client = client
        self._request = request
        self._pod = pod
        self._request_id = client.agent.next_request_id()
        self._kubelet: KubeletConnection | None = None
        self._refused: Refusal | None = None
        self._is_reserved = is_reserved

    def start(self) -> None:
        pool = self._client.agent.kubelet
        self._kubelet = pool.acquire(
            self,
            build_stream(self._request, self._pod, pool.address.authority),
            timeout_s=UPGRADE_S,
            is_upgrade=True,
            group=self._client.channel.group,
        )

    # ---- the kubelet's side

    def on_response(self, head: ResponseHead) -> None:
        kubelet = self._kubelet
        if kubelet is None:
            return
        if head.status >= 400:
            self._refused = Refusal(head)
            kubelet.set_deadline(REFUSAL_S)
            return
        switching = replies.switching_head(self._request, head, self._request_id)
        if head.status != 101 or switching is None:
            kubelet.abort()
            self.on_failure("kubelet-refused-upgrade")
            return
        self._kubelet = None
        client, agent = self._client, self._client.agent
        channel, early = kubelet.take_channel()
        client.exchange = None
        agent.audit(client.caller, self._request, OWNED, 101, self._request_id, is_reserved=self._is_reserved)
        tunnel = Tunnel(client.channel, channel, client.caller, client.identity, agent.on_tunnel_close)
        agent.add_tunnel(tunnel)
        channel.account = agent.account_of(client.caller)
        client.channel.write(switching + early)
        ahead = client.take_ahead()
        if ahead:
            channel.write(ahead)
            channel.flush()
        client.channel.flush()
        client.channel.resume()
        client.release()

    def on_body(self, data: memoryview) -> None:
        if self._refused is not None and self._refused.is_full(data) and self._kubelet is not None:
            self._kubelet.abort()
            self.on_response_end()

    def on_batch_end(self) -> None:
        """Nothing is relayed before the upgrade."""

    def on_response_end(self) -> None:
        self._kubelet = None
        refused = self._refused
        if refused is None:
            self.on_failure("kubelet-malformed")
            return
        protocols = replies.accepted_protocols(refused.head) if refused.head.status == 403 else None
        if protocols is not None:
            self._answer(403, "kubelet-refused-upgrade", None, protocols)
            return
        status, reason, text = replies.translate_refusal(self._request, refused.head.status, refused.text())
        self._answer(status, reason, text)

    def on_failure(self, reason: str) -> None:
        self._kubelet = None
        self._answer(504 if reason == "kubelet-timeout" else 502, reason, None)

    def _answer(self, status: int, reason: str, text: str | None, protocols: str | None = None) -> None:
        self._client.agent.drop_tunnel(self._client.caller)
        self._client.refuse(
            self._request,
            self._request_id,
            status,
            reason,
            is_close=True,
            text=text,
            protocols=protocols,
            is_reserved=self._is_reserved,
        )

    # ---- the client's side

    def on_client_writable(self) -> None:
        """Nothing is relayed before the upgrade."""

    def cancel(self) -> None:
        kubelet, self._kubelet = self._kubelet, None
        if kubelet is not None:
            kubelet.abort()
        agent = self._client.agent
        agent.drop_tunnel(self._client.caller)
        agent.audit(
            self._client.caller,
            self._request,
            "client-left",
            499,
            self._request_id,
            is_reserved=self._is_reserved,
        )
