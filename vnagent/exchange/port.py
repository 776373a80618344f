# SPDX-License-Identifier: Apache-2.0
"""The port between a client's connection and its exchanges: neither module imports the other."""

from typing import Protocol

from daemonkit.fairness.lease import Lease
from vnagent.core.access import Caller, Deny
from vnagent.core.requests import Request
from vnagent.transport.tls_connection import TlsConnection


class Exchange(Protocol):
    """A request in progress, as its client's connection sees it."""

    # True if the answer comes soon: a client that sends too much ahead of it is paused, not cut off.
    is_bounded: bool

    def on_client_writable(self) -> None: ...

    def cancel(self) -> None:
        """The client has left, or its right was revoked: give up everything upstream."""


class ClientPort(Protocol):
    """What the dispatcher, the exchanges and the shared state use of a client's connection."""

    transport: TlsConnection
    caller: Caller
    identity: object
    exchange: Exchange | None
    begun_s: float
    """When the request was whole, as time.monotonic() counts."""

    @property
    def is_awaited(self) -> bool:
        """Whether its first request is to come, or the rest of one."""

    def deny(self, request: Request | None, deny: Deny, retry_after_s: int | None = None) -> None:
        """Refuse a request under a new request identifier."""

    def refuse(
        self,
        request: Request | None,
        request_id: str,
        status: int,
        reason: str,
        *,
        is_close: bool,
        text: str | None = None,
        protocols: str | None = None,
        retry_after_s: int | None = None,
        room: Lease | None = None,
    ) -> None:
        """Record and send a refusal, and end the exchange. Without `retry_after_s` a 429 has its limit's."""

    def answer(self, reply: bytes, *, is_close: bool) -> None:
        """Send a whole reply and end the exchange."""

    def finish(self, *, is_close: bool) -> None:
        """The reply was written: wait for the next request, or close."""

    def take_early_data(self) -> bytes:
        """Take the bytes that the client sent ahead of an answer."""

    def stop_waiting(self) -> None:
        """Serve the request that was queued."""

    def release(self) -> None:
        """Stop counting the connection: it has ended, or is a tunnel."""

    def close(self) -> None: ...

    def abort(self) -> None: ...
