# SPDX-License-Identifier: Apache-2.0
"""A client whose writes for a tenant are sent only while this process holds that tenant."""

from collections.abc import Mapping

from daemonkit.fairness.scheduler import Account
from daemonkit.kube.byte_budget import OverBudgetError
from daemonkit.kube.client import CheckedRequester, ReceivedBytes, UnreachableError
from daemonkit.kube.object_limits import MAX_OBJECT_BYTES
from syncer.sharding.port import TenantOwnership


class NotHeldError(UnreachableError):
    """Another replica has the tenant, or may have it: nothing was sent, or the answer is not known."""


# Each is about one object, which has its managed fields besides. A tenant's API server may send what it
# likes, to each of its requests that are under way at once.
MAX_ANSWER_BYTES = 2 * MAX_OBJECT_BYTES


# Of a write's body: the object that it was made from, itself, what the transport has of it, and the answer in
# parts and as a whole.
_HELD_OF_WRITE = 5
# Smaller ones are not counted: what comes up is to come up while a tenant has used its share.
FREE_BODY_BYTES = 64 << 10


class FencedClient:
    """A `Requester` of one tenant, for either cluster. Reads are always sent.

    Ownership is asked when a write begins and when its bytes go out: a new connection may take seconds, and
    the process may be stopped meanwhile. A write whose time is over is cut, with its connection.
    """

    def __init__(
        self,
        client: CheckedRequester,
        ownership: TenantOwnership,
        tenant: str,
        account: Account | None = None,
        held: ReceivedBytes | None = None,
    ) -> None:
        """`account` is the tenant's: it pays for what its answers take. `held` counts what its
        writes hold while they are under way.
        """
        self._held = held
        self._client = client
        self._ownership = ownership
        self._tenant = tenant
        self._account = account

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = MAX_ANSWER_BYTES,
    ) -> bytes:
        asked = self._request(method, path, params, body, content_type, limit_bytes)
        if self._account is None or self._account.is_in_step:
            return await asked  # the task that asks is charged
        return await self._account.run(asked)

    async def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        limit_bytes: int,
    ) -> bytes:
        if method == "GET":
            return await self._client.request(method, path, params, limit_bytes=limit_bytes)
        write = self._ownership.begin_write(self._tenant)
        if write is None:
            raise NotHeldError("the tenant is not held by this replica")

        def check() -> None:
            if not write.may_send():
                raise NotHeldError("the tenant's Lease expired before the write was sent")

        held_bytes = 0 if body is None or len(body) < FREE_BODY_BYTES else _HELD_OF_WRITE * len(body)
        try:
            self._note_held(held_bytes)
            async with write.deadline:
                return await self._client.request(
                    method,
                    path,
                    params,
                    body,
                    content_type=content_type,
                    limit_bytes=limit_bytes,
                    before_send=check,
                )
        except TimeoutError:
            raise NotHeldError("the tenant's Lease expired while the write was under way") from None
        finally:
            self._note_held(-held_bytes)
            write.end()

    def _note_held(self, size_bytes: int) -> None:
        """Raises UnreachableError if there is no memory for it: the write is tried again."""
        if self._held is None or not size_bytes:
            return
        try:
            self._held.note_received(size_bytes)
        except OverBudgetError as error:
            raise UnreachableError(str(error)) from None
