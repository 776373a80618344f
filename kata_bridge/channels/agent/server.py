# SPDX-License-Identifier: Apache-2.0
"""The gRPC server that all agents of the node dial.

The certificate alone authenticates a guest; its own words count for nothing. Every message of a guest is
treated as hostile: it has a bound in size, rate and time. A guest that exceeds one loses its connection and
must attach again; other guests are unaffected.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

from bridge_api import messages, rulesets
from daemonkit import logs
from daemonkit.protobuf import BadMessage, decode
from daemonkit.tasks import Tasks
from daemonkit.token_bucket import TokenBucket
from guest_agent.api.messages import ATTACH, AgentHello, AgentMessage
from kata_bridge import off_loop
from kata_bridge.channels.agent.channel import MAX_TO_GUEST_BYTES, AgentChannel, guest_state
from kata_bridge.channels.agent.guest_addresses import GuestAddresses
from kata_bridge.channels.agent.relay import AgentConnection, Relay
from kata_bridge.channels.guest_text import word
from kata_bridge.channels.port import GuestState
from kata_bridge.guest_certificates import ServerIdentity
from ruleset.delta import RulesetDelta
from ruleset.document import Ruleset

# The result of a read-back: 10 000 Services x 2 deflate to 700 KB.
MAX_FROM_GUEST_BYTES = 8 << 20
# An agent that reads at all takes a message within a round trip; a guest may be short of processors.
WRITE_S = 10.0
HELLO_S = 10.0
# All other results have some hundred bytes, with an error of the packet filter some thousand. A longer one is
# not decoded: 8 MiB of empty fields take ten seconds.
MAX_RESULT_BYTES = 64 << 10
# A hello and an unsolicited message have some hundred bytes; they are decoded on the event loop.
MAX_UNSOLICITED_BYTES = 16 << 10
# Guests that read back at once. The message, its text and the documents of the largest ruleset have some
# 300 MiB; people ask for it, one guest at a time.
MAX_READING_BACK = 1
# An agent reports a drift when it begins and when it ends. A burst, and then so many in so many seconds.
MAX_UNSOLICITED, UNSOLICITED_S = 20, 10.0
# Each attach costs a handshake, log lines, maybe a full ruleset. An agent that fails backs off.
MAX_ATTACHES, ATTACHES_S = 40, 10.0
# Guests with the same rules get the same message: those of a node's tenants, and their deltas.
_CACHED_MESSAGES = 16
# Finds connections that the operating system has forgotten: a guest that is paused, or lost power.
_PING_MS, _PING_ANSWER_MS = 20_000, 10_000

_log = logs.get(__name__)


class CertificateRegistry(Protocol):
    """Identifies the guest of a certificate: `kata_bridge.guest_certificates.GuestCertificates`."""

    @property
    def server(self) -> ServerIdentity: ...

    def sandbox_of(self, leaf_pem: bytes) -> str | None: ...


class AgentServer:
    """Serves the streams of agents: one for each guest, the newest.

    `addresses` are the guests' own: an agent that connects by TCP from another guest's address is refused.
    """

    def __init__(
        self,
        certificates: CertificateRegistry,
        backend: Path,
        *,
        addresses: GuestAddresses | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`backend` is the gRPC server's socket, in a directory of root's, which the relay alone dials.

        On a port of loopback every process of the node would bypass the relay and all its bounds.
        """
        self._certificates = certificates
        self._backend = backend
        self._addresses = GuestAddresses() if addresses is None else addresses
        self._clock = clock
        self._channels: dict[str, AgentChannel] = {}
        self._cids: dict[str, int] = {}
        self._attach_rates: dict[str, TokenBucket] = {}
        self._messages: OrderedDict[tuple[str, str, int], messages.Ruleset] = OrderedDict()
        self._tasks = Tasks("agents")
        self._read_back_slot = asyncio.Semaphore(MAX_READING_BACK)
        self._on_attached: Callable[[AgentChannel], None] = lambda _: None
        self._on_detached: Callable[[AgentChannel], None] = lambda _: None
        self._on_state: Callable[[AgentChannel, GuestState], None] = lambda _, __: None
        self._server: grpc.aio.Server | None = None
        self._relay: Relay | None = None

    async def start(
        self,
        *,
        on_attached: Callable[[AgentChannel], None],
        on_detached: Callable[[AgentChannel], None],
        on_state: Callable[[AgentChannel, GuestState], None],
    ) -> None:
        """Start the server behind the relay; agents connect only after a `listen_*`. Raises `OSError`.

        The event loop calls `on_attached` when a guest's stream begins, `on_detached` when it ends, and
        `on_state` when a guest reports its state without a request.
        """
        self._on_attached, self._on_detached, self._on_state = on_attached, on_detached, on_state
        identity = self._certificates.server
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                # An agent has one stream; a second one needs a second connection.
                ("grpc.max_concurrent_streams", 1),
                ("grpc.max_receive_message_length", MAX_FROM_GUEST_BYTES),
                ("grpc.max_send_message_length", MAX_TO_GUEST_BYTES),
                ("grpc.max_metadata_size", 8 << 10),
                ("grpc.absolute_max_metadata_size", 16 << 10),
                ("grpc.keepalive_time_ms", _PING_MS),
                ("grpc.keepalive_timeout_ms", _PING_ANSWER_MS),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
                ("grpc.server_handshake_timeout_ms", int(HELLO_S * 1000)),
            ]
        )
        # Messages stay bytes here: what is decoded, and what follows a bad message, is decided below.
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(self._attach)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(ATTACH.service, {ATTACH.name: handler}),)
        )
        credentials = grpc.ssl_server_credentials(
            [(identity.key_pem, identity.certificate_pem)], identity.authority_pem, require_client_auth=True
        )
        self._backend.unlink(missing_ok=True)
        try:
            server.add_secure_port(f"unix:{self._backend}", credentials)
        except RuntimeError as error:
            raise OSError(f"{self._backend}: {error}") from None
        await server.start()
        self._server = server
        self._relay = Relay(
            self._backend, has_single_owner=self._addresses.has_single_owner, clock=self._clock
        )

    async def listen_tcp(self, address: str, port: int) -> int:
        """Accept agents on an address; return the port. Raises `OSError`."""
        return await self._started_relay().listeners.listen_tcp(address, port)

    async def listen_unix(self, path: Path) -> None:
        """Accept agents on a unix socket, from all that may open it. Raises `OSError`."""
        await self._started_relay().listeners.listen_unix(path)

    async def listen_vsock(self, port: int) -> None:
        """Accept agents on AF_VSOCK. Raises `OSError`, also where the kernel has no AF_VSOCK."""
        await self._started_relay().listeners.listen_vsock(port)

    async def listen_hybrid(self, sandbox: str, uds_path: Path, port: int) -> None:
        """Accept one guest's agent on the socket that its VMM dials for `port`. Raises `OSError`."""
        path = uds_path.with_name(f"{uds_path.name}_{port}")
        await self._started_relay().listeners.listen_unix(path, sandbox=sandbox)

    def bind_cid(self, sandbox: str, cid: int) -> None:
        """Accept the guest's certificate by AF_VSOCK only from the VM with this CID."""
        self._cids[sandbox] = cid

    def status(self) -> dict[str, int]:
        """Its entry in /status."""
        relay = self._relay
        return {
            "attached": len(self._channels),
            "connections": 0 if relay is None else len(relay),
            "origins": 0 if relay is None else relay.count_origins(),
        }

    def channel(self, sandbox: str) -> AgentChannel | None:
        """The channel of a guest whose agent is attached."""
        return self._channels.get(sandbox)

    def forget(self, sandbox: str) -> None:
        """The sandbox was stopped: end its stream and close its socket. Revoke its certificate first."""
        self._cids.pop(sandbox, None)
        self._attach_rates.pop(sandbox, None)
        channel = self._channels.get(sandbox)
        if channel is not None:
            channel.end("its sandbox was stopped")
        self._started_relay().forget(sandbox)

    async def stop(self) -> None:
        """End all streams and close all sockets; agents dial again until kata-bridge listens."""
        for channel in tuple(self._channels.values()):
            channel.end("kata-bridge stops")
        if self._relay is not None:
            await self._relay.close()
        if self._server is not None:
            await self._server.stop(0)
        await self._tasks.close(timeout_s=2)

    def _started_relay(self) -> Relay:
        if self._relay is None:
            raise RuntimeError("not started")
        return self._relay

    def _to_message(self, ruleset: Ruleset | RulesetDelta) -> messages.Ruleset:
        """The message of a ruleset, deflated once for all guests that get it."""
        base = ruleset.base_digest if isinstance(ruleset, RulesetDelta) else ""
        key = (ruleset.digest, base, ruleset.generation)
        message = self._messages.get(key)
        if message is None:
            message = self._messages[key] = rulesets.to_message(ruleset)
            if len(self._messages) > _CACHED_MESSAGES:
                self._messages.popitem(last=False)
        self._messages.move_to_end(key)
        return message

    async def _attach(self, _requests: object, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        """Serve one stream from its hello to its end."""
        connection = self._started_relay().connection(context.peer())
        if connection is None:
            # Root on the node dialled the socket behind the relay.
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "dial the address for guests instead")
        try:
            await self._serve_guest(connection, context)
        finally:
            # gRPC would keep the connection of a refused stream, with all that it costs.
            self._started_relay().close_refused(connection)

    async def _serve_guest(
        self, connection: AgentConnection, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> None:
        sandbox, refusal = self._authenticate(connection, context)
        if refusal:
            _log.warning(
                "agent connection rejected", sandbox=sandbox, origin=connection.origin.name, reason=refusal
            )
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)
        now_s = self._clock()
        rate = self._attach_rates.setdefault(sandbox, _bucket(MAX_ATTACHES, ATTACHES_S, now_s))
        if not rate.try_acquire(now_s):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the agent attaches too often")
        hello = await self._read_hello(sandbox, context)
        # The sandbox may have been stopped while there was no channel to end.
        sandbox, refusal = self._authenticate(connection, context)
        if refusal:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)
        budget = connection.budget
        budget.renew()
        channel = AgentChannel(
            sandbox,
            hello,
            connection.origin.transport,
            self._to_message,
            expect_long_result=lambda is_due: budget.expect(MAX_FROM_GUEST_BYTES if is_due else 0),
            read_back_slot=self._read_back_slot,
        )
        self._started_relay().attached(connection)
        older = self._channels.get(sandbox)
        # No await from here until the new channel has replaced the older one.
        if older is not None:
            older.end("a newer stream replaced it")
        self._channels[sandbox] = channel
        if older is not None:
            self._on_detached(older)
        _log.info(
            "guest attached",
            sandbox=sandbox,
            transport=channel.transport,
            digest=channel.hello_state.digest[:16],
        )
        self._on_attached(channel)
        try:
            await self._serve(channel, connection, context)
        finally:
            channel.end("the stream ended")
            _log.info("guest detached", sandbox=sandbox, reason=channel.ended)
            if self._channels.get(sandbox) is channel:
                del self._channels[sandbox]
                self._on_detached(channel)

    def _authenticate(
        self, connection: AgentConnection, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> tuple[str, str]:
        """The sandbox of the peer, and why it is refused; empty if it is not."""
        leaves = tuple(context.auth_context().get("x509_pem_cert", ()))
        sandbox = self._certificates.sandbox_of(leaves[0]) if len(leaves) == 1 else None
        if sandbox is None:
            return "", "the certificate is not that of a running sandbox"
        origin = connection.origin
        if origin.sandbox not in (None, sandbox):
            return sandbox, f"the certificate came through the socket of sandbox {origin.sandbox}"
        if origin.cid is not None and self._cids.get(sandbox, origin.cid) != origin.cid:
            return sandbox, f"the certificate came out of the VM with CID {origin.cid}"
        if origin.address is not None:
            return sandbox, self._addresses.mismatch(sandbox, origin.address)
        return sandbox, ""

    async def _read_hello(self, sandbox: str, context: "grpc.aio.ServicerContext[Any, Any]") -> AgentHello:
        """Read the first message. Ends the call unless it is a hello in the name of the certificate."""
        reason = ""
        try:
            data = await asyncio.wait_for(context.read(), HELLO_S)
            if isinstance(data, bytes) and len(data) > MAX_UNSOLICITED_BYTES:
                raise BadMessage("too long")
            hello = decode(AgentMessage, data).hello if isinstance(data, bytes) else None
            if hello is not None and hello.sandbox in ("", sandbox):
                return hello
            reason = "the first message must be a hello"
            if hello is not None:
                reason = "the hello names another sandbox than the certificate"
                _log.warning(
                    "agent connection rejected", sandbox=sandbox, reason=reason, claimed=word(hello.sandbox)
                )
        except TimeoutError:
            reason = f"no hello within {HELLO_S:g} s"
        except BadMessage:
            reason = "the hello cannot be read"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        raise AssertionError("abort raises")

    async def _serve(
        self,
        channel: AgentChannel,
        connection: AgentConnection,
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> None:
        """Move messages both ways until either side ends."""
        reading = self._tasks.spawn(self._read(channel, connection, context), f"read {channel.sandbox}")
        writing = self._tasks.spawn(self._write(channel, context), f"write {channel.sandbox}")
        try:
            await channel.wait_ended()
        finally:
            # While a message is unread, nothing in gRPC ends a call: abort the connection.
            connection.abort()
            reading.cancel()
            writing.cancel()

    async def _read(
        self,
        channel: AgentChannel,
        connection: AgentConnection,
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> None:
        unsolicited = _bucket(MAX_UNSOLICITED, UNSOLICITED_S, self._clock())
        while True:
            try:
                data = await context.read()
            except grpc.aio.BaseError as error:
                channel.end(f"the connection was lost ({type(error).__name__})")
                return
            if not isinstance(data, bytes):
                channel.end("the agent closed the stream")
                return
            if len(data) > _max_bytes(channel):
                channel.end("the agent sent a longer message than was due")
                return
            try:
                message = await off_loop.run(len(data), decode, AgentMessage, data)
            except BadMessage as error:
                _log.warning("guest sent an invalid message", sandbox=channel.sandbox, error=error)
                channel.end("the agent sent an invalid message")
                return
            if message.request_id and channel.complete_request(message):
                connection.budget.renew()
                continue
            if not unsolicited.try_acquire(self._clock()):
                channel.end("the agent sent too many unsolicited messages")
                return
            connection.budget.renew()
            if message.request_id:
                continue
            if message.state is None:
                channel.end("the agent sent an unexpected message")
                return
            self._on_state(channel, guest_state(message.state))

    async def _write(self, channel: AgentChannel, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        while True:
            data = await channel.outbox.get()
            try:
                # Not `wait_for`, which makes a task for each message.
                async with asyncio.timeout(WRITE_S):
                    await context.write(data)
            except TimeoutError:
                channel.end("the agent does not read")
                return
            except grpc.aio.BaseError as error:
                channel.end(f"the connection was lost ({type(error).__name__})")
                return


def _max_bytes(channel: AgentChannel) -> int:
    """How long the next message of this guest may be."""
    if channel.is_reading_back:
        return MAX_FROM_GUEST_BYTES
    return MAX_RESULT_BYTES if channel.has_pending_requests else MAX_UNSOLICITED_BYTES


def _bucket(burst: int, refill_s: float, now_s: float) -> TokenBucket:
    return TokenBucket(burst, burst / refill_s, burst, now_s)
