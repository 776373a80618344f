# SPDX-License-Identifier: Apache-2.0
"""Sends what a case's client sends, and records what it receives."""

import contextlib
import hashlib
import threading
import time

from devkit.kubelet.replies import Exchange
from tests.cases import upstream
from tests.cases.admin import run_admin
from tests.cases.case_file import Expect, RequestCase
from tests.cases.client import CaseClient, SendFailed, receive_reply
from tests.cases.environment import AgentEnvironment
from tests.cases.expand import expand
from tests.cases.parallel_client import ParallelClient
from tests.cases.record import CaseExchange, OtherExchange, Record
from tests.cases.replies import BadReplyError, ReceivedReply, parse_reply
from tests.cases.steps import Admin, Advance, CaseStep, Close, Drip, OtherRequest, Send, Wait
from tests.waiting import holds_within

_REPLY_DEADLINE_S = 20.0
_REFUSAL_DEADLINE_S = 20.0
_CLOSE_DEADLINE_S = 6.0
_OPEN_FOR_S = 0.3
_STREAM_PAUSE_S = 0.4
_PROBE_BYTES = 300_000
_SETTLE_S = 5.0
_HEALTH_DEADLINE_S = 5.0
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: node-1:10550\r\n\r\n"


class ClientRun:
    """The client's side of one case."""

    def __init__(
        self,
        environment: AgentEnvironment,
        case: RequestCase,
        expect: Expect,
        steps: list[CaseStep],
        parallel_client: ParallelClient,
    ) -> None:
        self._environment = environment
        self._case = case
        self._expect = expect
        self._steps = steps
        self._parallel_client = parallel_client
        self._first_exchange = len(environment.kubelet.exchanges)
        self._after_head_sent = hashlib.sha256()
        self._after_head_count = 0
        self._is_client_gone = False
        self._side_stop = threading.Event()
        self.record = Record()

    def run(self) -> Record:
        """Make the requests and run the steps. The agent cannot make this raise."""
        if self._case.repeat > 1 and not self._case.is_tls:
            self._run_tcp_flood()
        elif self._case.repeat > 1:
            self._run_repeated()
        else:
            self._run_once()
        self.record.exchanges = self._environment.own_exchanges(self._first_exchange)
        return self.record

    def _text(self, number: int) -> bytes:
        text = self._case.text
        if self._case.is_expanded:
            text = expand(text, number)
        bearer = self._environment.fixtures.identities.bearer(self._case.identity)
        if bearer is not None:
            head, blank, body = text.partition("\r\n\r\n")
            text = f"{head}\r\nAuthorization: Bearer {bearer}{blank}{body}"
        return text.encode("utf-8", "surrogateescape")

    def _run_repeated(self) -> None:
        """Keep each tunnel open until the last request; other requests share a connection."""
        tunnels: list[CaseClient] = []
        client: CaseClient | None = None
        try:
            for number in range(1, self._case.repeat + 1):
                seen = CaseExchange(self._text(number))
                self.record.seen.append(seen)
                if client is None:
                    client = self._open(seen)
                if client is None:
                    continue
                used = len(client.received)
                self._exchange(client, seen, used)
                if seen.reply is not None and seen.reply.status == 101:
                    tunnels.append(client)
                    client = None
                elif client.end is not None or seen.reply is None or _announces_close(seen.reply):
                    client.close()
                    client = None
            self._run_steps_on(tunnels[-1] if tunnels else client)
        finally:
            for each in (*tunnels, *((client,) if client is not None else ())):
                each.close()

    def _run_tcp_flood(self) -> None:
        """Open all TCP connections at once, then wait until the agent has ended each."""
        clients: list[tuple[CaseClient, CaseExchange]] = []
        try:
            for number in range(1, self._case.repeat + 1):
                seen = CaseExchange(self._text(number))
                self.record.seen.append(seen)
                client = self._open(seen)
                if client is not None:
                    clients.append((client, seen))
                    with contextlib.suppress(SendFailed):
                        client.send(seen.request)
            for client, seen in clients:
                client.receive_until_end(_REFUSAL_DEADLINE_S)
                seen.received = bytes(client.received)
                # An alert is TLS's way to refuse; only HTTP would be a reply.
                seen.is_refused = client.end is not None and not seen.received.startswith(b"HTTP/")
        finally:
            for client, _ in clients:
                client.close()

    def _run_steps_on(self, client: CaseClient | None) -> None:
        if client is not None:
            for step in self._steps:
                self._step(client, step)
        elif self._steps:
            self.record.errors.append("no connection was left for the steps")

    def _open(self, seen: CaseExchange) -> CaseClient | None:
        """A connection; None where TCP or TLS is refused, which `seen` then records."""
        try:
            client = self._environment.client(
                self._case.identity, sni=self._case.sni, is_tls=self._case.is_tls
            )
        except OSError as problem:
            seen.is_refused, seen.detail = True, str(problem)
            return None
        if not client.handshake():
            seen.is_refused, seen.detail = True, client.error or "no handshake"
            client.close()
            return None
        return client

    def _exchange(self, client: CaseClient, seen: CaseExchange, used: int) -> None:
        try:
            client.send(seen.request)
        except SendFailed as problem:
            seen.detail = str(problem)
        self._await_reply(client, seen, used)
        seen.received = bytes(client.received[used:])
        if seen.reply is None and not seen.received and client.end is not None:
            seen.is_refused, seen.detail = True, client.error or client.end.value

    def _run_once(self) -> None:
        seen = CaseExchange(self._text(1))
        self.record.seen.append(seen)
        client = self._open(seen)
        if client is None:
            return
        with client:
            begin = time.monotonic()
            try:
                client.send(seen.request)
            except SendFailed as problem:
                seen.detail = str(problem)
            end_of_head = seen.request.find(b"\r\n\r\n") + 4
            if end_of_head > 3:
                self._count_sent(seen.request[end_of_head:])
            self._first_exchange_of_client(client, seen)
            self.record.reply_after_s = time.monotonic() - begin
            self._record_end(client, seen)
        if seen.closed_s is None:
            seen.closed_s = time.monotonic()
        holds_within(lambda: self._all_ended(seen), 1.5)

    def _first_exchange_of_client(self, client: CaseClient, seen: CaseExchange) -> None:
        parallel = [step for step in self._steps if _runs_in_parallel(step)]
        later = [step for step in self._steps if not _runs_in_parallel(step)]
        side = threading.Thread(target=self._run_in_parallel, args=(client, parallel), daemon=True)
        side.start()
        self._await_reply(client, seen, 0)
        # In an open tunnel sending goes on until all is sent; a refusal ends it.
        if seen.reply is not None and seen.reply.status == 101:
            deadline = time.monotonic() + 60
            while side.is_alive() and client.end is None and time.monotonic() < deadline:
                client.receive(0.05)
        self._side_stop.set()
        client.stop_sending()
        side.join(15)
        client.resume_sending()
        for step in later:
            if seen.reply is None and client.end is not None and isinstance(step, Send | Close):
                continue
            self._step(client, step)
            if self._is_client_gone and seen.closed_s is None:
                seen.closed_s = time.monotonic()

    def _await_reply(self, client: CaseClient, seen: CaseExchange, used: int) -> None:
        """Receive until the first reply is complete; of a stream, until it pauses; of a tunnel, its head."""
        method = seen.request.split(b" ", 1)[0].decode("latin-1")
        limit_s = self._expect.within_s or _REPLY_DEADLINE_S
        hang_s = float((self._case.upstream or {}).get("hang_s", 0))
        if self._expect.tls == "fail":
            limit_s = _REFUSAL_DEADLINE_S
        deadline = time.monotonic() + limit_s + hang_s
        last_byte_s = time.monotonic()
        while time.monotonic() < deadline:
            got = client.receive(0.05)
            now = time.monotonic()
            last_byte_s = now if got else last_byte_s
            data = bytes(client.received[used:])
            try:
                seen.reply = parse_reply(data, method, is_ended=client.end is not None)
            except BadReplyError as problem:
                seen.detail = f"not HTTP: {problem}"
                return
            if seen.reply is not None:
                is_pausing = not seen.reply.has_length and now - last_byte_s > _STREAM_PAUSE_S
                if seen.reply.is_complete or seen.reply.status == 101 or is_pausing:
                    return
            if client.end is not None and not got:
                return

    def _record_end(self, client: CaseClient, seen: CaseExchange) -> None:
        reply = seen.reply
        is_tunnel = reply is not None and reply.status == 101
        if reply is None and not client.received and not self._is_client_gone:
            client.receive_until_end(0 if self._expect.tls == "ok" else _REFUSAL_DEADLINE_S)
            seen.is_refused = client.end is not None and not client.received
            seen.detail = seen.detail or client.error or (client.end.value if client.end else "no reply")
        elif not self._case.is_tls and reply is None:
            client.receive_until_end(_REFUSAL_DEADLINE_S)
            seen.is_refused = client.end is not None and not client.received.startswith(b"HTTP/")
        elif is_tunnel and "I13" in self._expect.hold and not self._is_client_gone:
            self._finish_tunnel(client, reply)
        if not self._is_client_gone:
            if self._expect.after == "close":
                client.receive_until_end(_CLOSE_DEADLINE_S)
            else:
                client.receive(_OPEN_FOR_S)
            seen.is_open_after = client.end is None
            is_whole = reply is not None and reply.is_complete and not is_tunnel
            if seen.is_open_after and self._expect.after == "open" and is_whole:
                seen.is_open_after = self._serves_another(client)
        method = seen.request.split(b" ", 1)[0].decode("latin-1")
        seen.received = bytes(client.received)
        if reply is not None:
            try:
                seen.reply = parse_reply(seen.received, method, is_ended=client.end is not None)
            except BadReplyError as problem:
                seen.detail = f"not HTTP: {problem}"
            if is_tunnel:
                data = seen.received[reply.length_bytes :]
                self.record.tunnel_received = (len(data), hashlib.sha256(data).hexdigest())
                self.record.tunnel_sent = (self._after_head_count, self._after_head_sent.hexdigest())

    def _finish_tunnel(self, client: CaseClient, reply: ReceivedReply | None) -> None:
        """Send a block if the case sent none; wait until both directions have delivered all bytes."""
        if upstream.is_ended_by_kubelet(self._case.upstream or {}):
            client.receive_until_end(_SETTLE_S)
            return
        if self._after_head_count == 0:
            self._send(client, bytes(i % 253 for i in range(_PROBE_BYTES)))
        start = 0 if reply is None else reply.length_bytes
        deadline = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline and client.end is None:
            client.receive(0.05)
            exchange = self._tunnel_exchange()
            if (
                exchange is not None
                and exchange.answered_bytes >= self._after_head_count
                and len(client.received) - start >= exchange.sent.count
            ):
                return

    def _tunnel_exchange(self) -> Exchange | None:
        own = self._environment.own_exchanges(self._first_exchange)
        return next((e for e in own if e.status == 101), None)

    def _serves_another(self, client: CaseClient) -> bool:
        used = len(client.received)
        try:
            client.send(HEALTH)
        except SendFailed:
            return False
        try:
            reply = receive_reply(client, "GET", _HEALTH_DEADLINE_S, start=used)
        except BadReplyError:
            return False
        return reply is not None and reply.is_complete and reply.status == 200

    def _all_ended(self, seen: CaseExchange) -> bool:
        """Whether the kubelet's streams have ended; true where the case had none."""
        own = self._environment.own_exchanges(self._first_exchange)
        is_stream = seen.reply is not None and (seen.reply.status == 101 or not seen.reply.is_complete)
        return not is_stream or all(exchange.ended_s is not None for exchange in own)

    def _run_in_parallel(self, client: CaseClient, steps: list[CaseStep]) -> None:
        for step in steps:
            if isinstance(step, Drip):
                while not self._side_stop.wait(step.every_s) and self._send(client, step.data):
                    pass
            elif isinstance(step, Send):
                for _ in range(step.times):
                    if self._side_stop.is_set() or not self._send(client, step.data(), 120):
                        return

    def _step(self, client: CaseClient, step: CaseStep) -> None:
        match step:
            case Send():
                for _ in range(step.times):
                    if not self._send(client, step.data()):
                        return
                client.receive(0.2)
            case Wait():
                end = time.monotonic() + step.seconds
                while (left := end - time.monotonic()) > 0:
                    if not step.is_reading or client.end is not None:
                        time.sleep(left)  # pace: how long is part of the case
                    else:
                        client.receive(left)
            case Close():
                self._leave(client, step.how)
            case Admin():
                run_admin(self._environment, step.actions)
            case Advance():
                self._parallel_client.pause()
                self._environment.daemon.advance(step.seconds)
                client.receive(1.0)
                self._parallel_client.resume()
            case OtherRequest():
                self._make_other_request(step)
            case Drip():
                self._send(client, step.data)

    def _leave(self, client: CaseClient, how: str) -> None:
        match how:
            case "reset":
                client.reset()
                self._is_client_gone = True
            case "half":
                client.half_close()
            case "fin":
                client.finish()
            case _:
                client.close()
                self._is_client_gone = True

    def _make_other_request(self, step: OtherRequest) -> None:
        identity = step.identity or self._case.identity
        self._environment.is_other_request = step.identity is not None
        try:
            status, data = self._environment.request(identity, step.text)
        except (OSError, BadReplyError, SendFailed) as problem:
            self.record.errors.append(f"step as {identity}: {problem}")
        else:
            self.record.others.append(OtherExchange(identity, step.text, step.status, status, data))
        finally:
            self._environment.is_other_request = False

    def _send(self, client: CaseClient, data: bytes, timeout_s: float = 10.0) -> bool:
        try:
            client.send(data, timeout_s)
        except SendFailed:
            return False
        self._count_sent(data)
        return True

    def _count_sent(self, data: bytes) -> None:
        self._after_head_count += len(data)
        self._after_head_sent.update(data)


def _runs_in_parallel(step: CaseStep) -> bool:
    return isinstance(step, Drip) or (isinstance(step, Send) and step.is_parallel)


def _announces_close(reply: ReceivedReply) -> bool:
    return "close" in ",".join(reply.values("Connection")).lower() or reply.ends_with_connection
