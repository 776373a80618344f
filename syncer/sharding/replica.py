# SPDX-License-Identifier: Apache-2.0
"""One of several replicas: keeps its own Lease, and fences those that have expired.

`syncer.core.sharding.Ownership` decides. Its steps are carried out one at a time: a list of all Leases, then
the writes that follow from it. The list asks for the newest state (no resourceVersion), as a claim counts
only once a list that began after it shows no other.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.lease_times import RENEW_DEADLINE_S, RETRY_S, Instant
from syncer.core.objects import Object
from syncer.core.requests import MERGE_PATCH
from syncer.core.sharding import (
    Ownership,
    RemoveLease,
    WriteLease,
    WriteTicket,
)
from syncer.sharding.lease_objects import (
    LEASES,
    LeaseNames,
    lease_patch,
    new_lease,
    parse_lease,
    parse_leases,
)

# One request may not take the whole time until the deadline: the next one may succeed.
REQUEST_TIMEOUT_S = RENEW_DEADLINE_S / 2
# Some hundred replicas; a list of more is no list of replicas.
_MAX_LIST_BYTES = 4 << 20
# A claim is held after the list that follows it: at most so many cycles run without a pause.
_MAX_CYCLES = 3
# Well within CUT_WITHIN_S, also on a busy machine.
_CUT_INTERVAL_S = 0.5

_log = logs.get(__name__)


def read_clocks() -> Instant:
    return Instant(time.monotonic(), time.time())


class FencedWrite:
    """A write under way, as in `port`: cut when the Lease is lost, or is not renewed in time."""

    def __init__(
        self,
        ownership: Ownership,
        ticket: WriteTicket,
        clocks: Callable[[], Instant],
        ended: Callable[["FencedWrite"], None],
    ) -> None:
        self._ownership = ownership
        self._ticket = ticket
        self._clocks = clocks
        self._ended = ended
        self.deadline = asyncio.timeout(None)
        self._is_cut = False

    def may_send(self) -> bool:
        return not self._is_cut and self._ownership.may_send(self._ticket, self._clocks())

    def cut(self) -> None:
        """Have the request end now, whatever it waits for."""
        if not self._is_cut:
            self._is_cut = True
            self.deadline.reschedule(asyncio.get_running_loop().time())

    def end(self) -> None:
        self._ended(self)
        self._ownership.end_write(self._ticket)


class Replica:
    """This process among its replicas. `on_change` is called when the tenants that it holds have changed.

    `name` is of one running replica, such as its pod's; `identity` is of this process alone.
    """

    def __init__(
        self,
        client: Requester,
        names: LeaseNames,
        name: str,
        identity: str,
        on_change: Callable[[], None],
        *,
        clocks: Callable[[], Instant] = read_clocks,
    ) -> None:
        self.name = name
        self._client = client
        self._names = names
        self._on_change = on_change
        self._clocks = clocks
        self._ownership = Ownership(name, identity)
        self._reported: frozenset[int] = frozenset()
        self._was_renewed = False
        self._in_flight: set[FencedWrite] = set()
        self.last_error = ""

    # ---- ownership, as in `port`

    def may_write(self, tenant: str) -> bool:
        return self._ownership.may_write(tenant, self._clocks())

    def holds(self, tenant: str) -> bool:
        return self._ownership.holds(tenant)

    def begin_write(self, tenant: str) -> "FencedWrite | None":
        ticket = self._ownership.begin_write(tenant, self._clocks())
        if ticket is None:
            return None
        write = FencedWrite(self._ownership, ticket, self._clocks, self._in_flight.discard)
        self._in_flight.add(write)
        return write

    @property
    def held_shards(self) -> int:
        return len(self._ownership.held)

    @property
    def live_replicas(self) -> int:
        return len(self._ownership.live)

    @property
    def is_renewed(self) -> bool:
        """Whether the Lease is valid: if not, nothing is written for any tenant."""
        return self._ownership.is_renewed(self._clocks())

    # ---- life

    async def run(self) -> None:
        """Keep the Lease until cancelled. Beside it, `cut_expired` runs until the last write has ended."""
        while True:
            for _ in range(_MAX_CYCLES):
                if not await self._try_cycle():
                    break
            await asyncio.sleep(RETRY_S)

    async def cut_expired(self) -> None:
        """Cut the writes that the Lease no longer covers, until cancelled."""
        while True:
            await asyncio.sleep(_CUT_INTERVAL_S)
            self._cut()

    def _cut(self) -> None:
        for write in list(self._in_flight):
            if not write.may_send():
                write.cut()

    async def leave(self, timeout_s: float) -> None:
        """Release the Lease once no write is under way. Call it after `run` has ended."""
        self._ownership.leave()
        self._report()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._ownership.has_left:
                    if not await self._try_cycle():
                        await asyncio.sleep(RETRY_S / 10)
        except TimeoutError:
            _log.warning("Lease not released; others wait until it expires", error=self.last_error)

    async def _try_cycle(self) -> bool:
        try:
            has_news = await self._cycle()
        except (ApiError, UnreachableError, TimeoutError) as error:
            self._fail(str(error) or "nothing came in time")
            has_news = False
        self._report()
        return has_news

    async def _cycle(self) -> bool:
        """List, decide, write. Returns whether a list must follow before claims are held."""
        found = await self._list()
        before = self._ownership.transitions
        self._ownership.observed(parse_leases(self._names, found), self._clocks())
        if before is not None and self._ownership.transitions is None:
            _log.warning("Lease lost: it was fenced, deleted or taken", transitions=before)
        has_news = False
        for write in self._ownership.writes(self._clocks()):
            if isinstance(write, RemoveLease):
                await self._remove(write)
            else:
                has_news |= await self._write(write)
        return has_news

    async def _list(self) -> list[object]:
        params = {"labelSelector": self._names.label_selector}
        path = LEASES.path(self._names.namespace)
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            body = await self._client.request("GET", path, params, limit_bytes=_MAX_LIST_BYTES)
        try:
            items = msgspec.json.decode(body, type=Object).get("items")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UnreachableError("the list of Leases is not JSON") from None
        return items if isinstance(items, list) else []

    async def _write(self, write: WriteLease) -> bool:
        lease = write.lease
        asked_at = self._clocks()
        is_acquired = write.is_own and self._ownership.transitions is None
        gained = lease.claims - self._ownership.held
        if write.is_own:
            self._ownership.sending(lease)
        if lease.version:
            value = lease_patch(lease, asked_at.wall_s, is_acquired=is_acquired)
            path = LEASES.path(self._names.namespace, self._names.of(lease.replica))
            answer = await self._send("PATCH", path, value, MERGE_PATCH)
        else:
            value = new_lease(self._names, lease, asked_at.wall_s)
            answer = await self._send("POST", LEASES.path(self._names.namespace), value)
        if answer is None:
            return write.is_own  # changed meanwhile: look at once what it is
        if not write.is_own:
            _log.warning("expired Lease fenced", replica=lease.replica, transitions=lease.transitions)
            return True
        self._ownership.accepted(parse_lease(self._names, answer), asked_at)
        return is_acquired or bool(gained)

    async def _remove(self, write: RemoveLease) -> None:
        lease = write.lease
        conditions = {"uid": lease.uid, "resourceVersion": lease.version}
        value = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        path = LEASES.path(self._names.namespace, self._names.of(lease.replica))
        await self._send("DELETE", path, value)

    async def _send(
        self, method: str, path: str, value: Object, content_type: str = "application/json"
    ) -> Object | None:
        """The object that was written; None if it was there, gone, or of another version."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                body = await self._client.request(
                    method, path, {}, msgspec.json.encode(value), content_type=content_type
                )
        except ApiError as error:
            if error.status.code in (404, 409):
                return None
            raise
        try:
            return msgspec.json.decode(body, type=Object)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UnreachableError("the answer is no Lease") from None

    # ---- reports

    def _fail(self, message: str) -> None:
        if message != self.last_error:
            _log.warning("Lease not renewed", error=message)
        self.last_error = message

    def _report(self) -> None:
        self._cut()
        held, is_renewed = self._ownership.held, self.is_renewed
        if is_renewed:
            self.last_error = ""
        if (held, is_renewed) != (self._reported, self._was_renewed):
            self._reported, self._was_renewed = held, is_renewed
            _log.info("shards held", shards=len(held), replicas=self.live_replicas, is_renewed=is_renewed)
            self._on_change()
