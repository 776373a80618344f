# SPDX-License-Identifier: Apache-2.0
"""Keeps the Lease by which one operator of several writes. `Election` decides."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.lease_times import RENEW_DEADLINE_S, RETRY_S, Instant
from tenant_operator.election.election import Election, WaitForHolder, WriteRecord
from tenant_operator.election.lease import LEASES, LeaseRecord, lease_body, parse_lease
from tenant_operator.model.objects import Object

# One request may not take the whole time until the deadline: the next one may succeed.
REQUEST_TIMEOUT_S = RENEW_DEADLINE_S / 2
# A clean stop waits for no longer; then others wait until the Lease expires.
RELEASE_TIMEOUT_S = 2.0
_MAX_LEASE_BYTES = 64 << 10

_log = logs.get(__name__)


def read_clocks() -> Instant:
    return Instant(time.monotonic(), time.time())


class Leader:
    """This process in the election. `identity` is of this process alone, such as `<pod>_<random>`."""

    def __init__(
        self,
        client: Requester,
        namespace: str,
        name: str,
        identity: str,
        *,
        clocks: Callable[[], Instant] = read_clocks,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._clocks = clocks
        self._election = Election(identity)
        # As it was accepted last: a renewal reads nothing before.
        self._accepted: LeaseRecord | None = None
        self._leader = ""
        self.last_error = ""

    def may_write(self) -> bool:
        """Whether a write may be sent now. It takes no request: ask right before each, and await nothing
        between the answer and the sending."""
        return self._election.may_write(self._clocks())

    @property
    def leader(self) -> str:
        """The identity of the process that leads, as far as this one has seen."""
        return self._leader

    async def run(
        self, on_started: Callable[[], Awaitable[None]], on_lost: Callable[[], Awaitable[None]]
    ) -> None:
        """Take part until cancelled; then the Lease is released.

        `on_started` begins the work and returns. `on_lost` ends it, requests under way too, and returns when
        none is left: before that the Lease is neither taken again nor released.
        """
        try:
            while True:
                await self._acquire()
                _log.info("leading", lease=f"{self._namespace}/{self._name}")
                try:
                    await on_started()
                    await self._keep()
                    _log.warning("Lease lost: another operator may write", error=self.last_error)
                finally:
                    await on_lost()
        finally:
            self._election.leave()
            await self._release()

    async def _acquire(self) -> None:
        while not self.may_write():
            if not await self._try_step(REQUEST_TIMEOUT_S):
                await asyncio.sleep(RETRY_S)

    async def _keep(self) -> None:
        """Renew the Lease while it is ours. No request outlasts the deadline."""
        while (remaining_s := self._remaining_s()) > 0:
            await self._try_step(min(REQUEST_TIMEOUT_S, remaining_s))
            await asyncio.sleep(min(RETRY_S, self._remaining_s()))

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                while self._election.state.renewed_at is not None:
                    if not await self._try_step(RELEASE_TIMEOUT_S):
                        await asyncio.sleep(RETRY_S / 10)
        except TimeoutError:
            _log.warning("Lease not released; others wait until it expires", error=self.last_error)

    def _remaining_s(self) -> float:
        return self._election.remaining_s(self._clocks())

    async def _try_step(self, timeout_s: float) -> bool:
        """Whether a write of ours was accepted."""
        try:
            async with asyncio.timeout(timeout_s):
                is_accepted = await self._step()
        except (ApiError, UnreachableError, TimeoutError) as error:
            message = str(error) or "the API server did not answer in time"
            if message != self.last_error:
                _log.warning("Lease not written", lease=f"{self._namespace}/{self._name}", error=message)
            self.last_error = message
            self._accepted = None  # it may have been written all the same
            return False
        self.last_error = ""
        return is_accepted

    async def _step(self) -> bool:
        observed = await self._read() if self._accepted is None else self._accepted
        action = self._election.next(observed, self._clocks())
        if isinstance(action, WaitForHolder):
            self._leader, self._accepted = action.holder, None
            return False
        sent_at = self._clocks()
        self._accepted = await self._write(action, sent_at)
        if self._accepted is None:
            return False
        self._leader = self._accepted.holder
        self._election.accepted(self._accepted, sent_at)
        return True

    async def _read(self) -> LeaseRecord | None:
        try:
            return self._parsed(
                await self._client.request("GET", self._path, {}, limit_bytes=_MAX_LEASE_BYTES)
            )
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    async def _write(self, action: WriteRecord, sent_at: Instant) -> LeaseRecord | None:
        """The Lease as it was written; None if it is there, gone, or of another version."""
        value = lease_body(
            self._namespace, self._name, action.record, sent_at.wall_s, is_acquired=action.is_acquired
        )
        try:
            if action.record.version:
                return self._parsed(
                    await self._send("PATCH", self._path, value, "application/merge-patch+json")
                )
            return self._parsed(
                await self._send("POST", LEASES.path(self._namespace), value, "application/json")
            )
        except ApiError as error:
            if error.status.code in (404, 409):
                return None
            raise

    async def _send(self, method: str, path: str, value: Object, content_type: str) -> bytes:
        body = msgspec.json.encode(value)
        return await self._client.request(
            method, path, {}, body, content_type=content_type, limit_bytes=_MAX_LEASE_BYTES
        )

    @property
    def _path(self) -> str:
        return LEASES.path(self._namespace, self._name)

    def _parsed(self, body: bytes) -> LeaseRecord:
        try:
            return parse_lease(msgspec.json.decode(body, type=Object))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UnreachableError("the answer is no Lease") from None
