# SPDX-License-Identifier: Apache-2.0
"""The agent's stream to its node: one after the other, for ever.

The main thread does all the work, message by message, so that no two things happen to the packet
filter at once; a thread of each stream brings messages in, and waits where they come too fast.
"""

import queue
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from daemonkit import logs
from daemonkit.protobuf import BadMessage, decode, encode
from kata_bridge.guest.answers import VERSION, Answers
from kata_bridge.guest.arguments import sandbox_of
from kata_bridge.guest.keeper import Keeper
from kata_bridge.guest.messages import ATTACH, FromGuest, Hello, ToGuest
from kata_bridge.guest.packet_filter import Broken, PacketFilter

# What the server's certificate says, whatever address leads to it: kata_bridge.credentials.
SERVER_NAME = "kata-bridge.vcnode.internal"

# A guest that just booted waits for its credentials: its pod's first packet waits for us.
_WAIT_FIRST_S, _WAIT_MAX_S = 0.1, 10.0
# A stream that lasted this long was a good one: the next failure starts the patience anew.
_GOOD_S = 30.0
# Not less than the node accepts; it is for a node that lost power, whose silence looks like quiet.
_PING_MS, _PING_ANSWER_MS = 30_000, 10_000
_CONNECT_S = 10.0
_MAX_MESSAGE_BYTES = 16 << 20
# Messages that the node sent and we did not get to: it asks one thing at a time.
_MAX_UNREAD = 4
# A glance is some microseconds, a whole look some hundred: see PacketFilter.
_GLANCE_S, _GLANCES_A_LOOK = 2.0, 5

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Ended:
    """The stream is over, and why."""

    why: str


_Inbox = queue.Queue[bytes | _Ended]


class Link:
    """Attaches to the node and serves it. `run` never returns."""

    def __init__(
        self, target: str, credentials: Path, keeper: Keeper, packet_filter: PacketFilter, answers: Answers
    ) -> None:
        """`target` is what grpc dials: `host:port` or `unix:PATH`."""
        self._target = target
        self._credentials = credentials
        self._keeper = keeper
        self._filter = packet_filter
        self._answers = answers
        self._glances = 0
        self._next_glance_s = 0.0
        self._trouble = ""

    def run(self) -> None:
        """Attach again and again, with more patience each time it fails at once."""
        wait_s = _WAIT_FIRST_S
        said = ""
        while True:
            began_s = time.monotonic()
            why = self._attach()
            if time.monotonic() - began_s > _GOOD_S:
                wait_s = _WAIT_FIRST_S
            if why != said:
                _log.info("not attached", reason=why, node=self._target)
                said = why
            # Half of it by chance: the agents of a node come back one by one after its restart.
            self._watch(time.monotonic() + wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            wait_s = min(wait_s * 1.6, _WAIT_MAX_S)

    def _attach(self) -> str:
        """One stream from connect to end; return why it ended."""
        try:
            pems = [(self._credentials / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")]
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        channel = grpc.secure_channel(
            self._target,
            grpc.ssl_channel_credentials(*pems),
            options=(
                ("grpc.ssl_target_name_override", SERVER_NAME),
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                ("grpc.keepalive_time_ms", _PING_MS),
                ("grpc.keepalive_timeout_ms", _PING_ANSWER_MS),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.enable_retries", 0),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.enable_http_proxy", 0),
            ),
        )
        try:
            return self._serve(channel, sandbox_of(pems[2]))
        finally:
            channel.close()

    def _serve(self, channel: grpc.Channel, sandbox: str) -> str:
        ready = grpc.channel_ready_future(channel)
        try:
            ready.result(timeout=_CONNECT_S)
        except grpc.FutureTimeoutError:
            ready.cancel()
            return "the node does not answer, or its certificate or ours is refused"
        outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        outbox.put(encode(self._hello(sandbox)))
        # Bytes in and out: they are decoded by the thread that acts on them.
        attach: Any = channel.stream_stream(ATTACH.path)
        call = attach(_until_none(outbox))
        inbox: _Inbox = queue.Queue(_MAX_UNREAD)
        reader = threading.Thread(target=_read, args=(call, inbox), name="link", daemon=True)
        reader.start()
        try:
            return self._converse(inbox, outbox)
        finally:
            call.cancel()
            outbox.put(None)
            _drain(inbox, reader)

    def _hello(self, sandbox: str) -> FromGuest:
        hello = Hello(
            sandbox=sandbox,
            version=VERSION,
            boot_id=_boot_id(),
            capabilities=self._answers.capabilities(self._filter.places),
            state=self._answers.state(),
        )
        return FromGuest(hello=hello)

    def _converse(self, inbox: _Inbox, outbox: "queue.SimpleQueue[bytes | None]") -> str:
        """Answer what comes in; between two messages, look whether somebody changed our rules."""
        while True:
            try:
                item = inbox.get(timeout=max(0.0, self._next_glance_s - time.monotonic()))
            except queue.Empty:
                report = self._look()
                if report is not None:
                    outbox.put(encode(report))
                continue
            if isinstance(item, _Ended):
                return item.why
            try:
                question = decode(ToGuest, item)
            except BadMessage as error:
                return f"the node sent what is no message: {error}"
            answer = self._answers.answer(question)
            outbox.put(encode(answer))
            if answer.outcome is not None and answer.outcome.message:
                _log.info("answered", code=answer.outcome.code.name, message=answer.outcome.message)

    def _watch(self, until_s: float) -> None:
        """Wait without a stream. Drift is looked for all the same: the hello tells of it.

        A plain sleep: the main thread has nobody to answer until it dials again, and who ends the
        agent does so by a signal, which ends the sleep too.
        """
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, max(0.0, self._next_glance_s - time.monotonic())))
            if time.monotonic() >= self._next_glance_s:
                self._look()

    def _look(self) -> FromGuest | None:
        """Look for drift, and return what there is to report."""
        self._next_glance_s = time.monotonic() + _GLANCE_S * random.uniform(0.75, 1.25)  # noqa: S311 - no secret
        self._glances += 1
        try:
            if self._glances % _GLANCES_A_LOOK:
                self._keeper.look()
            else:
                self._keeper.check(is_thorough=True)
            trouble = ""
        except Broken as error:
            trouble = str(error)
        if trouble != self._trouble:
            self._trouble = trouble
            _log.warning("cannot look for drift" if trouble else "can look for drift again", reason=trouble)
        report = self._answers.to_report()
        if report is not None:
            drifted = report.state is not None and report.state.has_drifted
            _log.warning("the rules are not ours any more" if drifted else "the rules are ours again")
        return report


def _until_none(outbox: "queue.SimpleQueue[bytes | None]") -> Iterator[bytes]:
    while (data := outbox.get()) is not None:
        yield data


def _read(call: Any, inbox: _Inbox) -> None:
    """Bring in what the node sends, up to the end of the stream."""
    try:
        for data in call:
            inbox.put(data)
        inbox.put(_Ended("the node ended the stream"))
    except grpc.RpcError:
        inbox.put(_Ended(f"{call.code().name} {call.details()}"))


def _drain(inbox: _Inbox, reader: threading.Thread) -> None:
    """Let the reader end, which may wait for room."""
    while reader.is_alive():
        try:
            inbox.get(timeout=0.05)
        except queue.Empty:
            continue


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
