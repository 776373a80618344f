# SPDX-License-Identifier: Apache-2.0
"""Serves /metrics to scrapers on other machines, by mutual TLS.

All of the network reaches this port, and an apiserver proxies a tenant's requests to it. So a client is
served only if its certificate ends at the configured authority and has one of the configured names. All else
is bounded: connections and handshakes by client address, the head, and the time.

The listener has a thread and an event loop of its own. What others cost (handshakes, chains of their making)
takes no time of the daemon's loop, which only reads the numbers for a scraper that has proved its name.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from daemonkit import logs
from daemonkit.admission import client_hello
from daemonkit.admission.connection_slots import ConnectionSlots, client_address_of
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.files.watched import Watched
from daemonkit.metrics import Counter, Family
from daemonkit.status.pages import PageResponse, Pages, forbidden, too_large
from daemonkit.tasks import Tasks
from daemonkit.tls import contexts
from daemonkit.tls.openssl import Message, end_inspection, inspect
from daemonkit.token_bucket import TokenBucket

MAX_HEAD_BYTES = 8 << 10
MAX_CONNECTIONS = 16
# From accept to the end of the response; Prometheus gives a scrape 10 s.
DEADLINE_S = 5.0
# Between tries to listen on an address that cannot be had.
RETRY_S = 5.0
_SHUTDOWN_S = 1.0
_STOP_S = 2.0
_BACKLOG = 64
# Handshakes: of one address, and of all that never authenticated. A scraper comes each few seconds.
_BURST, _PER_S = 8.0, 2.0
_ALL_BURST, _ALL_PER_S = 32.0, 16.0
_MAX_ADDRESSES = 1_024
_MAX_KNOWN = 64
# Lines about refused clients: any host can cause them.
_LOG_BURST, _LOG_PER_S = 5.0, 0.1
_POLL_S = 1.0
_ACCEPT_RETRY_S = 1.0  # out of descriptors or memory, the next accept fails too
_MAX_NAME = 200
_RESULTS = ("served", "forbidden", "refused", "timeout", "limited")
# Until a transport that was aborted has closed its socket.
_CLOSING_ITERATIONS = 4

_log = logs.get(__name__)


class ScrapeListener:
    """Serves `pages` on the address of `config`, which has one. `results` counts connections by result."""

    def __init__(
        self,
        config: ScrapeConfig,
        pages: Pages,
        results: Family[Counter],
        *,
        deadline_s: float = DEADLINE_S,
        max_connections: int = MAX_CONNECTIONS,
        retry_s: float = RETRY_S,
    ) -> None:
        if config.address is None or config.files is None:
            raise ValueError("metrics: no address, or no files for it")
        self._address, self._port = config.address, config.port
        self._files: tuple[Path, Path, Path] = config.files
        self._names = frozenset(config.client_names)
        self._pages = pages
        # All cells now: a new one, made in the listener's thread, could meet a snapshot in the daemon's.
        self._results = {result: results.labels(result) for result in _RESULTS}
        self._deadline_s = deadline_s
        self._retry_s = retry_s
        self._problem = ""
        self._watched = Watched.files(self._files)
        self._polled_s = 0.0
        self._context: ssl.SSLContext | None = None
        self._admission = _Admission(max_connections)
        self._refusals = TokenBucket(_LOG_BURST, _LOG_PER_S, _LOG_BURST, time.monotonic())
        self._skipped = 0
        self._daemon_loop: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._bound: tuple[str, int] | None = None

    @property
    def bound(self) -> tuple[str, int]:
        """Address and port that it listens on. Raises RuntimeError before `start`."""
        if self._bound is None:
            raise RuntimeError("the scrape listener is not started")
        return self._bound

    async def start(self) -> None:
        """Listen. What is unusable, a file or the address, is logged and tried again: a daemon does its work
        without scrapes too."""
        self._daemon_loop = asyncio.get_running_loop()
        self._watched.poll()
        self._load()
        listener = self._listening()
        # A daemon thread: the process ends also if it hangs.
        self._thread = threading.Thread(target=self._run, args=(listener,), name="scrapes", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop listening, and end open connections."""
        self._is_stopping = True
        own = self._own
        if own is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                own.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _STOP_S)

    # ---- in the listener's thread

    def _run(self, listener: socket.socket | None) -> None:
        try:
            asyncio.run(self._serve(listener))
        except Exception as error:  # noqa: BLE001 - the daemon goes on without scrapes
            _log.error("the scrape listener failed", error=error, traceback=logs.trace(error))

    async def _serve(self, listener: socket.socket | None) -> None:
        loop = self._own = asyncio.get_running_loop()
        while listener is None and not self._is_stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._retry_s)
            listener = self._listening()
        if listener is None:
            return
        with listener:
            if self._is_stopping:
                return
            tasks = Tasks("scrapes")
            loop.add_reader(listener, self._accept, listener, tasks)
            await self._stopping.wait()
            loop.remove_reader(listener)
            await tasks.close(_STOP_S / 2)
            for _ in range(_CLOSING_ITERATIONS):
                await asyncio.sleep(0)

    def _listening(self) -> socket.socket | None:
        """The socket; None while the address cannot be had, as before an interface is up."""
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        try:
            listener = socket.create_server((self._address, self._port), family=family, backlog=_BACKLOG)
        except OSError as error:
            self._log_problem(f"{self._address}:{self._port}: {error.strerror or error}")
            return None
        listener.setblocking(False)
        host, port = listener.getsockname()[:2]
        self._bound = str(host), int(port)
        _log.info("scrape listener started", address=self._bound[0], port=self._bound[1])
        return listener

    def _accept(self, listener: socket.socket, tasks: Tasks) -> None:
        """Not `sock_accept`: cancelled at the wrong moment, it loses a socket that it has accepted."""
        try:
            taken, peer = listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # closed before it was accepted
        except OSError as error:
            _log.error("cannot accept scrapers, retrying", reason=error.strerror)
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            loop.call_later(_ACCEPT_RETRY_S, self._accept_again, listener, tasks)
            return
        taken.setblocking(False)
        address = client_address_of(peer[0])
        if self._admission.try_begin(address, time.monotonic()):
            self._begin(taken, address, tasks)
        else:
            taken.close()
            self._results["limited"].inc()

    def _accept_again(self, listener: socket.socket, tasks: Tasks) -> None:
        if not self._stopping.is_set():
            asyncio.get_running_loop().add_reader(listener, self._accept, listener, tasks)

    def _begin(self, taken: socket.socket, address: str, tasks: Tasks) -> None:
        """Serve a connection in a task. Beyond the bound the address that has most loses its oldest one."""

        def over() -> None:
            if task.cancelled():
                _end(taken)
            self._admission.end(task)

        task = tasks.spawn(self._connection(taken, address), "connection", when_over=over)
        evicted = self._admission.add(task, address)
        if evicted is not None:
            evicted.cancel()

    async def _connection(self, taken: socket.socket, address: str) -> None:
        result = "refused"
        try:
            async with asyncio.timeout(self._deadline_s):
                result = await self._exchange(taken, address)
        except TimeoutError:
            _end(taken)
            result = "timeout"
        except contexts.TlsError as error:
            self._log_refusal(address, str(error))
        except ssl.SSLError as error:
            self._log_refusal(address, error.reason or "no TLS")
        except UnicodeDecodeError:
            self._log_refusal(address, "a name in its certificate is no text")
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            self._results[result].inc()

    async def _exchange(self, taken: socket.socket, address: str) -> str:
        """One handshake, one request, one response; returns the result that is counted."""
        loop = asyncio.get_running_loop()
        try:
            context = self._current_context()
        except contexts.TlsError:
            taken.close()
            raise
        reader = asyncio.StreamReader(MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            taken,
            ssl=context,
            ssl_handshake_timeout=self._deadline_s,
            ssl_shutdown_timeout=_SHUTDOWN_S,
        )
        try:
            tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
            contexts.verified_chain(tls)
            names = names_of(tls.getpeercert() or {})
            end_inspection(tls)  # with its context the certificate counts as unverified
            is_allowed = not self._names.isdisjoint(names)
            if is_allowed:
                self._admission.authenticated(address)
            else:
                shown = ascii(names[0])[:_MAX_NAME] if names else "no name"
                self._log_refusal(address, f"{shown} is not in metrics.clientNames")
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            writer.write(await self._response(reader, is_allowed))
            await writer.drain()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return "served" if is_allowed else "forbidden"
        finally:
            transport.abort()

    async def _response(self, reader: asyncio.StreamReader, is_allowed: bool) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return too_large()
        if not is_allowed:
            return forbidden()
        if self._daemon_loop is None:
            raise AssertionError("a connection before the start")
        asked = asyncio.run_coroutine_threadsafe(self._ask(head), self._daemon_loop)
        response = await asyncio.wrap_future(asked)
        return response() if callable(response) else response

    async def _ask(self, head: bytes) -> PageResponse:
        """In the daemon's loop, which alone may read what is counted."""
        return await self._pages.respond(head)

    def _current_context(self) -> ssl.SSLContext:
        """The TLS context for the next connection, from files that are looked at once a second.

        Raises TlsError while there was none yet.
        """
        now_s = time.monotonic()
        if now_s - self._polled_s >= _POLL_S:
            self._polled_s = now_s
            if self._watched.poll() or self._context is None:
                self._load()
        if self._context is None:
            raise contexts.TlsError("there is no usable certificate yet")
        return self._context

    def _load(self) -> None:
        """Take the files as they are; what is unusable changes nothing."""
        try:
            self._context = context_of(self._files)
        except contexts.TlsError as error:
            self._log_problem(str(error))
        else:
            self._problem = ""

    def _log_problem(self, problem: str) -> None:
        """Each problem once, though it is met at each try."""
        if problem != self._problem:
            self._problem = problem
            has_certificate = self._context is not None
            _log.error(
                "the scrape listener has a problem, trying again", reason=problem, serves=has_certificate
            )

    def _log_refusal(self, address: str, reason: str) -> None:
        if not self._refusals.try_acquire(time.monotonic()):
            self._skipped += 1
            return
        skipped, self._skipped = self._skipped, 0
        _log.warning("scraper refused", address=address, reason=reason, skipped=skipped or None)


class _Admission:
    """Which connections begin a handshake, and which one ends for another."""

    def __init__(self, max_connections: int) -> None:
        self._slots: ConnectionSlots[asyncio.Task[None]] = ConnectionSlots(max_connections)
        self._by_address: OrderedDict[str, TokenBucket] = OrderedDict()
        self._all: TokenBucket | None = None
        # Addresses that authenticated, the latest last: others do not use up their share.
        self._known: OrderedDict[str, None] = OrderedDict()

    def try_begin(self, address: str, now_s: float) -> bool:
        bucket = self._by_address.get(address)
        if bucket is None:
            if len(self._by_address) >= _MAX_ADDRESSES:
                self._by_address.popitem(last=False)
            bucket = self._by_address[address] = TokenBucket(_BURST, _PER_S, _BURST, now_s)
        if not bucket.try_acquire(now_s):
            return False
        if address in self._known:
            return True
        if self._all is None:
            self._all = TokenBucket(_ALL_BURST, _ALL_PER_S, _ALL_BURST, now_s)
        return self._all.try_acquire(now_s)

    def authenticated(self, address: str) -> None:
        self._known[address] = None
        self._known.move_to_end(address)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    def add(self, task: "asyncio.Task[None]", address: str) -> "asyncio.Task[None] | None":
        return self._slots.add(task, address)

    def end(self, task: "asyncio.Task[None]") -> None:
        self._slots.discard(task)


def _end(taken: socket.socket) -> None:
    """End a connection whose task was cancelled.

    A transport that asyncio has not finished does not notice that it was closed, and reads on without an
    owner: the end of its data ends it. Without a transport the socket is only closed.
    """
    with contextlib.suppress(OSError):
        taken.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(RuntimeError, ValueError):  # a transport has it, or has closed it
        asyncio.get_running_loop().remove_reader(taken)
        taken.close()


def names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a verified certificate as `getpeercert` has it: common names, DNS names and URIs."""
    common: Iterable[str] = (
        value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"
    )
    other: Iterable[str] = (
        value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI")
    )
    return (*common, *other)


def context_of(files: tuple[Path, Path, Path]) -> ssl.SSLContext:
    """The TLS context of the listener, from its certificate, its key and scrapers' authorities.

    Raises TlsError, which begins with the file.
    """
    certificate, key, authorities = files
    contexts.check_certificate(certificate, key)
    try:
        with authorities.open("rb") as file:
            accepted = contexts.pem_certificates(file.read(contexts.MAX_PEM_BYTES + 1))
        context = contexts.server_context(certificate, key, accepted)
    except OSError as error:
        raise contexts.TlsError(f"{authorities}: {error.strerror}") from None
    except contexts.TlsError as error:
        raise contexts.TlsError(f"{authorities}: {error}") from None
    inspect(context, {Message.CLIENT_HELLO: client_hello.may_read})
    return context
