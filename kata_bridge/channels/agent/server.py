# SPDX-License-Identifier: Apache-2.0
"""The channel to a guest that runs our agent: the agent dials, this is the server.

A guest is what its certificate says and nothing that it says itself. Everything that comes out of a
guest is taken for hostile: it has a size, a rate and a time, and whatever exceeds them ends that
guest's connection, which costs the guest a reconnect and the others nothing.
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
from guest_agent.api.messages import ATTACH, AgentMessage, Hello
from kata_bridge import off_loop
from kata_bridge.channels.agent.channel import MAX_TO_GUEST_BYTES, AgentChannel, guest_state
from kata_bridge.channels.agent.guest_addresses import GuestAddresses
from kata_bridge.channels.agent.relay import Connection, Relay
from kata_bridge.channels.guest_text import word
from kata_bridge.channels.port import GuestState
from kata_bridge.credentials import ServerIdentity
from ruleset.delta import RulesetDelta
from ruleset.document import Ruleset

# What a guest reads back: 10 000 Services x 2 deflate to 700 KB.
MAX_FROM_GUEST_BYTES = 8 << 20
# An agent that reads at all takes a message within a round trip; a guest may be short of processors.
WRITE_S = 10.0
HELLO_S = 10.0
# All else that a guest answers is some hundred bytes, with a complaint of its packet filter some thousand.
# What is longer than it has to be is not read: 8 MiB of empty fields take ten seconds to decode.
MAX_SAID_BYTES = 64 << 10
# A hello, and what nobody asked for, is decoded where it arrives: some hundred bytes.
MAX_UNASKED_BYTES = 16 << 10
# Guests that read back at once. The message, its text and the documents are some 300 MiB of the largest
# ruleset; people ask for it, one guest at a time.
MAX_READING_BACK = 1
# An agent reports a drift when it sees one and again when it is over. What does more is no agent of ours.
MAX_UNASKED, UNASKED_S = 20, 10.0
# Each costs a handshake, log lines, maybe a whole ruleset. An agent that fails comes ever more slowly.
MAX_ATTACHES, ATTACHES_S = 40, 10.0
# Guests with the same rules get the same message: those of a node's tenants, and their deltas.
_MESSAGES_KEPT = 16
# For what the operating system forgets: a guest that is paused, or that lost power.
_PING_MS, _PING_ANSWER_MS = 20_000, 10_000

_log = logs.get(__name__)


class Register(Protocol):
    """What says whose a certificate is: `kata_bridge.credentials.Credentials`."""

    @property
    def server(self) -> ServerIdentity: ...

    def sandbox_of(self, leaf_pem: bytes) -> str | None: ...


class AgentServer:
    """The server of all agents of this node: one stream a guest, the newest.

    `on_attached` is called when a guest's stream is up, `on_detached` when it is over, `on_state`
    when a guest says of its own accord that its rules drifted, or are back; all from the event loop.
    `addresses` are those that guests have: by TCP none comes from another's.
    """

    def __init__(
        self,
        register: Register,
        behind: Path,
        *,
        on_attached: Callable[[AgentChannel], None],
        on_detached: Callable[[AgentChannel], None],
        on_state: Callable[[AgentChannel, GuestState], None],
        addresses: GuestAddresses | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`behind` is where the gRPC server listens, for the relay alone: in a directory of root's.

        On a port of loopback every process of the node would get past the relay and all its bounds.
        """
        self._register = register
        self._behind = behind
        self._on_attached, self._on_detached, self._on_state = on_attached, on_detached, on_state
        self._addresses = GuestAddresses() if addresses is None else addresses
        self._clock = clock
        self._channels: dict[str, AgentChannel] = {}
        self._cids: dict[str, int] = {}
        self._attaches: dict[str, list[float]] = {}
        self._carried: OrderedDict[tuple[str, str, int], messages.Ruleset] = OrderedDict()
        self._tasks = Tasks("guests")
        self._reading_back = asyncio.Semaphore(MAX_READING_BACK)
        self._server: grpc.aio.Server | None = None
        self._relay: Relay | None = None

    async def start(self) -> None:
        """Start the server behind the relay; no guest can connect before a `listen_*`. Raises `OSError`."""
        identity = self._register.server
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                # One stream is all that an agent has; a second one needs a second connection.
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
        # Bytes in and out: what a guest sends is decoded here, where the answer to nonsense is known.
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(self._attach)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(ATTACH.service, {ATTACH.name: handler}),)
        )
        credentials = grpc.ssl_server_credentials(
            [(identity.key_pem, identity.certificate_pem)], identity.authority_pem, require_client_auth=True
        )
        self._behind.unlink(missing_ok=True)
        try:
            server.add_secure_port(f"unix:{self._behind}", credentials)
        except RuntimeError as error:
            raise OSError(f"{self._behind}: {error}") from None
        await server.start()
        self._server = server
        self._relay = Relay(self._behind, is_guests=self._addresses.is_guests, clock=self._clock)

    async def listen_tcp(self, address: str, port: int) -> int:
        """Take guests on an address; return the port. Raises `OSError`."""
        return await self._joined().doors.listen_tcp(address, port)

    async def listen_unix(self, path: Path) -> None:
        """Take guests on a unix socket that all may use who reach it. Raises `OSError`."""
        await self._joined().doors.listen_unix(path)

    async def listen_vsock(self, port: int) -> None:
        """Take guests on AF_VSOCK. Raises `OSError`, also where the kernel has none."""
        await self._joined().doors.listen_vsock(port)

    async def listen_hybrid(self, sandbox: str, uds_path: Path, port: int) -> None:
        """Take one guest on the socket that its VMM dials when it connects to `port`. Raises `OSError`."""
        await self._joined().doors.listen_unix(uds_path.with_name(f"{uds_path.name}_{port}"), sandbox=sandbox)

    def bind_cid(self, sandbox: str, cid: int) -> None:
        """Demand of a guest that what it sends over AF_VSOCK comes out of that VM."""
        self._cids[sandbox] = cid

    def status(self) -> dict[str, int]:
        """How much of what comes from guests is held."""
        relay = self._relay
        return {
            "attached": len(self._channels),
            "connections": 0 if relay is None else len(relay),
            "origins": 0 if relay is None else relay.origins,
        }

    def channel(self, sandbox: str) -> AgentChannel | None:
        """The channel of a guest whose agent is attached now."""
        return self._channels.get(sandbox)

    def forget(self, sandbox: str) -> None:
        """The sandbox is gone: end its stream and close its door. Revoke its certificate first."""
        self._cids.pop(sandbox, None)
        self._attaches.pop(sandbox, None)
        channel = self._channels.get(sandbox)
        if channel is not None:
            channel.end("its sandbox is gone")
        self._joined().forget(sandbox)

    async def stop(self) -> None:
        """End all streams and listen no more; agents try again until somebody else listens."""
        for channel in tuple(self._channels.values()):
            channel.end("the node's daemon stops")
        if self._relay is not None:
            await self._relay.close()
        if self._server is not None:
            await self._server.stop(0)
        await self._tasks.close(timeout_s=2)

    def _joined(self) -> Relay:
        if self._relay is None:
            raise RuntimeError("not started")
        return self._relay

    def _carry(self, ruleset: Ruleset | RulesetDelta) -> messages.Ruleset:
        """The message of a ruleset, deflated once for all guests that get it."""
        base = ruleset.base_digest if isinstance(ruleset, RulesetDelta) else ""
        key = (ruleset.digest, base, ruleset.generation)
        message = self._carried.get(key)
        if message is None:
            message = self._carried[key] = rulesets.to_message(ruleset)
            if len(self._carried) > _MESSAGES_KEPT:
                self._carried.popitem(last=False)
        self._carried.move_to_end(key)
        return message

    async def _attach(self, _requests: object, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        """Serve one stream from its hello to its end."""
        connection = self._joined().connection(context.peer())
        if connection is None:
            # Root on the node dialled the socket behind the relay.
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "dial the address that is for guests")
        try:
            await self._serve_guest(connection, context)
        finally:
            # A stream that was refused: gRPC would keep its connection, and all that it costs.
            self._joined().dismiss(connection)

    async def _serve_guest(
        self, connection: Connection, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> None:
        sandbox, refusal = self._identity(connection, context)
        if refusal:
            _log.warning("guest refused", sandbox=sandbox, origin=connection.origin.name, reason=refusal)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)
        if not _is_within(self._attaches.setdefault(sandbox, []), self._clock(), MAX_ATTACHES, ATTACHES_S):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "it attaches too often")
        hello = await self._hello(sandbox, context)
        # Its sandbox may have ended while the hello was waited for, when there was no channel to end yet.
        sandbox, refusal = self._identity(connection, context)
        if refusal:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)
        connection.allowance.renew()
        channel = AgentChannel(
            sandbox,
            hello,
            connection.origin.transport,
            self._carry,
            expect=lambda is_long: connection.allowance.expect(MAX_FROM_GUEST_BYTES if is_long else 0),
            reading_back=self._reading_back,
        )
        self._joined().attached(connection)
        older = self._channels.get(sandbox)
        # No await from here until the older one's place is taken.
        if older is not None:
            older.end("a newer stream took its place")
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

    def _identity(
        self, connection: Connection, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> tuple[str, str]:
        """Who it is, and empty or why it may not be that."""
        shown = tuple(context.auth_context().get("x509_pem_cert", ()))
        sandbox = self._register.sandbox_of(shown[0]) if len(shown) == 1 else None
        if sandbox is None:
            return "", "this certificate is of no sandbox that lives"
        origin = connection.origin
        if origin.sandbox not in (None, sandbox):
            return sandbox, f"its certificate came through the socket of sandbox {origin.sandbox}"
        if origin.cid is not None and self._cids.get(sandbox, origin.cid) != origin.cid:
            return sandbox, f"its certificate came out of the VM with CID {origin.cid}"
        if origin.address is not None:
            return sandbox, self._addresses.why_not(sandbox, origin.address)
        return sandbox, ""

    async def _hello(self, sandbox: str, context: "grpc.aio.ServicerContext[Any, Any]") -> Hello:
        """The first message. Ends the call unless it is a hello in the name of the certificate."""
        why = ""
        try:
            data = await asyncio.wait_for(context.read(), HELLO_S)
            if isinstance(data, bytes) and len(data) > MAX_UNASKED_BYTES:
                raise BadMessage("too long")
            hello = decode(AgentMessage, data).hello if isinstance(data, bytes) else None
            if hello is not None and hello.sandbox in ("", sandbox):
                return hello
            why = "the first message must be a hello"
            if hello is not None:
                why = "its hello names another sandbox than its certificate"
                _log.warning("guest refused", sandbox=sandbox, reason=why, claimed=word(hello.sandbox))
        except TimeoutError:
            why = "no hello in time"
        except BadMessage:
            why = "its hello cannot be read"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        raise AssertionError("abort raises")

    async def _serve(
        self, channel: AgentChannel, connection: Connection, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> None:
        """Move messages both ways until either side ends."""
        reading = self._tasks.spawn(self._read(channel, connection, context), f"read {channel.sandbox}")
        writing = self._tasks.spawn(self._write(channel, context), f"write {channel.sandbox}")
        try:
            await channel.over()
        finally:
            # Not by gRPC's own ways: with an unread message in flight none of them ends a call.
            connection.abort()
            reading.cancel()
            writing.cancel()

    async def _read(
        self, channel: AgentChannel, connection: Connection, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> None:
        unasked: list[float] = []
        while True:
            try:
                data = await context.read()
            except grpc.aio.BaseError as error:
                channel.end(f"the connection is lost ({type(error).__name__})")
                return
            if not isinstance(data, bytes):
                channel.end("it hung up")
                return
            if len(data) > _most(channel):
                channel.end("it said more than it was asked")
                return
            try:
                message = await off_loop.run(len(data), decode, AgentMessage, data)
            except BadMessage as error:
                _log.warning("guest sent nonsense", sandbox=channel.sandbox, error=error)
                channel.end("it sent what is no message")
                return
            if message.request_id and channel.answered(message):
                connection.allowance.renew()
                continue
            if not _is_within(unasked, self._clock(), MAX_UNASKED, UNASKED_S):
                channel.end("it talks without being asked")
                return
            connection.allowance.renew()
            if message.request_id:
                continue
            if message.state is None:
                channel.end("it sent what nobody asked for")
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
                channel.end("it does not read")
                return
            except grpc.aio.BaseError as error:
                channel.end(f"the connection is lost ({type(error).__name__})")
                return


def _most(channel: AgentChannel) -> int:
    """How long a message of this guest may be now."""
    if channel.is_reading_back:
        return MAX_FROM_GUEST_BYTES
    return MAX_SAID_BYTES if channel.is_asked else MAX_UNASKED_BYTES


def _is_within(times: list[float], now: float, most: int, within_s: float) -> bool:
    """Whether one more is within the bound; it is then noted in `times`."""
    times[:] = [at for at in times if at > now - within_s]
    if len(times) >= most:
        return False
    times.append(now)
    return True
