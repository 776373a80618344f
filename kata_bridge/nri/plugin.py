# SPDX-License-Identifier: Apache-2.0
"""A plugin's connection to the runtime, made again whenever it is lost."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from daemonkit import logs, os_errors
from daemonkit.protobuf import encode
from daemonkit.remedies import Cause, Fault, Hop, HopKind
from daemonkit.tasks import Tasks
from kata_bridge.nri.dispatch import Dispatch, Handler
from kata_bridge.nri.events import SINCE_0_10, Event
from kata_bridge.nri.messages import RUNTIME, RegisterPluginRequest
from kata_bridge.nri.mux import (
    PLUGIN_CONNECTION,
    RUNTIME_CONNECTION,
    BadTrunkError,
    Demultiplexer,
    multiplexed,
)
from kata_bridge.nri.session import Session
from kata_bridge.ttrpc.client import ClientCalls
from kata_bridge.ttrpc.frame import Frame
from kata_bridge.ttrpc.server import ServerCalls
from kata_bridge.ttrpc.status import TtrpcError

SOCKET = Path("/var/run/nri/nri.sock")

# A restarted containerd listens again after 1.6 s; a runtime without NRI is asked every 5 s.
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 5.0

# The runtime's default. A plugin that connects and does not register delays all others for so long.
REGISTER_S = 5.0

# A plugin that stops answers the call in flight first: if it did not, the pod's author would read
# `ttrpc: closed`. Validation follows creation at once, so the connection stays until it is quiet.
# Both together are less than half of the time that a daemon's tasks have to end.
DRAIN_S, QUIET_S = 0.6, 0.02

_CONNECT_S = 2.0
_READ_BYTES = 64 << 10
_STOP_S = 1.0
_REJECTED = "refused"
_NRI = Hop(HopKind.NRI, "NRI", "sandboxes.nri")

_log = logs.get(__name__)


class Plugin:
    """A plugin `name` of order `index` (two digits) that passes `events` to `handler`.

    Two plugins of the same name on one node fail every container: take the node's lock first.
    """

    def __init__(
        self, socket: Path, name: str, index: str, handler: Handler, events: frozenset[Event]
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.+-]+", name) or not re.fullmatch(r"[0-9]{2}", index):
            raise ValueError(f"{index!r}, {name!r}: no index and name of a plugin")
        self._socket = socket
        self._register = RegisterPluginRequest(name, index)
        self._handler = handler
        self._events = events
        self._session: Session | None = None
        self._failure: tuple[Fault, float] | None = None
        self._tasks = Tasks("nri")

    @property
    def is_connected(self) -> bool:
        """Whether events arrive: the runtime has reported what is there."""
        return self._session is not None and self._session.is_synchronized

    def failure(self) -> tuple[Fault, float] | None:
        """Why no events arrive, and for how many seconds; None while they do, or before an attempt."""
        if self.is_connected or self._failure is None:
            return None
        fault, since_s = self._failure
        return fault, asyncio.get_running_loop().time() - since_s

    @property
    def runtime(self) -> str:
        """Name and version of the runtime that is connected; empty without one."""
        return self._session.runtime if self._session is not None else ""

    @property
    def missing(self) -> frozenset[Event]:
        """The wanted events that this runtime does not send."""
        return self._events - self._session.events if self.is_connected and self._session else self._events

    async def run(self) -> None:
        """Connect, serve until the connection is lost, connect again.

        Cancelled, it answers the calls in flight and ends within `DRAIN_S`.
        """
        backoff_s = FIRST_BACKOFF_S
        is_reduced, last_reported = False, ""
        try:
            while True:
                session = Session(self._events, is_reduced=is_reduced)
                reason, cause = await self._one_connection(session)
                self._note_failure(_NRI.fault(cause, reason, str(self._socket)), session)
                if session.is_synchronized:
                    _log.warning("lost the NRI connection", runtime=session.runtime, reason=reason)
                    backoff_s, last_reported = FIRST_BACKOFF_S, reason
                elif reason != last_reported:  # not the same line every few seconds on a node without NRI
                    _log.warning("cannot register as an NRI plugin", socket=self._socket, reason=reason)
                    last_reported = reason
                is_reduced = session.was_refused()
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
        finally:
            await self._tasks.close(_STOP_S)

    def _note_failure(self, fault: Fault, session: Session) -> None:
        since_s = asyncio.get_running_loop().time()
        if self._failure is not None and not session.is_synchronized:
            since_s = self._failure[1]
        self._failure = fault, since_s

    async def _one_connection(self, session: Session) -> tuple[str, Cause]:
        """Return why it ended."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_unix_connection(self._socket)
        except TimeoutError:
            return f"no connection within {_CONNECT_S:g} s", Cause.TIMEOUT
        except OSError as error:
            return os_errors.describe(error)
        self._session = session
        try:
            reason = await self._serve(session, reader, writer)
            return reason, Cause.FORBIDDEN if reason.startswith(_REJECTED) else Cause.CLOSED
        finally:
            self._session = None
            writer.close()

    async def _serve(
        self, session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> str:
        """Register and serve until the connection ends; return why it did."""

        def send(connection: int, frame: Frame) -> None:
            if not writer.is_closing():
                writer.write(multiplexed(connection, frame))

        dispatch = Dispatch(self._handler, session, self._tasks, lambda: self._log_registered(session))
        serving = ServerCalls(dispatch.answer, lambda frame: send(PLUGIN_CONNECTION, frame), self._tasks)
        calls = ClientCalls(lambda frame: send(RUNTIME_CONNECTION, frame), writer.drain)
        registering = self._tasks.spawn(self._registered(calls, writer), "register")
        trunk = Demultiplexer()

        async def receive() -> bool:
            data = await reader.read(_READ_BYTES)
            for connection, piece in trunk.feed(data):
                if connection == PLUGIN_CONNECTION:
                    serving.receive(piece)
                elif connection == RUNTIME_CONNECTION:
                    calls.receive(piece)
            await writer.drain()
            return bool(data)

        reason = "closed by the runtime"
        try:
            while await receive():
                pass
        except asyncio.CancelledError:
            await self._drain(receive, serving)
            raise
        except (OSError, BadTrunkError) as error:
            reason = str(error)
        finally:
            calls.lost("connection lost")
        return await registering or reason

    def _log_registered(self, session: Session) -> None:
        _log.info("registered as an NRI plugin", runtime=session.runtime)
        if self._events & SINCE_0_10 and not session.events & SINCE_0_10:
            _log.warning(
                "the runtime has no ValidateContainerAdjustment: a container starts if kata-bridge answers "
                "too late; upgrade the runtime",
                runtime=session.runtime,
            )

    async def _registered(self, calls: ClientCalls, writer: asyncio.StreamWriter) -> str:
        """Register; return why that failed, after which the connection is useless."""
        try:
            await calls.call(RUNTIME, "RegisterPlugin", encode(self._register), REGISTER_S)
        except TtrpcError as error:
            reason = f"{_REJECTED}: {error.message}"
        except TimeoutError:
            reason = f"no answer to RegisterPlugin within {REGISTER_S:g} s"
        except ConnectionError:
            return ""
        else:
            return ""
        writer.close()
        return reason

    async def _drain(self, receive: Callable[[], Awaitable[bool]], serving: ServerCalls) -> None:
        """Serve until no call is in flight and none has come for `QUIET_S`, at most for `DRAIN_S`.

        Not with `asyncio.timeout`: in a cancelled task that raises `CancelledError` (until Python 3.12).
        """

        async def received() -> bool:
            try:
                return await receive()
            except (OSError, BadTrunkError):
                return False

        loop = asyncio.get_running_loop()
        ends_at = loop.time() + DRAIN_S
        receiving: asyncio.Task[bool] | None = None
        try:
            while (left_s := ends_at - loop.time()) > 0:
                if receiving is None:
                    receiving = self._tasks.spawn(received(), "drain")
                was_idle = serving.is_idle
                done, _ = await asyncio.wait({receiving}, timeout=min(QUIET_S, left_s))
                if done:
                    if not receiving.result():
                        return
                    receiving = None
                elif was_idle and serving.is_idle:
                    return
        finally:
            if receiving is not None:
                receiving.cancel()
